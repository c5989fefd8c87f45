"""What the doctor hears of CUDA."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from graphc.backends.cuda import findings as module
from graphc.backends.cuda import libcuda, libraries, nvrtc
from graphc.backends.cuda.compilers import WithNvrtc
from graphc.backends.cuda.driver import Attribute
from graphc.backends.cuda.errors import error_of
from graphc.backends.cuda.libraries import DRIVER, LIBRARIES, NVRTC, Found, Library, MissingLibrary
from graphc.backends.host.finding import Finding


class Device:
    """A driver with one H200, or what it is told to be."""

    def __init__(self, capability: tuple[int, int] = (9, 0), version: tuple[int, int] = (12, 4)):
        self.capability, self._version = capability, version

    def version(self) -> tuple[int, int]:
        return self._version

    def device_count(self) -> int:
        return 1

    def device_name(self, device: int) -> str:
        return "NVIDIA H200"

    def device_memory(self, device: int) -> int:
        return 140 << 30

    def attribute(self, device: int, attribute: Attribute) -> int:
        return {
            Attribute.COMPUTE_CAPABILITY_MAJOR: self.capability[0],
            Attribute.COMPUTE_CAPABILITY_MINOR: self.capability[1],
            Attribute.MULTIPROCESSOR_COUNT: 132,
            Attribute.MAX_SHARED_MEMORY_PER_BLOCK_OPTIN: 227 << 10,
        }[attribute]


def machine(
    monkeypatch: pytest.MonkeyPatch, driver: Any, releases: tuple[int, ...] = (12,)
) -> dict[str, Finding]:
    """What is said where these releases are installed; driver: a Device, an error, or None."""

    def find(library: Library, release: int | None = None) -> Found:
        there = (12,) if library is DRIVER and driver is not None else releases
        release = release or max(there, default=12)
        if release not in there or (library is DRIVER and driver is None):
            raise MissingLibrary(library.title, library.cure(release))
        return Found(library, None, f"/there/{library.name}.{release}", (release, 4))

    def open_driver() -> Any:
        if isinstance(driver, Exception):
            raise driver
        return driver

    def compiler(release: int) -> Any:
        return SimpleNamespace(
            found=find(NVRTC, release), version=(release, 4), architectures=lambda: (80, 86, 90)
        )

    def headers(release: int | None = None) -> Path:
        if not releases:
            raise MissingLibrary("cuda.h", libraries.extras(release))
        return Path("/there/include")

    monkeypatch.setattr(libraries, "find", find)
    monkeypatch.setattr(libraries, "headers", headers)
    monkeypatch.setattr(libraries, "headers_version", lambda folder: (12, 4))
    monkeypatch.setattr(libcuda, "driver", open_driver)
    monkeypatch.setattr(nvrtc, "compiler", compiler)
    return {finding.subject: finding for finding in module.findings()}


def test_a_whole_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    found = machine(monkeypatch, Device())
    assert found["GPU 0"] == Finding(
        "GPU 0", "NVIDIA H200: 9.0, 132 multiprocessors, 140 GiB, 227 KiB shared"
    )
    assert found["NVRTC of CUDA 12"] == Finding("NVRTC of CUDA 12", "12.4, /there/nvrtc.12")
    assert found["NVRTC of CUDA 13"].cure.endswith("[cuda13]', or keep the other one")
    assert found["CUDA headers"].found == "12.4, /there/include"
    for library in LIBRARIES[1:]:
        assert found[library.title] == Finding(library.title, f"12.4, /there/{library.name}.12")


def test_a_machine_with_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    found = machine(monkeypatch, None, ())
    assert "GPU 0" not in found
    for subject in ("NVRTC of CUDA 12", "CUDA headers", *(each.title for each in LIBRARIES[1:])):
        assert found[subject].found is None and found[subject].cure, subject
    assert not any(finding.needed for finding in found.values())


@pytest.mark.parametrize(
    ("driver", "releases", "cure"),
    [
        (Device(version=(12, 4)), (13,), "pip install 'graphc-compiler[cuda12]'"),
        (Device(version=(13, 0)), (), "pip install 'graphc-compiler[cuda13]'"),
        (Device((10, 0)), (12,), "a newer NVRTC: pip install --upgrade nvidia-cuda-nvrtc-cu12"),
        (Device((7, 5)), (12,), "a GPU of compute capability 8.0 or higher"),
    ],
)
def test_a_device_that_code_cannot_be_made_for(
    monkeypatch: pytest.MonkeyPatch, driver: Device, releases: tuple[int, ...], cure: str
) -> None:
    finding = machine(monkeypatch, driver, releases)["GPU 0"]
    assert finding.found is not None and cure in finding.cure
    place: Any = SimpleNamespace(driver=driver, index=0)
    with pytest.raises((nvrtc.NvrtcError, MissingLibrary)) as refused:
        WithNvrtc().make(place, None)
    assert f"Cure: {cure}" in str(refused.value)


def test_a_driver_without_a_device(monkeypatch: pytest.MonkeyPatch) -> None:
    error = error_of("cuInit", "CUDA_ERROR_NO_DEVICE", "no CUDA-capable device is detected")
    finding = machine(monkeypatch, error)["GPU"]
    assert finding.found is None and finding.cure.startswith("give the process a GPU")


def test_two_cupys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module.metadata, "version", lambda name: "14.2.0")
    finding = machine(monkeypatch, None)["CuPy"]
    assert finding.found == "cupy-cuda13x and cupy-cuda12x"
    assert finding.cure == "pip uninstall cupy-cuda12x (or the other)"
