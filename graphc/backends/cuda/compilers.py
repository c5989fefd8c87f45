"""What makes machine code of CUDA C for a device: NVRTC, or that of tests."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from graphc.backends.cuda import nvrtc
from graphc.backends.cuda.cubins import CubinCache, cubin_key
from graphc.backends.cuda.device import Device
from graphc.backends.cuda.libraries import dotted
from graphc.backends.cuda.source import Target

_MOST = 32  # processes; each has some 100 MB


class Compiler(Protocol):
    """For one architecture. What it compiled it knows again, in another process, too, where it
    has a directory."""

    def key(self, text: str) -> bytes:
        """A digest of all that a text's code depends on."""

    def find(self, key: bytes) -> bytes | None:
        """What was compiled under a key; None: nothing."""

    @property
    def processes(self) -> int:
        """How many texts it compiles at a time."""

    def compile(self, texts: Sequence[str]) -> list[bytes]:
        """What a Driver loads, of each."""


class Compilers(Protocol):
    """Compilers for devices."""

    def target(self, device: Device) -> Target:
        """What is emitted for a device."""

    def make(self, device: Device, directory: Path | None) -> Compiler:
        """One that keeps its code in a directory. Raises MissingLibrary, or NvrtcError."""


class WithNvrtc:
    """See Compilers."""

    def target(self, device: Device) -> Target:
        """Of the architecture that the device has."""
        return Target(nvrtc.architecture(device.driver, device.index))

    def make(self, device: Device, directory: Path | None) -> Compiler:
        """NVRTC of the newest release whose code the driver loads. Raises NvrtcError for a device
        that it does not know."""
        found = nvrtc.compiler_for(device.driver.version())
        number = nvrtc.capability(device.driver, device.index)
        cure = nvrtc.cure(found, number)
        if cure:
            name, release = device.driver.device_name(device.index), dotted(found.version)
            raise nvrtc.NvrtcError(
                f"NVRTC {release} makes no code of graphc's for {name}, whose compute capability "
                f"is {number // 10}.{number % 10}. Cure: {cure}"
            )
        return NvrtcCompiler(found, self.target(device).architecture, directory)


class NvrtcCompiler:
    """See Compiler."""

    def __init__(self, found: nvrtc.Nvrtc, architecture: str, directory: Path | None) -> None:
        self._nvrtc, self._architecture = found, architecture
        self._cache = CubinCache(directory)

    def key(self, text: str) -> bytes:
        """See cubin_key."""
        flags = nvrtc.LOOPS.flags(self._architecture)
        return cubin_key(self._nvrtc.version, text, flags)

    def find(self, key: bytes) -> bytes | None:
        """A cubin."""
        found = self._cache.find(key)
        return found.cubin if found is not None else None

    @property
    def processes(self) -> int:
        """The cores that this process may use."""
        if hasattr(os, "sched_getaffinity"):
            return min(len(os.sched_getaffinity(0)), _MOST)
        return min(os.cpu_count() or 1, _MOST)

    def compile(self, texts: Sequence[str]) -> list[bytes]:
        """Cubins. Raises NvrtcError."""
        made = self._cache.compile_all(self._nvrtc, texts, self._architecture, self.processes)
        return [each.cubin for each in made]
