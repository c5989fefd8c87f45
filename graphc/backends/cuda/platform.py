"""What a CudaBackend runs on: a device, and a compiler for it. NVIDIA's (`nvidia.py`), or that of
tests."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Protocol, TypeAlias

from graphc.backends.cuda.device import Device, Gpus
from graphc.backends.cuda.source import Target

Compile: TypeAlias = Callable[[str], bytes]  # text to what a Driver loads


class Platform(Protocol):
    """Everything is made when it is first asked for."""

    @property
    def gpus(self) -> Gpus: ...
    @property
    def device(self) -> Device: ...
    @property
    def target(self) -> Target: ...

    def on(self, index: int) -> Platform:
        """The same with another of the devices."""

    def compiler(self, directory: Path | None) -> Compile:
        """Compiled code is kept in a directory, where there is one."""
