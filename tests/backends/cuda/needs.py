"""What a test of this folder needs of the machine; what is missing skips it, by its name."""

import functools
import shutil
import subprocess
from pathlib import Path

import pytest

from graphc.backends.cuda import libraries, nvrtc
from graphc.backends.cuda.libraries import MissingLibrary

ARCHITECTURES = ("sm_80", "sm_90", "sm_90a")  # that kernels are compiled for without a GPU


def compiler(release: int | None = None) -> nvrtc.Nvrtc:
    """NVRTC, of a release of CUDA."""
    try:
        return nvrtc.compiler(release)
    except MissingLibrary as missing:
        pytest.skip(str(missing))


def headers(release: int | None = None) -> Path:
    """The folder of cuda.h."""
    try:
        return libraries.headers(release)
    except MissingLibrary as missing:
        pytest.skip(str(missing))


def library_headers(release: int, file: str, wheel: str) -> list[Path]:
    """The folder of a library's header, which is `wheel`'s in CUDA 12, and that of cuda.h, which it
    may include; both of one release."""
    base = headers(release)
    folder = wheel if release == 12 else f"cu{release}"
    places = [base, *(Path(root, folder, "include") for root in libraries._nvidia_folders())]
    there = [place for place in places if (place / file).is_file()]
    if not there:
        pytest.skip(f"needs {file} of CUDA {release}, which is not in {base}")
    return [there[0], base]


@functools.cache
def c_compiler() -> str:
    """cc, or what is called so."""
    found = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if found is None:
        pytest.skip("needs a C compiler: cc, gcc or clang")
    return found


def compile_c(source: Path, output: Path, *options: str) -> None:
    """A C file's program, or library. Fails with what the compiler says."""
    strict = ("-std=c11", "-Wall", "-Werror")
    command = [c_compiler(), *strict, *options, str(source), "-o", str(output)]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
