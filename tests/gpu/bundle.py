"""What a machine with a GPU and without network is given: `make gpu-bundle`.

    python -m tests.gpu.bundle [--packages FILE]

The folder (gpu-bundle/, which git ignores) has the recorded kernels with the values that they have
to give (recorded.py), and the wheels of what graphc and its tests need and the machine lacks:
FILE says what it has, a name a line, as `pip list --format=freeze` there.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tomllib
from pathlib import Path

from . import recorded

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "gpu-bundle"
KERNELS = "kernels.zip"
MOST = 62 << 20  # bytes that such a machine takes along
PYTHON = "3.12"
_TESTS = ("pytest", "pytest-xdist", "mpmath", "safetensors", "cuda-pathfinder")


def main() -> int:
    """Returns 1 where the folder is larger than MOST."""
    parser = argparse.ArgumentParser(prog="python -m tests.gpu.bundle")
    parser.add_argument("--packages", type=Path, help="what the machine has; none: no wheels")
    asked = parser.parse_args()
    FOLDER.mkdir(exist_ok=True)
    found = recorded.record()
    recorded.save(FOLDER / KERNELS, found)
    print({model: len(launches) for model, launches in found.items()})
    if asked.packages is not None:
        wheels(missing(asked.packages.read_text()))
    size = sum(path.stat().st_size for path in FOLDER.rglob("*") if path.is_file())
    print(f"{FOLDER.name}: {size / 2**20:.1f} MiB, at most {MOST >> 20}")
    return int(size > MOST)


def missing(there: str) -> list[str]:
    """Requirements of graphc and its tests whose distribution is not among those that are there."""
    names = {_normal(line) for line in there.split("\n") if line.strip()}
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return [need for need in (*project["dependencies"], *_TESTS) if _normal(need) not in names]


def _normal(requirement: str) -> str:
    name = re.match(r"[\w.-]+", requirement.strip())
    return re.sub(r"[-_.]+", "-", name[0]).lower() if name else ""


def wheels(requirements: list[str]) -> None:
    """Downloads a wheel for each requirement. Raises CalledProcessError."""
    for requirement in requirements:
        subprocess.run(
            [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary=:all:",
             "--python-version", PYTHON, "--platform", "manylinux2014_x86_64",
             "--dest", str(FOLDER / "wheels"), requirement],
            check=True,
        )


if __name__ == "__main__":
    sys.exit(main())
