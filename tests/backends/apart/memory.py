"""The memory of a device that the host cannot look into, and the queue of its one worker.

An address is a token that the worker alone translates. Fresh bytes are poisoned, every access is
checked against its block's bounds. What the host asks for is queued and happens later: an error
appears when the host next waits, and what was queued behind it is not done.
"""

from __future__ import annotations

import math
import threading
import weakref
from collections.abc import Callable, Sequence
from queue import SimpleQueue
from typing import Any

import numpy as np

from graphc.ir.device_array import DeviceArray, row_major

Array = np.ndarray[Any, Any]
FIRST = 1 << 44  # no address of a process: reading it as a pointer crashes
APART = 1 << 36  # between two blocks
POISON = 0xA5


class Block:
    """An allocation, as the host knows it."""

    __slots__ = ("__weakref__", "nbytes", "token")

    def __init__(self, token: int, nbytes: int) -> None:
        self.token, self.nbytes = token, nbytes


class Queue:
    """Work for the device, done in order by a thread of its own."""

    def __init__(self) -> None:
        self._work: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="apart", daemon=True)
        self._thread.start()

    @property
    def inside(self) -> bool:
        """Whether the caller is the device."""
        return threading.current_thread() is self._thread

    def put(self, work: Callable[[], None], always: bool = False) -> None:
        """Have something done after all that was put before. Not where that has failed, until the
        host was told, unless `always`."""
        if self.inside:
            work()
        else:
            self._work.put(lambda: work() if always or self._error is None else None)

    def wait(self) -> None:
        """Until all is done. Raises the first error since the last wait."""
        if self.inside:
            return
        done = threading.Event()
        self._work.put(done.set)
        done.wait()
        error, self._error = self._error, None
        if error is not None:
            raise error

    def _run(self) -> None:
        while True:
            work = self._work.get()
            try:
                work()
            except BaseException as error:
                self._error = self._error or error
            del work


class ApartMemory:
    """See ir.memory.Memory."""

    place = "apart:0"

    def __init__(self) -> None:
        self.queue = Queue()
        self._bytes: dict[int, Array] = {}  # the worker's
        self._known: weakref.WeakValueDictionary[int, Block] = weakref.WeakValueDictionary()
        self._made = 0

    def allocate(self, shape: Sequence[int], dtype: np.dtype[Any]) -> DeviceArray:
        if dtype.char in "dD" and len(shape):  # run-time numbers of a program are float64
            raise TypeError(f"the apart device has no {dtype}. Please use float32 instead.")
        if shape and min(shape) < 0:
            raise ValueError(f"negative dimensions are not allowed: {list(shape)}")
        sizes = tuple(shape)
        block = Block(FIRST + self._made * APART, math.prod(sizes) * dtype.itemsize)
        self._made += 1
        token, count = block.token, block.nbytes
        self._known[token] = block

        def begin() -> None:
            # aligned as the host's allocator aligns what native code is given
            room = np.full(count + 64, POISON, np.uint8)
            start = -room.__array_interface__["data"][0] % 64
            self._bytes[token] = room[start : start + count]

        def end() -> None:
            self._bytes.pop(token).fill(0x5A)

        self.queue.put(begin, always=True)
        weakref.finalize(block, self.queue.put, end, always=True)
        return DeviceArray(self, block, 0, sizes, row_major(sizes, dtype.itemsize), dtype)

    def address(self, buffer: DeviceArray) -> int:
        return buffer.block.token + buffer.offset

    def at(self, address: int, shape: Sequence[int], dtype: np.dtype[Any]) -> DeviceArray:
        offset = (address - FIRST) % APART
        block, sizes = self._known[address - offset], tuple(shape)
        return DeviceArray(self, block, offset, sizes, row_major(sizes, dtype.itemsize), dtype)

    def read(self, buffer: DeviceArray) -> Array:
        found: list[Array] = []
        self.queue.put(lambda: found.append(self.numbers(buffer).copy()))
        self.queue.wait()
        found[0].flags.writeable = False
        return found[0]

    def write(self, buffer: DeviceArray, array: Array) -> None:
        kept = np.array(array)  # as it is now
        # what the host knows hangs on nothing that may have failed; constants are written once
        self.queue.put(lambda: np.copyto(self.numbers(buffer), kept), always=True)

    def copy(self, target: DeviceArray, source: DeviceArray) -> None:
        self.queue.put(lambda: np.copyto(self.numbers(target), self.numbers(source)))

    def synchronise(self) -> None:
        self.queue.wait()

    def numbers(self, buffer: DeviceArray) -> Array:
        """What the device's own code sees."""
        assert self.queue.inside, "the host reads the device's memory"
        assert buffer.memory is self
        low, high = buffer.span()
        if low < 0 or high > buffer.block.nbytes or min(buffer.strides, default=0) < 0:
            raise MemoryError(f"{buffer!r} at {low}..{high} of {buffer.block.nbytes} bytes")
        room = self._bytes[buffer.block.token]
        return np.ndarray(buffer.shape, buffer.dtype, room, buffer.offset, buffer.strides) if (
            buffer.size
        ) else np.empty(buffer.shape, buffer.dtype)
