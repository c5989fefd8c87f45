"""Routine steps: operators that the host runs inside the native call."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from graphc.ir.dim import evaluate
from graphc.ir.interpret import Table
from graphc.ir.kernel import Program, Routine, leaves
from graphc.ir.kernel.routine import HostRoutine
from graphc.ir.memory import Buffer, Memory
from graphc.ir.types import TensorType

_Native = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p)


class Callbacks:
    """The C function that a driver calls for a Routine step, and the exceptions it caught."""

    def __init__(self, program: Program, table: Table, memory: Memory) -> None:
        self._names, self._memory = program.dims, memory
        self._steps = {
            number: step for number, step in enumerate(leaves(program.steps))
            if isinstance(step, Routine) and not step.claimed
        }
        self._routines = {
            number: HostRoutine(step, table) for number, step in self._steps.items()
        }
        # of steps of known sizes: the words of their buffers' addresses, shapes and dtypes
        self._known = {
            number: (ctypes.c_int64 * len(types), types) for number, step in self._steps.items()
            if (types := _of_known_sizes((*step.input_types, *step.output_types))) is not None
        }
        self._failures: dict[int, BaseException] = {}  # by thread: calls may run side by side
        self._native = _Native(self._call) if self._routines else None

    @property
    def address(self) -> int:
        """The function's address, 0 if the program has no Routine."""
        return ctypes.cast(self._native, ctypes.c_void_p).value or 0 if self._native else 0

    def take_failure(self) -> BaseException:
        """What the last failed Routine of this thread raised."""
        return self._failures.pop(threading.get_ident())

    def _call(self, number: int, args: int) -> int:
        try:
            self._run(number, args)
        except BaseException as error:
            self._failures[threading.get_ident()] = error
            return 1
        return 0

    def _run(self, number: int, args: int) -> None:
        """Addresses of inputs and outputs, and the dims, lie in `args`, in this order."""
        step, names = self._steps[number], self._names
        known = self._known.get(number)
        if known is not None:
            kind, types = known
            buffers = [
                self._memory.at(at, shape, dtype)
                for at, (shape, dtype) in zip(kind.from_address(args), types, strict=True)
            ]
            first = len(step.inputs)
            self._routines[number].run(self._memory, buffers[:first], buffers[first:], {})
            return
        first, count = len(step.inputs), len(step.inputs) + len(step.outputs)
        words = (ctypes.c_int64 * (count + len(names))).from_address(args)
        dims = dict(zip(names, words[count:], strict=True))
        every = (*step.input_types, *step.output_types)
        buffers = [self._buffer(at, t, dims) for at, t in zip(words[:count], every, strict=True)]
        self._routines[number].run(self._memory, buffers[:first], buffers[first:], dims)

    def _buffer(self, address: int, type_: object, dims: Mapping[str, int]) -> Buffer:
        """What lies at an address during the call."""
        assert isinstance(type_, TensorType)
        shape = tuple(evaluate(size, dims) for size in type_.shape)
        return self._memory.at(address, shape, type_.dtype.numpy)


def _of_known_sizes(
    types: Sequence[object],
) -> list[tuple[tuple[int, ...], np.dtype[Any]]] | None:
    """Shapes and dtypes; None where a size is symbolic."""
    found: list[tuple[tuple[int, ...], np.dtype[Any]]] = []
    for type_ in types:
        assert isinstance(type_, TensorType)
        shape = tuple([size for size in type_.shape if isinstance(size, int)])
        if len(shape) < len(type_.shape):
            return None
        found.append((shape, type_.dtype.numpy))
    return found
