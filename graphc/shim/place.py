"""What an environment has: asked of its own Python, in isolation, so that neither the working
directory nor PYTHONPATH answers."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

from ..compat.distribution import is_stand_in
from .wheel import VERSIONS

# Imports no package: `find_spec` of a name without dots only looks for it.
_PROBE = """
import importlib.metadata, importlib.util, json, os, sys, sysconfig

def origin(name):
    spec = importlib.util.find_spec(name)
    return None if spec is None else spec.origin

def version(name):
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None

print(json.dumps({
    "prefix": sys.prefix, "base": sys.base_prefix, "folder": sysconfig.get_path("purelib"),
    "paths": sys.path, "conda": os.path.isdir(os.path.join(sys.prefix, "conda-meta")),
    "pip": importlib.util.find_spec("pip") is not None, "graphc": origin("graphc"),
    "packages": {name: [version(name), origin(name)] for name in sys.argv[1:]},
}))
"""


class Refused(Exception):
    """The shim is not for this environment; the message has the cure."""


class Package(NamedTuple):
    """What answers to a name; each None where nothing does."""

    version: str | None  # of a distribution
    origin: str | None  # the file that would be imported

    @property
    def ours(self) -> bool:
        """Whether it is the stand-in."""
        return is_stand_in(self.version)

    @property
    def real(self) -> bool:
        """Whether it is there, and is not the stand-in."""
        return not self.ours and (self.version is not None or self.origin is not None)

    def __str__(self) -> str:
        where = f" at {self.origin}" if self.origin is not None else ""
        return f"{self.version or 'without metadata'}{where}"


class Place(NamedTuple):
    """An environment of Python's."""

    python: str
    prefix: str
    base: str  # prefix of the Python that it was made with
    folder: str  # site-packages
    paths: list[str]  # sys.path
    conda: bool
    pip: bool
    graphc: str | None  # the file that `import graphc` finds there
    packages: dict[str, Package]

    @property
    def is_virtual(self) -> bool:
        """Whether packages here are nobody else's."""
        return self.prefix != self.base

    @property
    def stand_ins(self) -> list[str]:
        """The names that the shim answers to."""
        return [name for name, package in self.packages.items() if package.ours]


def examine(python: str = sys.executable) -> Place:
    """The environment of a Python. Raises subprocess.CalledProcessError where it does not run."""
    done = subprocess.run(
        [python, "-I", "-c", _PROBE, *VERSIONS], capture_output=True, text=True, check=True
    )
    found: dict[str, Any] = json.loads(done.stdout)
    found["packages"] = {name: Package(*each) for name, each in found["packages"].items()}
    return Place(python=python, **found)


def check_install(place: Place, checkout: Path) -> None:
    """Raises Refused where the shim must not, or cannot, be installed. `checkout`: where the
    graphc that runs this is."""
    if place.conda:
        raise Refused(
            f"{place.prefix} is an environment of conda's, which has its own idea of torch. Cure: "
            f"{_new_venv(place, checkout)}"
        )
    if not place.is_virtual:
        raise Refused(
            f"{place.python} is no virtual environment: everything that this Python runs would "
            f"lose its torch. Cure: {_new_venv(place, checkout)}"
        )
    torch = place.packages["torch"]
    if torch.real:
        raise Refused(
            f"torch {torch} is installed, and is not the stand-in. Cure: `python -m graphc run` "
            f"needs no shim; else `{place.python} -m pip uninstall torch`, or an environment "
            "without it (made without --system-site-packages)"
        )
    if place.graphc is None or not Path(place.graphc).with_name("shim").is_dir():
        raise Refused(
            f"graphc is not installed in {place.prefix}: this one, at {checkout}, was found by the "
            "working directory or PYTHONPATH, which other programs may not have. Cure: "
            f"{place.python} -m pip install --editable {checkout}"
        )
    check_pip(place)


def check_pip(place: Place) -> None:
    """Raises Refused where pip cannot work on the environment."""
    if not place.pip:
        raise Refused(
            f"there is no pip in {place.prefix}. Cure: {place.python} -m ensurepip (environments "
            "that uv makes have none)"
        )
    try:
        with tempfile.TemporaryFile(dir=place.folder):
            pass
    except OSError as error:
        raise Refused(
            f"{place.folder} cannot be written to ({error.strerror}). Cure: an environment of "
            "your own"
        ) from None


def _new_venv(place: Place, checkout: Path) -> str:
    return (
        f"{place.python} -m venv .venv, .venv/bin/python -m pip install --editable {checkout}, "
        ".venv/bin/python -m graphc shim install"
    )
