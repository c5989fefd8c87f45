"""A program a step at a time: what the driver does, with Python between the steps."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

from graphc.backends.llvm import driver, words
from graphc.backends.llvm.library import Library
from graphc.ir.kernel import BufferRef, Leaf, Program, run_steps
from graphc.ir.kernel.program import Visit
from graphc.ir.memory import Array, Memory

_RunSteps = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)
_Sizes = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


def run_traced(
    program: Program, library: Library, memory: Memory, block: Any, before: Visit, after: Visit
) -> bool:
    """One call on a filled block of words, `before` and `after` around each leaf. False where a
    step failed."""
    places = driver.Block(program)
    address = ctypes.addressof(block)
    run = _RunSteps(library.address(words.RUN_STEPS))
    env = {name: int(block[places.word(name)]) for name in program.dims}

    def fetch(buffer: BufferRef, dtype: np.dtype[Any], elements: int) -> Array:
        first, second, constant = places.buffer(buffer)
        found: Array = memory.at(block[first] + block[second] + constant, (elements,), dtype)
        return found

    def leaf(number: int, step: Leaf) -> None:
        before(number, step, fetch)
        if run(address, number, number + 1):
            raise _FailedError
        after(number, step, fetch)

    def moved(name: str) -> None:
        block[places.word(name)] = env[name]
        _Sizes(library.address(f"{words.SIZES}_{name}"))(address)

    _Sizes(library.address(words.SIZES))(address)
    try:
        run_steps(
            program.steps, env, lambda ref: bool(fetch(ref, np.dtype(bool), 1)[0]), leaf, moved
        )
    except _FailedError:
        return False
    return True


class _FailedError(Exception):
    """A step stopped the call."""
