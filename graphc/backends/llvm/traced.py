"""A program a step at a time: what the driver does, with Python between the steps."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from graphc.backends.llvm import driver
from graphc.backends.llvm.allocator import Array
from graphc.backends.llvm.jit import Library
from graphc.ir.dim import Size
from graphc.ir.kernel import Branch, BufferRef, Leaf, Program, ProgramStep, Repeat, leaves

# visit(leaf's number, leaf, fetch): fetch(buffer, dtype, elements) is a view of a buffer's memory.
Fetch = Callable[[BufferRef, "np.dtype[Any]", int], Array]
Visit = Callable[[int, Leaf, Fetch], None]

_RunSteps = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)
_Sizes = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


def run_traced(
    program: Program, library: Library, block: Any, before: Visit, after: Visit
) -> bool:
    """One call on a filled block of words, `before` and `after` around each leaf. False where a
    step failed."""
    try:
        _Traced(program, library, block, before, after).run(program.steps, 0)
    except _FailedError:
        return False
    return True


class _FailedError(Exception):
    """A step stopped the call."""


class _Traced:
    def __init__(
        self, program: Program, library: Library, block: Any, before: Visit, after: Visit
    ) -> None:
        self.library = library
        self.block = block
        self.address = ctypes.addressof(block)
        self.before, self.after = before, after
        self.run_steps = _RunSteps(library.address(driver.RUN_STEPS))
        self.words = driver.Block(program)
        self._sizes(driver.SIZES)

    def run(self, steps: Sequence[ProgramStep], first: int) -> None:
        """Run steps; the first leaf among them has number `first`."""
        for step in steps:
            if isinstance(step, Repeat):
                self._repeat(step, first)
            elif isinstance(step, Branch):
                if self._flag(step.flag):
                    self.run(step.then, first)
                else:
                    self.run(step.otherwise, first + _count(step.then))
            else:
                self._leaf(step, first)
            first += _count((step,))

    def _repeat(self, step: Repeat, first: int) -> None:
        place = self.words.word(step.var)
        self.block[place] = 0
        while True:
            self._sizes(f"{driver.SIZES}_{step.var}")
            self.run(step.test, first)
            if step.flag is not None and not self._flag(step.flag):
                return
            if step.count is not None and self.block[place] >= self._size(step.count):
                return
            self.run(step.steps, first + _count(step.test))
            self.block[place] += 1

    def _leaf(self, step: Leaf, number: int) -> None:
        self.before(number, step, self.fetch)
        if self.run_steps(self.address, number, number + 1):
            raise _FailedError
        self.after(number, step, self.fetch)

    def _sizes(self, symbol: str) -> None:
        _Sizes(self.library.address(symbol))(self.address)

    def _size(self, size: Size) -> int:
        word, constant = self.words.size(size)
        return int(self.block[word]) + constant

    def _flag(self, ref: BufferRef) -> bool:
        return bool(self.fetch(ref, np.dtype(bool), 1)[0])

    def fetch(self, buffer: BufferRef, dtype: np.dtype[Any], elements: int) -> Array:
        """A view of a buffer's memory."""
        first, second, constant = self.words.buffer(buffer)
        address = self.block[first] + self.block[second] + constant
        memory = (ctypes.c_uint8 * (elements * dtype.itemsize)).from_address(address)
        return np.ndarray((elements,), dtype, memoryview(memory))


def _count(steps: Sequence[ProgramStep]) -> int:
    return sum(1 for _ in leaves(steps))
