"""Native code that is called with arrays, by native code that finds their memory itself."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any, cast

import numpy as np

from .. import backends
from ..backends.host.entry import Code, Conditions, Entry
from ..frontend.storage import Storage
from ..frontend.tensor import Parameter, Tensor
from ..ir.types import TensorType

SMALL = 1 << 16  # bytes: such memory NumPy and malloc keep at hand themselves
_FIRST = 3  # calls before it is looked for: it is linked in each process


@functools.cache
def native_code() -> Code | None:
    """What asks and runs for Python; None: not on this Python."""
    try:
        return Code(cast(Any, backends.get("llvm")).link, (Tensor, Parameter), Storage)
    except ValueError:
        return None


def can_be_borrowed(executable: Any) -> bool:
    """Whether it hands out what a call needs, to be filled in by others."""
    return "borrow" in vars(type(executable))


class Runner:
    """Calls of one executable on the CPU whose memory is of the usual kind."""

    def __init__(self, executable: Any, buffers: int, code: Code) -> None:
        """`buffers`: its inputs and outputs."""
        self._executable, self._buffers = executable, buffers
        self._entry = Entry(  # its functions do not keep it alive
            code, Conditions(), 0, 0, executable.first_input, executable.first_held, False,
            buffers, {}, executable.code, executable.releases,
        )
        self._run = self._entry.run

    def __call__(self, arrays: Sequence[np.ndarray], sizes: tuple[int, ...]) -> None:
        """Run on row-major arrays, the inputs' and the outputs'. Raises what the code refuses."""
        if len(arrays) != self._buffers:  # native code would take them for others
            raise ValueError(f"expected {self._buffers} arrays, got {len(arrays)}")
        executable = self._executable
        lease = executable.borrow(sizes)
        try:
            if self._run(lease.address, *arrays):
                raise executable.failure(lease)
        finally:
            executable.give_back(lease)


class Calls:
    """How a compiled graph's code is called, by its number of calls: see Runner."""

    def __init__(self, built: Any, outputs: int) -> None:
        self._built, self._outputs = built, outputs
        self._left = _FIRST
        self._runner: Runner | None = None

    def runner(self, inputs: int) -> Runner | None:
        """For so many inputs; None: not yet, or never."""
        if self._left > 0:
            self._left -= 1
            executable = getattr(self._built, "executable", None)
            if self._left == 0 and can_be_borrowed(executable):
                code = native_code()
                if code is not None:
                    self._runner = Runner(executable, inputs + self._outputs, code)
        return self._runner


def memory_for(types: Sequence[TensorType]) -> list[tuple[tuple[int, ...], bool]] | None:
    """(shape, whether it is small) of each; None where a size is symbolic."""
    found: list[tuple[tuple[int, ...], bool]] = []
    for type_ in types:
        if not all(isinstance(size, int) for size in type_.shape):
            return None
        shape: Any = type_.shape
        found.append((shape, is_small(shape, type_)))
    return found


def is_small(shape: Sequence[int], type_: TensorType) -> bool:
    """Whether NumPy keeps such memory at hand itself; `shape`: the type's, or one for it."""
    return math.prod(shape) * type_.dtype.numpy.itemsize <= SMALL
