"""Finding CUDA's libraries: where they are, of which release, and what is said of those missing."""

import ctypes
import sys
import tomllib
import types
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest

from graphc.backends.cuda import libraries
from graphc.backends.cuda.libraries import (
    CUBLASLT,
    DRIVER,
    LIBRARIES,
    NVRTC,
    RELEASES,
    Library,
    MissingLibrary,
)

from . import needs

CUBLAS_12, CUBLAS_13 = 120903, 131000
# a library of which no other test has loaded one: the loader finds again what it has
STUBBED = NVRTC._replace(
    name="stub", title="Stub",
    wheel=lambda release: f"{'stub' if release == 12 else f'cu{release}'}/lib/libstub.so.{release}",
)
STUB = """
int nvrtcVersion(int *major, int *minor) { *major = %(release)d; *minor = 4; return 0; }
unsigned long cublasLtGetVersion(void) { return %(cublas)d; }
int cuDriverGetVersion(int *version) { *version = 13020; return 0; }
"""


@pytest.fixture
def stubs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[int, Path]:
    """Wheels of both releases as far as a library that says its version, in a site-packages."""
    made = {}
    for release in RELEASES:
        source = tmp_path / f"stub{release}.c"
        source.write_text(STUB % {
            "release": release, "cublas": CUBLAS_12 if release == 12 else CUBLAS_13,
        })
        made[release] = tmp_path / "nvidia" / STUBBED.wheel(release)
        made[release].parent.mkdir(parents=True)
        needs.compile_c(source, made[release], "-shared", "-fPIC")
    monkeypatch.setattr(libraries, "_nvidia_folders", lambda: [str(tmp_path / "nvidia")])
    forget(monkeypatch)
    return made


def forget(monkeypatch: pytest.MonkeyPatch) -> None:
    """Looks anew, and again after the test."""
    monkeypatch.setattr(libraries, "find", libraries.find.__wrapped__)
    monkeypatch.setattr(libraries, "headers", libraries.headers.__wrapped__)


def pathfinder(
    monkeypatch: pytest.MonkeyPatch, library: Any = None, folder: str | None = None
) -> None:
    """A cuda-pathfinder that finds one library, or raises, and one folder of headers."""

    def load(name: str) -> Any:
        if isinstance(library, Exception):
            raise library
        return types.SimpleNamespace(abs_path=str(library))

    found = types.SimpleNamespace(
        load_nvidia_dynamic_lib=load, find_nvidia_header_directory=lambda name: folder
    )
    monkeypatch.setattr(libraries, "_pathfinder", lambda: found)


@pytest.mark.parametrize("first", RELEASES)
def test_each_release_is_found_beside_the_other(
    stubs: dict[int, Path], monkeypatch: pytest.MonkeyPatch, first: int
) -> None:
    """pathfinder stops at the first."""
    pathfinder(monkeypatch, stubs[first])
    assert libraries.find(STUBBED).version == (first, 4)
    for release in RELEASES:
        found = libraries.find(STUBBED, release)
        assert (found.release, found.version) == (release, (release, 4))
        assert found.path == str(stubs[release])
    assert [each.release for each in libraries.available(STUBBED)] == [13, 12]


def test_wheels_that_pathfinder_does_not_see(
    stubs: dict[int, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    pathfinder(monkeypatch, RuntimeError("nowhere"))
    assert libraries.find(STUBBED).path == str(stubs[13])
    assert libraries.find(STUBBED, 12).path == str(stubs[12])


def test_one_release_alone(stubs: dict[int, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    pathfinder(monkeypatch, stubs[12])
    stubs[13].unlink()
    assert [each.release for each in libraries.available(STUBBED)] == [12]
    with pytest.raises(MissingLibrary) as missing:
        libraries.find(STUBBED, 13)
    assert str(missing.value) == (
        "Stub of CUDA 13 was not found (there is 12.4). "
        "Cure: pip install 'graphc-compiler[cuda13]'"
    )


def test_versions(stubs: dict[int, Path]) -> None:
    """As each library counts them."""
    old, new = (ctypes.CDLL(str(stubs[release])) for release in (12, 13))
    assert CUBLASLT.version(old) == (12, 9, 3) and CUBLASLT.version(new) == (13, 10, 0)
    assert NVRTC.version(new) == (13, 4) and DRIVER.version(new) == (13, 2)


@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize(("library", "name"), [(NVRTC, "cuda-nvrtc"), (CUBLASLT, "cublas")])
def test_the_table_knows_the_wheels(library: Library, name: str, release: int) -> None:
    """Those of this environment hold the file where the table looks for it."""
    distribution = f"nvidia-{name}{'-cu12' if release == 12 else ''}"
    try:
        files = metadata.files(distribution)
    except metadata.PackageNotFoundError:
        pytest.skip(f"needs the wheel {distribution}")
    assert f"nvidia/{library.wheel(release)}" in [file.as_posix() for file in files or ()]


@pytest.mark.parametrize("library", LIBRARIES, ids=lambda library: library.name)
@pytest.mark.parametrize("error", [RuntimeError("nowhere\nin detail"), OSError("no such file")])
def test_what_is_missing_has_a_cure(
    library: Library, error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    pathfinder(monkeypatch, error)
    forget(monkeypatch)
    if library.wheel is not None:  # nor is it where wheels unpack, or loaded
        library = library._replace(wheel=lambda release: f"nowhere/libnowhere.so.{release}")
    with pytest.raises(MissingLibrary) as missing:
        libraries.find(library)
    text, detail = str(missing.value), str(error).splitlines()[0]
    assert text.startswith(f"{library.title} was not found ({detail}). Cure: ")
    install = "pip install 'graphc-compiler[cuda12]'"
    cure = "install NVIDIA's driver" if library is DRIVER else install
    assert cure in text and missing.value.cure == library.cure()


def test_without_pathfinder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cuda", None)
    forget(monkeypatch)
    for ask in (lambda: libraries.find(NVRTC), libraries.headers):
        with pytest.raises(MissingLibrary, match=r"cuda-pathfinder.*Cure: pip install"):
            ask()
    assert libraries.available(NVRTC) == []


def test_headers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    forget(monkeypatch)
    monkeypatch.setattr(libraries, "_nvidia_folders", lambda: [str(tmp_path)])
    pathfinder(monkeypatch)
    with pytest.raises(MissingLibrary, match=r"cuda\.h was not found\. Cure: pip install"):
        libraries.headers()
    for release, name, number in ((12, "cuda_runtime", 12090), (13, "cu13", 13050)):
        folder = tmp_path / name / "include"
        folder.mkdir(parents=True)
        (folder / "cuda.h").write_text(f"#pragma once\n#define CUDA_VERSION {number}\n")
        pathfinder(monkeypatch, folder=str(folder))
        assert libraries.headers() == folder
        assert libraries.headers_version(folder) == (release, number % 1000 // 10)
    assert libraries.headers(12) == tmp_path / "cuda_runtime" / "include"
    assert libraries.headers(13) == tmp_path / "cu13" / "include"


def test_the_extras_that_cures_name(repository: Path) -> None:
    """pyproject.toml has them, with the packages that the table looks for."""
    project = tomllib.loads((repository / "pyproject.toml").read_text())["project"]
    assert project["name"] == libraries.DISTRIBUTION
    for release in RELEASES:
        packages = " ".join(project["optional-dependencies"][f"cuda{release}"])
        suffix = "-cu12" if release == 12 else ""
        parts = [f"cupy-cuda{release}x>=14", "cuda-pathfinder>="]
        for name in ("cuda-nvrtc", "cuda-runtime", "cublas"):
            parts.append(f"nvidia-{name}{suffix}>={release}.")
        assert all(part in packages for part in parts)
        assert f"[cuda{release}]" in libraries.extras(release)
        assert f"[cuda{release}]" in libraries.extras()
