"""Batches from a worker to the main process: large arrays in shared memory, the rest by the pipe.

A message is the sizes of the large arrays, their file descriptors, and the pickled rest. Each
array has a file of its own without a name: what is left of a batch keeps nothing else alive, and
what nobody receives is freed by the system.
"""

from __future__ import annotations

import io
import os
import pickle
import socket
from contextlib import suppress
from multiprocessing import reduction
from multiprocessing.connection import Connection
from typing import Any

import numpy as np

from ...frontend.shared_segment import AVAILABLE, file_of, map_file
from ...frontend.storage import Storage

_LARGE = 1 << 17  # bytes: smaller arrays pass faster through the pipe
_AT_ONCE = 64  # descriptors in one message; Linux takes 253
_MOST = 256  # arrays of a batch that get memory of their own; the rest takes the pipe


def _storage(data: np.ndarray, dtype: np.dtype) -> Storage:
    return Storage(data.view(dtype))


class _Pickler(pickle.Pickler):
    """Leaves large arrays out of the pickle."""

    def __init__(self, file: io.BytesIO) -> None:
        self.buffers: list[pickle.PickleBuffer] = []
        super().__init__(file, 5, buffer_callback=self._out_of_band if AVAILABLE else None)

    def _out_of_band(self, buffer: pickle.PickleBuffer) -> bool:
        """False: the buffer is left out."""
        with buffer.raw() as data:
            if len(data) < _LARGE or data.readonly or len(self.buffers) == _MOST:
                return True
        self.buffers.append(buffer)
        return False

    def reducer_override(self, value: Any) -> Any:
        """Storages without a copy, and as bytes: not all dtypes are known to buffers."""
        if type(value) is Storage and value.root is value:
            flat = value.flat()
            if flat.nbytes and flat.flags.writeable and flat.flags.c_contiguous:
                return _storage, (flat.view(np.uint8), flat.dtype)
        return NotImplemented


def send(connection: Connection, value: Any) -> None:
    """Send any value that can be pickled; what pickling raises comes before anything is sent."""
    file = io.BytesIO()
    pickler = _Pickler(file)
    pickler.dump(value)
    descriptors: list[int] = []
    try:
        try:
            for buffer in pickler.buffers:
                with buffer.raw() as data:
                    descriptors.append(file_of(data))
        except OSError:  # no descriptors or no memory for files are left
            _close(descriptors)
            pickler.buffers.clear()
            file = io.BytesIO(pickle.dumps(value, protocol=5))
        sizes = [buffer.raw().nbytes for buffer in pickler.buffers]
        connection.send_bytes(np.array(sizes, np.int64).tobytes())
        if descriptors:
            with socket.fromfd(connection.fileno(), socket.AF_UNIX, socket.SOCK_STREAM) as channel:
                for at in range(0, len(descriptors), _AT_ONCE):
                    reduction.sendfds(channel, descriptors[at : at + _AT_ONCE])
        connection.send_bytes(file.getbuffer())
    finally:
        _close(descriptors)


def receive(connection: Connection) -> Any:
    """The next value. Raises EOFError or OSError where the other end is gone."""
    sizes = np.frombuffer(connection.recv_bytes(), np.int64).tolist()
    descriptors: list[int] = []
    try:
        if sizes:
            with socket.fromfd(connection.fileno(), socket.AF_UNIX, socket.SOCK_STREAM) as channel:
                for at in range(0, len(sizes), _AT_ONCE):
                    count = min(_AT_ONCE, len(sizes) - at)
                    descriptors += reduction.recvfds(channel, count)
        buffers = [
            map_file(fd, size, populate=True).data
            for fd, size in zip(descriptors, sizes, strict=True)
        ]
    finally:
        _close(descriptors)
    return pickle.loads(connection.recv_bytes(), buffers=buffers)


def _close(descriptors: list[int]) -> None:
    while descriptors:
        with suppress(OSError):
            os.close(descriptors.pop())
