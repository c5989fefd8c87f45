"""GRAPHC_CHECK=2, last part: every native step against the interpreter, on the same memory.

Step by step, so that rounding does not add up through a deep network, and the kernel is named.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from graphc.backends import Executable
from graphc.inspect.value_check import TOLERANCE, ValueChangedError, difference, rounding
from graphc.ir.dim import evaluate
from graphc.ir.dtypes import DType
from graphc.ir.interpret import Table
from graphc.ir.kernel import Launch, Leaf, Program, Routine
from graphc.ir.kernel.interpret import run_kernel
from graphc.ir.kernel.text import print_kernel
from graphc.ir.memory import Buffer, Memory

Array = np.ndarray[Any, Any]


def check_native(
    program: Program, executable: Executable, memory: Memory, inputs: Sequence[Array],
    outputs: Sequence[Array], table: Table, dims: Mapping[str, int],
) -> None:
    """Run `executable` once, a step at a time, on copies of the arrays in its backend's memory.
    Raises ValueChangedError naming a wrong kernel."""
    check = _NativeCheck(table, dims)
    values = [dims[name] for name in program.dims]
    placed = {id(array): _place(memory, array) for array in (*inputs, *outputs)}
    executable.trace(
        [placed[id(a)] for a in inputs], [placed[id(a)] for a in outputs], check.before,
        check.after, values,
    )


def _place(memory: Memory, array: Array) -> Buffer:
    buffer = memory.allocate(array.shape, array.dtype)
    memory.write(buffer, array)
    return buffer


class _NativeCheck:
    def __init__(self, table: Table, dims: Mapping[str, int]) -> None:
        self.table = table
        self.dims = dims
        self.expected: list[Array] = []
        self.read: list[Array] = []  # what the step reads

    def _elements(self, step: Launch) -> tuple[list[int], list[int]]:
        """Elements of each parameter, and the values of the kernel's dims."""
        values = [evaluate(size, self.dims) for size in step.dims]
        env = dict(zip(step.kernel.dims, values, strict=True))
        return [evaluate(param.size, env) for param in step.kernel.params], values

    def before(self, number: int, step: Leaf, fetch: Any) -> None:
        """Interpret a step on a copy of the memory before it."""
        self.expected = []
        if isinstance(step, Routine):
            return
        elements, values = self._elements(step)
        self.expected = [
            fetch(ref, param.dtype.numpy, count).copy()
            for ref, param, count in zip(step.buffers, step.kernel.params, elements, strict=True)
        ]
        self.read = [
            array.copy() for array, param in zip(self.expected, step.kernel.params, strict=True)
            if param.access in ("in", "inout")
        ]
        run_kernel(step.kernel, self.expected, values, self.table)

    def after(self, number: int, step: Leaf, fetch: Any) -> None:
        """Compare what native code left."""
        if isinstance(step, Launch):
            params = zip(step.buffers, step.kernel.params, self.expected, strict=True)
            for ref, param, want in params:
                if param.access not in ("out", "inout"):
                    continue
                found = fetch(ref, param.dtype.numpy, want.size)
                tolerance = TOLERANCE.get(param.dtype.name, 0.0)
                floor = _floor(param.dtype, self.read, want.size)
                fault = difference(found, want, tolerance, floor)
                if fault:
                    where = ", ".join(step.locs[:3])
                    error = ValueChangedError(
                        f"native code of kernel {step.kernel.name} (step {number}, {where}) is "
                        f"wrong in {param.name}: {fault}\n{print_kernel(step.kernel)}"
                    )
                    error.kernel, error.locs = step.kernel.name, tuple(step.locs)
                    raise error


def _floor(dtype: DType, read: list[Array], results: int) -> float:
    """What may be left of a result that should be zero: of a sum, some of each number."""
    if not dtype.is_float:
        return 0.0
    summed = max([array.size for array in read], default=0) / max(results, 1)
    return rounding(read, dtype) * max(1.0, math.sqrt(summed) / 4)
