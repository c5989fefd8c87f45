"""CuPy, found once, and our memory as its arrays: what it computes goes to our stream, and what it
needs meanwhile comes from our allocator, so that there is one count and one cache of memory."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any, NamedTuple

from graphc.backends.cuda.device import Device
from graphc.backends.cuda.driver import Stream
from graphc.ir.device_array import DeviceArray


class CuPy(NamedTuple):
    """Its modules. docs.cupy.dev/en/stable/reference"""

    cupy: ModuleType
    cupyx: ModuleType
    scipy_linalg: ModuleType


def found() -> CuPy | None:
    """None: it is not installed, or does not import. The latter is said."""
    try:
        import cupy
        import cupyx
        import cupyx.scipy.linalg
    except Exception as broken:  # one made for another NumPy raises all kinds
        if not (isinstance(broken, ModuleNotFoundError) and broken.name == "cupy"):
            warnings.warn(
                f"CuPy does not import, NumPy computes on the host instead: {broken}. Cure: pip "
                "install --upgrade cupy-cuda12x, or 13x, as the driver is; not both",
                RuntimeWarning, stacklevel=2,
            )
        return None
    return CuPy(cupy, cupyx, cupyx.scipy.linalg)


class _Thread(threading.local):
    """Where the running thread's work went last."""

    stream: Stream | None = None


class _Ours:
    """A stream, as libraries ask each other for one.
    nvidia.github.io/cuda-python/cuda-core/latest/interoperability.html, "CUDA stream protocol"
    """

    def __init__(self, stream: Stream) -> None:
        self._stream = stream

    def __cuda_stream__(self) -> tuple[int, int]:
        return 0, self._stream


def _entered(cuda: ModuleType, stream: Stream, index: int) -> Any:
    """A stream as a context in which CuPy's calls go to it. What CuPy has had for that since 14.0
    is no longer what it had until then, which warns."""
    if hasattr(cuda.Stream, "from_external"):
        return cuda.Stream.from_external(_Ours(stream))
    return cuda.ExternalStream(stream, index)


class Session:
    """One device's use of it. CuPy's handles and plans are a thread's, and have scratch of their
    own: work on one stream is over before any is begun on another."""

    def __init__(self, library: CuPy, device: Device) -> None:
        self.library, self._device = library, device
        self._thread = _Thread()

    @contextmanager
    def begun(self) -> Iterator[None]:
        """Calls go to the thread's current stream, and allocate there."""
        cuda, device = self.library.cupy.cuda, self._device
        stream = device.current_stream()

        def allocate(size: int) -> Any:
            block = device.allocate(max(size, 1), stream)
            return self._pointer(block.address, block.size, block)

        try:
            with (
                cuda.Device(device.index), _entered(cuda, stream, device.index),
                cuda.using_allocator(allocate),
            ):
                last, self._thread.stream = self._thread.stream, stream
                if last is not None and last != stream:
                    device.driver.wait_for_stream(last)
                    self.library.cupy.fft.config.clear_plan_cache()  # its scratch is the last one's
                yield
        finally:
            device.reactivate()  # CuPy goes back to the device that was current for it

    def array(self, address: int, buffer: DeviceArray) -> Any:
        """A contiguous buffer, without a copy."""
        memory = self._pointer(address, max(buffer.nbytes, 1), buffer)
        return self.library.cupy.ndarray(buffer.shape, buffer.dtype, memory)

    def _pointer(self, address: int, size: int, owner: object) -> Any:
        cuda = self.library.cupy.cuda
        memory = cuda.UnownedMemory(address, size, owner, self._device.index)
        return cuda.MemoryPointer(memory, 0)
