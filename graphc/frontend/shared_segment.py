"""Memory that processes share: anonymous files mapped by each of them.

Nothing has a name in the file system: the system frees a segment when the last process has
unmapped and closed it, however the processes end.
"""

from __future__ import annotations

import ctypes
import functools
import mmap
import os
import sys
import threading
import weakref
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import numpy as np

if not hasattr(os, "memfd_create"):
    import tempfile

AVAILABLE = sys.platform != "win32"  # descriptors must pass between processes
ALIGNMENT = 64  # bytes: a cache line, and the widest vector
_CHUNK, _SMALL = 1 << 20, 1 << 17  # bytes; small tensors share a chunk, and its descriptor
_POPULATE = int(getattr(mmap, "MAP_POPULATE", 0))


class _Mapping:
    """Mapped memory as NumPy sees it; unmapped with the last array on it.

    Not mmap.mmap, which keeps a descriptor of its own for each mapping.
    """

    def __init__(self, library: Any, start: int, size: int) -> None:
        self._unmap, self._start, self._size = library.munmap, start, size
        self.__array_interface__ = {
            "data": (start, False), "shape": (size,), "typestr": "|u1", "version": 3,
        }

    def __del__(self) -> None:
        self._unmap(self._start, self._size)


@functools.cache
def _library() -> Any:
    found = ctypes.CDLL(None, use_errno=True)
    found.mmap.restype = ctypes.c_void_p
    found.mmap.argtypes = [
        ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long,
    ]
    found.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
    return found


def map_file(descriptor: int, size: int, populate: bool = False) -> np.ndarray:
    """The first `size` > 0 bytes of a file, shared. `populate`: they will all be read at once.

    Raises OSError, and ValueError for a file that is shorter (reading on would crash).
    """
    if os.fstat(descriptor).st_size < size:
        raise ValueError(f"shared memory of {size} bytes expected in a smaller file")
    library = _library()
    flags = mmap.MAP_SHARED | (_POPULATE if populate else 0)
    start = library.mmap(None, size, mmap.PROT_READ | mmap.PROT_WRITE, flags, descriptor, 0)
    if start is None or start == ctypes.c_void_p(-1).value:
        error = ctypes.get_errno()
        raise OSError(error, f"cannot map {size} bytes of shared memory: {os.strerror(error)}")
    return np.asarray(_Mapping(library, start, size))


def anonymous_file(size: int) -> int:
    """The descriptor of a new file of zeros without a name."""
    if hasattr(os, "memfd_create"):
        descriptor = os.memfd_create("graphc")
    else:
        with tempfile.TemporaryFile() as file:
            descriptor = os.dup(file.fileno())
    try:
        os.ftruncate(descriptor, size)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def file_of(data: memoryview) -> int:
    """The descriptor of a new anonymous file of these bytes (written without mapping them)."""
    descriptor = anonymous_file(len(data))
    try:
        done = 0
        while done < len(data):
            done += os.pwrite(descriptor, data[done:], done)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


class SharedMemory:
    """Shared memory and the descriptor by which another process can map it.

    `storages`: who stands for the memory at a place, so that what comes in twice is one memory.
    """

    __slots__ = ("__weakref__", "buffer", "fd", "size", "storages")

    def __init__(self, fd: int, size: int) -> None:
        self.fd, self.size = fd, size
        self.storages: weakref.WeakValueDictionary[tuple[int, int], Any] = (
            weakref.WeakValueDictionary()
        )
        self.buffer = map_file(fd, size)
        _open[_identity(fd)] = self

    def __del__(self) -> None:
        with suppress(OSError):
            os.close(self.fd)

    def array(self, start: int, like: np.ndarray) -> np.ndarray:
        """An array of the shape, strides and dtype of `like` whose first element is there."""
        found: np.ndarray = np.ndarray(
            like.shape, like.dtype, self.buffer, start, like.strides
        )
        return found


def _identity(fd: int) -> tuple[int, int]:
    """Tells open files apart."""
    status = os.fstat(fd)
    return status.st_dev, status.st_ino


_open: weakref.WeakValueDictionary[tuple[int, int], SharedMemory] = weakref.WeakValueDictionary()
lock = threading.RLock()
_chunk: tuple[SharedMemory, int] | None = None  # where small storages go, and bytes in use


def attach(fd: int, size: int) -> SharedMemory:
    """The segment of a descriptor from another process, which this takes over."""
    with lock:
        known = _open.get(_identity(fd))
        if known is None:
            return SharedMemory(fd, size)
    os.close(fd)
    return known


def reserve(sizes: Sequence[int]) -> list[tuple[SharedMemory, int]]:
    """New memory for so many bytes each: a segment and a start. The caller holds `lock`."""
    global _chunk
    steps = [-(-size // ALIGNMENT) * ALIGNMENT for size in sizes]
    total = max(sum(steps), ALIGNMENT)
    if total >= _SMALL:
        segment, at = SharedMemory(anonymous_file(total), total), 0
    else:
        if _chunk is None or _chunk[1] + total > _CHUNK:
            _chunk = SharedMemory(anonymous_file(_CHUNK), _CHUNK), 0
        segment, at = _chunk
        _chunk = segment, at + total
    places = []
    for step in steps:
        places.append((segment, at))
        at += step
    return places


def _after_fork() -> None:
    """The parent goes on filling its chunk: a child begins its own."""
    global lock, _chunk
    lock, _chunk = threading.RLock(), None


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
