"""Where the CUDA libraries and their headers are: one table, found by cuda-pathfinder, which knows
wheels, conda, CUDA_PATH and the system's loader. What is missing is an error that says what to
install."""

from __future__ import annotations

import ctypes
import functools
import importlib.util
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

DISTRIBUTION = "graphc-compiler"
Version = tuple[int, ...]


class MissingLibrary(RuntimeError):
    """A library, or its headers, is not on this machine; `cure` says what to install."""

    def __init__(self, what: str, cure: str, detail: str = "") -> None:
        super().__init__(f"{what} was not found{f' ({detail})' if detail else ''}. Cure: {cure}")
        self.what, self.cure = what, cure


class Library(NamedTuple):
    """One of the table. `name` is cuda-pathfinder's; `release` a release of CUDA, 12 or 13."""

    name: str
    title: str
    purpose: str
    version: Callable[[ctypes.CDLL], Version]
    # of a release: the file that its wheel holds, in a folder of site-packages
    wheel: Callable[[int], str] | None

    def cure(self, release: int | None = None) -> str:
        """What brings it."""
        return DRIVER_CURE if self.wheel is None else extras(release)


class Found(NamedTuple):
    """A library that is loaded."""

    library: Library
    handle: ctypes.CDLL
    path: str
    version: Version

    @property
    def release(self) -> int:
        """The release of CUDA that it belongs to."""
        return self.version[0]


DRIVER_CURE = "install NVIDIA's driver (525 or newer), and give the process a GPU"
RELEASES = (13, 12)  # of CUDA, the newest first


def extras(release: int | None = None) -> str:
    """What to install of graphc's, for a release of CUDA."""
    names = [f"pip install '{DISTRIBUTION}[cuda{number}]'" for number in RELEASES]
    if release is not None:
        return names[RELEASES.index(release)]
    return f"{names[1]} ({names[0].removeprefix('pip install ')} where the driver has CUDA 13)"


# --- versions, as the libraries say them ------------------------------------------------------


def _nvrtc_version(handle: ctypes.CDLL) -> Version:
    major, minor = ctypes.c_int(), ctypes.c_int()
    handle.nvrtcVersion(ctypes.byref(major), ctypes.byref(minor))
    return major.value, minor.value


def _driver_version(handle: ctypes.CDLL) -> Version:
    """The newest CUDA that the driver runs: 12040 is 12.4."""
    number = ctypes.c_int()
    handle.cuDriverGetVersion(ctypes.byref(number))
    return number.value // 1000, number.value % 1000 // 10


def _cublas_version(handle: ctypes.CDLL) -> Version:
    """120903 is 12.9.3; 13.0 and later count in tens of thousands alike."""
    handle.cublasLtGetVersion.restype = ctypes.c_size_t
    number = int(handle.cublasLtGetVersion())
    return number // 10000, number // 100 % 100, number % 100


def _in_wheel(folder: str, file: str) -> Callable[[int], str]:
    """NVIDIA's wheels: a folder per library in those of CUDA 12, one for all in later ones."""
    return lambda release: f"{folder if release == 12 else f'cu{release}'}/lib/{file}.so.{release}"


NVRTC = Library(
    "nvrtc", "NVRTC", "compiles CUDA C", _nvrtc_version, _in_wheel("cuda_nvrtc", "libnvrtc")
)
DRIVER = Library("cuda", "CUDA driver (libcuda)", "runs kernels", _driver_version, None)
CUBLASLT = Library(
    "cublasLt", "cuBLASLt", "multiplies matrices", _cublas_version,
    _in_wheel("cublas", "libcublasLt"),
)
LIBRARIES = (NVRTC, DRIVER, CUBLASLT)


# --- finding ----------------------------------------------------------------------------------


@functools.cache
def find(library: Library, release: int | None = None) -> Found:
    """A library, of a release of CUDA where one is named. Raises MissingLibrary."""
    title = library.title if release is None else f"{library.title} of CUDA {release}"
    try:
        found = loaded(library, _pathfinder().load_nvidia_dynamic_lib(library.name).abs_path)
        if release is None or found.release == release:
            return found
        detail = f"there is {dotted(found.version)}"
    except (RuntimeError, OSError) as error:  # pathfinder raises RuntimeErrors, ours is one
        if isinstance(error, MissingLibrary):
            raise
        detail = _first_line(error)
    # pathfinder stops at the first that it meets, and knows site-packages alone
    for number in RELEASES if release is None else (release,):
        try:
            return loaded(library, _other(library, number))
        except OSError:
            continue
    raise MissingLibrary(title, library.cure(release), detail)


def available(library: Library) -> list[Found]:
    """Those of every release that are here, the newest first."""
    found = []
    for release in RELEASES:
        try:
            found.append(find(library, release))
        except MissingLibrary:
            continue
    return found


@functools.cache
def headers(release: int | None = None) -> Path:
    """The folder of cuda.h. Raises MissingLibrary."""
    title = "cuda.h" if release is None else f"cuda.h of CUDA {release}"
    folder = _pathfinder().find_nvidia_header_directory("cudart")
    folders = [] if folder is None else [Path(folder)]
    for number in RELEASES:
        name = "cuda_runtime" if number == 12 else f"cu{number}"
        folders += [Path(root, name, "include") for root in _nvidia_folders()]
    for place in folders:
        if (place / "cuda.h").is_file() and release in (None, headers_version(place)[0]):
            return place
    raise MissingLibrary(title, extras(release))


def headers_version(folder: Path) -> Version:
    """The version of CUDA that a folder's cuda.h is of."""
    text = (folder / "cuda.h").read_text(errors="replace")
    number = re.search(r"^#define CUDA_VERSION (\d+)$", text, re.MULTILINE)
    if number is None:
        raise ValueError(f"{folder}/cuda.h names no CUDA_VERSION")
    return int(number[1]) // 1000, int(number[1]) % 1000 // 10


def dotted(version: Version) -> str:
    """12.9"""
    return ".".join(map(str, version))


def _pathfinder() -> Any:
    """cuda-pathfinder. Raises MissingLibrary."""
    try:
        from cuda import pathfinder  # optional
    except ImportError as error:
        raise MissingLibrary(
            "cuda-pathfinder, which finds CUDA's libraries,", extras(), str(error)
        ) from error
    return pathfinder


def loaded(library: Library, path: str | None) -> Found:
    """A library by its file, or as the system's loader finds it. Raises OSError."""
    name = path or ("nvcuda.dll" if sys.platform == "win32" else f"lib{library.name}.so.1")
    handle = ctypes.CDLL(name)
    return Found(library, handle, name, library.version(handle))


def _other(library: Library, release: int) -> str:
    """Where the file of one release is: in its wheel, or where the system's loader looks."""
    if library.wheel is None:
        raise OSError(f"{library.title} has no releases")
    file = library.wheel(release)
    places = [Path(folder, file) for folder in _nvidia_folders()]
    return next((str(place) for place in places if place.is_file()), Path(file).name)


def _nvidia_folders() -> list[str]:
    """The folders of site-packages into which NVIDIA's wheels unpack."""
    spec = importlib.util.find_spec("nvidia")
    return list(spec.submodule_search_locations or ()) if spec is not None else []


def _first_line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]
