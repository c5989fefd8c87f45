"""Many calls of one program in one native call: the same kernels, for each row of a table.

A row has what differs from call to call: the addresses of all inputs and outputs, and the dims.
"""

from __future__ import annotations

import ctypes

import numpy as np

from graphc.backends.llvm import words
from graphc.backends.llvm.cache import ObjectCache
from graphc.backends.llvm.frame import Frame
from graphc.backends.llvm.library import Library
from graphc.backends.llvm.target import Target
from graphc.backends.llvm.text import Module
from graphc.ir.dim import evaluate
from graphc.ir.kernel import Launch, Program

RUN_ROWS = "graphc_run_rows"
ALIGNMENT = 64  # of the arena
_NOTHING = np.empty(0, np.uint8)

_RunRows = ctypes.CFUNCTYPE(
    ctypes.c_int64, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64
)


def by_rows(program: Program) -> bool:
    """Whether a program can be run so: kernels alone, of no template."""
    return not program.constants and all(
        isinstance(step, Launch) and step.kernel.template is None for step in program.steps
    )


class Rows:
    """A program's rows, run in their order. `run` may be called from several threads."""

    def __init__(
        self, frame: Frame, program: Library, target: Target, cache: ObjectCache
    ) -> None:
        buffers = frame.inputs + frame.outputs
        self.words = buffers + len(frame.dims)
        self._dims, self._arena_bytes = frame.dims, frame.arena
        self._block = ctypes.c_int64 * frame.layout.words
        self._code = program  # keeps it alive
        self._program = program.address(words.RUN)
        text = emit_rows(buffers, len(frame.dims), frame.layout.dims)
        self._library = Library([cache.compile(text, target, opt_level=0)])
        self._run = _RunRows(self._library.address(RUN_ROWS))

    def run(self, table: np.ndarray) -> None:
        """A call for each row of a table of i64, [rows, buffers and dims]."""
        if table.dtype != np.int64 or table.shape[1:] != (self.words,) or not (
            table.flags.c_contiguous
        ):
            raise ValueError(f"expected rows of {self.words} words, got {table.shape}")
        block = self._block()
        arena = self._arena(table)
        block[words.ARENA] = -(-arena.ctypes.data // ALIGNMENT) * ALIGNMENT
        failed = self._run(
            self._program, ctypes.addressof(block), table.ctypes.data, table.shape[0]
        )
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


def emit_rows(buffers: int, dims: int, dims_at: int) -> str:
    """i64 @graphc_run_rows(ptr program, ptr block, ptr table, i64 rows): copies each row into the
    block and calls the program. The result is 0, or the number of the row that failed plus one."""
    module = Module()
    f = module.function(f"i64 @{RUN_ROWS}(ptr %program, ptr %block, ptr %table, i64 %rows)")
    failed = f.label("failed")
    loop = f.carry_loop(0, "%rows", 1, [])
    row = f.gep("%table", f.mul(loop.index, buffers + dims), "i64")
    places = [words.FIRST_BUFFER + i for i in range(buffers)] + [dims_at + i for i in range(dims)]
    for word, place in enumerate(places):
        value = f.load(f.gep(row, word, "i64"), "i64", 8)
        f.store(value, "i64", f.gep("%block", place, "i64"), 8)
    answer = f.let("call i64 %program(ptr %block)")
    done = f.label("done")
    f.cond_br(f.cmp("ne", answer, 0), failed, done)
    f.block(done)
    loop.close()
    f.ret("i64 0")
    f.block(failed)
    f.ret(f"i64 {f.add(loop.index, 1)}")
    return module.text()
