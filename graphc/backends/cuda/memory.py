"""A GPU's Memory: buffers are DeviceArrays over an allocator's blocks, and what is asked for goes
to the calling thread's current stream."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from graphc.backends.cuda import copies
from graphc.backends.cuda.code import Code
from graphc.backends.cuda.device import Device
from graphc.backends.cuda.driver import Function, Stream
from graphc.backends.cuda.status import Status
from graphc.ir.device_array import DeviceArray, row_major
from graphc.ir.memory_protocol import Array


class At:
    """Memory that another block keeps."""

    __slots__ = ("address",)

    def __init__(self, address: int) -> None:
        self.address = address


class CudaMemory:
    """See ir.memory.Memory. What a Check named is raised where the host waits."""

    def __init__(self, device: Device, code: Code) -> None:
        self.device, self.driver, self._code = device, device.driver, code
        self.place = f"cuda:{device.index}"
        self.status = Status(device.driver, device.current_stream())

    def allocate(self, shape: Sequence[int], dtype: np.dtype[Any]) -> DeviceArray:
        """An uninitialised buffer."""
        sizes = tuple(shape)
        if sizes and min(sizes) < 0:
            raise ValueError(f"negative dimensions are not allowed: {list(shape)}")
        stream = self.device.current_stream()
        block = self.device.allocate(math.prod(sizes) * dtype.itemsize, stream)
        return DeviceArray(self, block, 0, sizes, row_major(sizes, dtype.itemsize), dtype)

    def address(self, buffer: DeviceArray) -> int:
        """Where it lies on the device."""
        address: int = buffer.block.address + buffer.offset
        return address

    def at(self, address: int, shape: Sequence[int], dtype: np.dtype[Any]) -> DeviceArray:
        """Without keeping the buffer in which that is."""
        sizes = tuple(shape)
        return DeviceArray(self, At(address), 0, sizes, row_major(sizes, dtype.itemsize), dtype)

    def read(self, buffer: DeviceArray) -> Array:
        """A copy of the elements."""
        stream = self.device.current_stream()
        found: Array = np.empty(buffer.shape, buffer.dtype)
        if found.nbytes:
            dense = buffer if buffer.flags.c_contiguous else buffer.copy()
            self.driver.copy_out(found.ctypes.data, self.address(dense), found.nbytes, stream)
        else:
            self.driver.wait_for_stream(stream)
        self.status.look()
        found.flags.writeable = False
        return found

    def write(self, buffer: DeviceArray, array: Array) -> None:
        """Also where something has failed: what the host knows hangs on nothing that may."""
        stream = self.device.current_stream()
        values = np.asarray(array, buffer.dtype, order="C")
        if not buffer.size:
            np.broadcast_to(values, buffer.shape)  # raises where that does not go
        elif values.shape == buffer.shape and buffer.flags.c_contiguous:
            self._send(self.address(buffer), values, stream)
        elif values.size == 1 and buffer.itemsize <= 4 and buffer.flags.c_contiguous:
            value = int.from_bytes(values.tobytes(), "little")
            self.driver.fill(
                self.address(buffer), value, buffer.itemsize, buffer.size, stream
            )
        else:
            held = self.allocate(values.shape, buffer.dtype)
            self._send(self.address(held), values, stream)
            self._launch(buffer, held, self.status.never, stream)

    def _send(self, to: int, values: Array, stream: Stream) -> None:
        source = values.ctypes.data
        self.driver.copy_in(to, source, values.nbytes, stream)
        self.device.sent(source, stream)

    def copy(self, target: DeviceArray, source: DeviceArray) -> None:
        """Not where something has failed."""
        if target.meets(source):
            source = source.copy()
        self._launch(target, source, self.status.device, self.device.current_stream())

    def look(self) -> None:
        """Waits for the current stream and raises what failed, where anything may have."""
        if self.status.watched:
            self.driver.wait_for_stream(self.device.current_stream())
            self.status.look()

    def synchronise(self) -> None:
        """Waits for all streams."""
        self.device.current_stream()  # the context
        self.driver.synchronise()
        self.status.look()

    # --- copies within the device -------------------------------------------------------------

    @functools.cached_property
    def _copies(self) -> tuple[Function, ...]:
        (loaded,) = self._code.load([copies.source()])
        return loaded.functions

    def _launch(
        self, target: DeviceArray, source: DeviceArray, status: int, stream: Stream
    ) -> None:
        if not target.size:
            return
        new = target.ndim - source.ndim
        if new < 0 or any(
            n not in (1, size) for n, size in zip(source.shape, target.shape[new:], strict=True)
        ):
            raise ValueError(f"{source.shape} does not broadcast to {target.shape}")
        strides = [0] * new + [
            0 if size == 1 else step
            for size, step in zip(source.shape, source.strides, strict=True)
        ]
        self._walk(
            self.address(target), self.address(source), target.shape, target.itemsize,
            target.strides, strides, status, stream,
        )

    def _walk(
        self, to: int, source: int, shape: Sequence[int], itemsize: int,
        to_strides: Sequence[int], strides: Sequence[int], status: int, stream: Stream,
    ) -> None:
        walk = copies.walk(to, source, shape, itemsize, to_strides, strides)
        if len(walk.shape) > copies.RANK:
            for position in range(shape[0]):
                self._walk(
                    to + position * to_strides[0], source + position * strides[0], shape[1:],
                    itemsize, to_strides[1:], strides[1:], status, stream,
                )
            return
        function = self._copies[copies.number(walk.width, math.prod(walk.shape))]
        self.driver.launch(
            self.driver.prepare(
                function, (walk.blocks, 1, 1), (copies.THREADS, 1, 1),
                walk.arguments(to, source, status),
            ),
            stream,
        )

