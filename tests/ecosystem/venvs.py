"""Two venvs for a set of packages: one with PyTorch, one with graphc's stand-in for it.

Each is made once and kept in the user's cache folder. PyTorch itself is installed once, for all
sets, in a venv that those of the sets read through a .pth file. graphc is read from this checkout,
whichever of them made the venv, through a folder on PYTHONPATH that holds nothing else.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
TORCH = "torch==2.13.0"
# what torch requires itself, without which some packages stop that do not say so (peft: jinja2)
OF_TORCH = ("jinja2", "filelock", "fsspec", "typing-extensions")
STAMP = "made"
# what pip says where the registry does not answer
UNREACHABLE = ("Retrying (Retry(", "Temporary failure in name resolution", "ConnectionError")


class Unreachable(Exception):
    """The registry of packages does not answer."""


@dataclass(frozen=True)
class Venv:
    """One side's."""

    side: str  # "torch" or "graphc"
    folder: Path

    @property
    def python(self) -> Path:
        """Its interpreter."""
        return self.folder / "bin" / "python"

    def environment(self) -> dict[str, str]:
        """What a program there needs to find graphc; code that graphc compiles is kept here."""
        if self.side == "torch":
            return {}
        return {"PYTHONPATH": str(source()), "GRAPHC_CACHE_DIR": str(folder() / "code")}

    def versions(self, packages: tuple[str, ...]) -> dict[str, str]:
        """Of these packages, as they are installed."""
        code = "import importlib.metadata as m, sys; print(*map(m.version, sys.argv[1:]))"
        names = [name_of(package) for package in packages if not package.startswith("-")]
        done = subprocess.run(
            [str(self.python), "-I", "-c", code, *names], capture_output=True, text=True, check=True
        )
        return dict(zip(names, done.stdout.split(), strict=True))


def folder() -> Path:
    """Where all of it is kept."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "graphc" / "ecosystem"


def name_of(requirement: str) -> str:
    """The distribution's name in "name[extra]==1.0"."""
    return requirement.partition("==")[0].partition("[")[0]


def pair(packages: tuple[str, ...]) -> dict[str, Venv]:
    """The two venvs with these packages, by side. Raises Unreachable."""
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    digest = hashlib.sha256("\n".join([version, TORCH, *packages]).encode()).hexdigest()[:8]
    home = folder() / f"{name_of(packages[0])}-{digest}"
    torch, graphc = Venv("torch", home / "torch"), Venv("graphc", home / "graphc")
    base = Venv("torch", folder() / f"pytorch-{version}")
    with _made(base.folder) as new:
        if new:
            _pip(base, TORCH, "numpy")
    with _made(torch.folder) as new:
        if new:
            link = _site_packages(torch.folder) / "pytorch.pth"
            link.write_text(f"{_site_packages(base.folder)}\n")
            _pip(torch, *packages, "-c", str(_constraints(home, TORCH)))
    with _made(graphc.folder) as new:
        if new:
            _install_shim(graphc, packages)
            _pip(graphc, *packages, "-c", str(_constraints(home, *_frozen(torch))))
    return {"torch": torch, "graphc": graphc}


def source() -> Path:
    """A folder to import this checkout's graphc from, and nothing else of it; called so that dill
    takes graphc for what it is, an installed package, which it pickles by name."""
    of_checkout = hashlib.sha256(str(ROOT).encode()).hexdigest()[:8]
    mine = folder() / "source" / of_checkout / "site-packages"
    mine.mkdir(parents=True, exist_ok=True)
    with contextlib.suppress(FileExistsError):
        (mine / "graphc").symlink_to(ROOT / "graphc")
    return mine


@contextlib.contextmanager
def _made(venv: Path) -> Iterator[bool]:
    """A venv, new or as it was left whole; whether it is new. One process at a time makes it."""
    venv.parent.mkdir(parents=True, exist_ok=True)
    with open(venv.parent / f"{venv.name}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if (venv / STAMP).exists():
            yield False
            return
        if venv.exists():
            shutil.rmtree(venv)
        subprocess.run([sys.executable, "-m", "venv", str(venv)], check=True)
        yield True
        (venv / STAMP).touch()


def _install_shim(venv: Venv, packages: tuple[str, ...]) -> None:
    """graphc, and its stand-in for torch; for torchvision, too, as it comes, where it is no package
    of the set."""
    _pip(venv, *OF_TORCH, "--editable", str(ROOT))
    own = any(name_of(package) == "torchvision" for package in packages)
    command = ["-m", "graphc", "shim", "install", *(["--no-torchvision"] if own else [])]
    done = subprocess.run(
        [str(venv.python), *command], capture_output=True, text=True, cwd=venv.folder
    )
    if done.returncode:
        raise RuntimeError(f"python {' '.join(command)}:\n{done.stdout}{done.stderr}")


def _frozen(venv: Venv) -> list[str]:
    """The versions that are installed there, but for torch's."""
    command = [str(venv.python), "-m", "pip", "freeze", "--exclude", "torch"]
    found = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split("\n")
    return [line for line in found if "==" in line]


def _constraints(home: Path, *lines: str) -> Path:
    path = home / "constraints.txt"
    path.write_text("\n".join(lines) + "\n")
    return path


def _pip(venv: Venv, *arguments: str) -> None:
    command = [str(venv.python), "-m", "pip", "install", "--quiet", *arguments]
    # of what builds sdists: some ask for pkg_resources, which newer ones lack
    builds = folder() / "builds.txt"
    builds.parent.mkdir(parents=True, exist_ok=True)
    builds.write_text("setuptools<80\n")
    environment = {**os.environ, "PIP_CONSTRAINT": str(builds)}
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    if not done.returncode:
        return
    said = done.stdout + done.stderr
    if any(sign in said for sign in UNREACHABLE):
        raise Unreachable(f"pip install {' '.join(arguments)}: {said.strip().splitlines()[-1]}")
    raise RuntimeError(f"pip install {' '.join(arguments)}, for {venv.side}:\n{said[-4000:]}")


def _site_packages(venv: Path) -> Path:
    return Path(sysconfig.get_path("purelib", vars={"base": str(venv), "platbase": str(venv)}))
