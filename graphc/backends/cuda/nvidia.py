"""The Platform of a machine with a GPU."""

from __future__ import annotations

import functools
import threading
from pathlib import Path

from graphc.backends.cuda import libcuda, nvrtc
from graphc.backends.cuda.cubins import CubinCache
from graphc.backends.cuda.driver import DEFAULT_STREAM, Driver, Stream
from graphc.backends.cuda.platform import Block, Compile, Device
from graphc.backends.cuda.source import Target


class Piece:
    """A Block that goes back to its device's shelves."""

    __slots__ = ("_device", "address", "size")

    def __init__(self, device: OneStream, address: int, size: int) -> None:
        self._device, self.address, self.size = device, address, size

    def __del__(self) -> None:
        self._device.shelf(self.size).append(self.address)


class OneStream:
    """A Device on which all work goes to the default stream: what was freed may be used again at
    once."""

    def __init__(self, driver: Driver, index: int = 0) -> None:
        self.driver, self.index = driver, index
        self._context = driver.retain(index)
        self._threads = threading.local()
        self._shelves: dict[int, list[int]] = {}

    def current_stream(self) -> Stream:
        """See Device."""
        if not hasattr(self._threads, "current"):
            self.driver.make_current(self._context)
            self._threads.current = True
        return DEFAULT_STREAM

    def shelf(self, size: int) -> list[int]:
        """Free pieces of so many bytes."""
        return self._shelves.setdefault(size, [])

    def allocate(self, size: int, stream: Stream) -> Block:
        """See Device."""
        rounded = max(256, 1 << (size - 1).bit_length())
        try:
            return Piece(self, self.shelf(rounded).pop(), rounded)
        except IndexError:
            return Piece(self, self.driver.allocate(rounded), rounded)


class Nvidia:
    """The first device of this process, and NVRTC. Raises MissingLibrary, or CudaError where there
    is no device."""

    @functools.cached_property
    def device(self) -> Device:
        """See Platform."""
        return OneStream(libcuda.driver())

    @functools.cached_property
    def target(self) -> Target:
        """See Platform."""
        return Target(nvrtc.architecture(self.device.driver, self.device.index))

    def compiler(self, directory: Path | None) -> Compile:
        """NVRTC, of the newest release whose code the driver loads."""
        found = nvrtc.compiler_for(self.device.driver.version())
        cache = CubinCache(directory)
        return lambda text: cache.compile(found, text, self.target.architecture).cubin
