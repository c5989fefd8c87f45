"""`python -m graphc shim install | remove | check`."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from . import constraint, requirements, wheel
from .place import Place, Refused, check_install, check_pip, examine
from .wheel import VERSIONS

_CHECKOUT = Path(__file__).parents[2]
# neither PIP_* variables nor a user's settings may send it elsewhere
_PIP = ("-I", "-m", "pip", "--isolated", "--disable-pip-version-check", "--no-input")


def install(torchvision: bool | None = None) -> int:
    """Let `import torch` find graphc in the environment of this Python. `torchvision`: whether the
    shim answers to that name, too; None: where none is installed. Raises Refused."""
    place = examine()
    check_install(place, _CHECKOUT)
    wanted = _wanted(place, torchvision)
    _uninstall(place, [name for name in place.stand_ins if name not in wanted])
    stale = [name for name in wanted if not _is_current(place, name)]
    if stale:
        constraint.let_go(place.prefix)  # it may be of another version
        with tempfile.TemporaryDirectory() as folder:
            for name in stale:
                wheel.write(name, Path(folder))
            # by name: a path would stand in `pip freeze`
            _pip(
                place, "install", "--quiet", "--no-index", "--no-deps", "--force-reinstall",
                "--find-links", folder, *(f"{name}=={VERSIONS[name]}" for name in stale),
            )
        place = examine()
        _check_found(place, wanted)
    for name in wanted:
        state = "installed" if name in stale else "was installed already"
        print(f"{name} {VERSIONS[name]}, graphc's stand-in, {state} in {place.folder}")
    print(constraint.keep(place.prefix))
    vision = place.packages["torchvision"]
    if vision.real:
        print(f"torchvision {vision} is left alone, and runs on graphc")
    return 0


def remove() -> int:
    """Take the stand-ins out of the environment of this Python; nothing of them is left."""
    place = examine()
    names = place.stand_ins
    constraint.let_go(place.prefix)
    _uninstall(place, names)
    for name in names:
        print(f"{name} {place.packages[name].version}, graphc's stand-in, removed")
    if not names:
        print(f"no stand-in of graphc's is installed in {place.prefix}")
    return 0


def check(wanted: Sequence[str]) -> int:
    """Say what is installed, or given as a requirement, that PyTorch itself would come with; 1 if
    there is any."""
    place = examine()
    lines, pulls = requirements.report(place, wanted)
    for line in lines:
        print(line)
    return 1 if pulls else 0


def main(action: Callable[[], int]) -> int:
    """Run one of them; the exit status."""
    try:
        return action()
    except Refused as refused:
        print(f"graphc shim: {refused}", file=sys.stderr)
        return 1


def _wanted(place: Place, torchvision: bool | None) -> list[str]:
    vision = place.packages["torchvision"]
    if torchvision and vision.real:
        raise Refused(
            f"torchvision {vision} is installed, and is not the stand-in: its Python runs on "
            f"graphc. Cure: leave out --torchvision, or {place.python} -m pip uninstall torchvision"
        )
    answers = not vision.real if torchvision is None else torchvision
    return ["torch", "torchvision"] if answers else ["torch"]


def _is_current(place: Place, name: str) -> bool:
    """Whether the stand-in that this graphc writes is the one that is there."""
    package = place.packages[name]
    if package.version != VERSIONS[name] or package.origin is None:
        return False
    with suppress(OSError):
        return Path(package.origin).read_text(encoding="utf-8") == wheel.source(name)
    return False


def _check_found(place: Place, wanted: Sequence[str]) -> None:
    for name in wanted:
        if not _is_current(place, name):
            raise Refused(
                f"{name} was installed in {place.folder}, and yet `import {name}` would find "
                f"{place.packages[name]}. Cure: remove that"
            )


def _uninstall(place: Place, names: Sequence[str]) -> None:
    if not names:
        return
    check_pip(place)
    _pip(place, "uninstall", "--quiet", "--yes", *names)
    for name in names:  # what Python has compiled of it, for other levels of optimisation
        folder = Path(place.folder, name)
        for compiled in folder.glob("__pycache__/__init__.*.pyc"):
            compiled.unlink()
        with suppress(OSError):
            Path(folder, "__pycache__").rmdir()
        with suppress(OSError):
            folder.rmdir()
    left = examine(place.python).packages
    for name in names:
        if left[name].ours:
            raise Refused(
                f"{name} {left[name]} is outside of {place.prefix}, and stays. Cure: remove it by "
                "the Python that it belongs to"
            )


def _pip(place: Place, *arguments: str) -> None:
    done = subprocess.run([place.python, *_PIP, *arguments], capture_output=True, text=True)
    if done.returncode:
        said = (done.stderr or done.stdout).strip()
        raise Refused(f"pip {arguments[0]} failed in {place.prefix}:\n{said}")
