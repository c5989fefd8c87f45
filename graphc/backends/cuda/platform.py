"""What a CudaBackend runs on: a device, and a compiler for it. NVIDIA's (`nvidia.py`), or that of
tests."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Protocol, TypeAlias

from graphc.backends.cuda.driver import Driver, Stream
from graphc.backends.cuda.source import Target

Compile: TypeAlias = Callable[[str], bytes]  # text to what a Driver loads


class Block(Protocol):
    """Memory that was handed out, until nothing refers to it."""

    @property
    def address(self) -> int: ...


class Device(Protocol):
    """A GPU as one process uses it."""

    @property
    def driver(self) -> Driver: ...
    @property
    def index(self) -> int: ...

    def current_stream(self) -> Stream:
        """The calling thread's; the device's context is current there from then on."""

    def allocate(self, size: int, stream: Stream) -> Block:
        """So many bytes for the work of a stream, aligned to 256. Once freed, they serve nothing
        that could run before that work has happened."""


class Platform(Protocol):
    """Everything is made when it is first asked for."""

    @property
    def device(self) -> Device: ...
    @property
    def target(self) -> Target: ...

    def compiler(self, directory: Path | None) -> Compile:
        """Compiled code is kept in a directory, where there is one."""
