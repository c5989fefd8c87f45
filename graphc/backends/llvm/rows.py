"""Many calls of one program in one native call: the same kernels, for each row of a table.

A row has what differs from call to call: the addresses of all inputs and outputs, and the dims.
"""

from __future__ import annotations

import ctypes

import numpy as np

from graphc.backends.llvm import words
from graphc.backends.llvm.frame import Frame
from graphc.backends.llvm.library import Library
from graphc.ir.dim import evaluate

ALIGNMENT = 64  # of the arena
_NOTHING = np.empty(0, np.uint8)

_RunRows = ctypes.CFUNCTYPE(
    ctypes.c_int64, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64
)


class Rows:
    """A program's rows, run in their order. `run` may be called from several threads."""

    def __init__(self, frame: Frame, library: Library) -> None:
        """Raises KeyError where the program's code has no such entry."""
        self.words = frame.inputs + frame.outputs + len(frame.dims)
        self._dims, self._arena_bytes = frame.dims, frame.arena
        self._block = ctypes.c_int64 * frame.layout.words
        self._library = library  # keeps the code alive
        self._run = _RunRows(library.address(words.RUN_ROWS))

    def run(self, table: np.ndarray) -> None:
        """A call for each row of a table of i64, [rows, buffers and dims]."""
        if table.dtype != np.int64 or table.shape[1:] != (self.words,) or not (
            table.flags.c_contiguous
        ):
            raise ValueError(f"expected rows of {self.words} words, got {table.shape}")
        block = self._block()
        arena = self._arena(table)
        block[words.ARENA] = -(-arena.ctypes.data // ALIGNMENT) * ALIGNMENT
        failed = self._run(ctypes.addressof(block), table.ctypes.data, table.shape[0])
        if failed:
            raise RuntimeError(f"row {failed - 1} of a table failed")

    def _arena(self, table: np.ndarray) -> np.ndarray:
        """Memory for whichever row needs most."""
        if self._arena_bytes == 0:
            return _NOTHING
        sizes = table[:, self.words - len(self._dims) :]
        most = max([
            evaluate(self._arena_bytes, dict(zip(self._dims, row, strict=True)))
            for row in {tuple(row) for row in sizes.tolist()}
        ], default=0)
        return np.empty(most + ALIGNMENT, np.uint8)
