"""Callback steps: operators that the NumPy backend runs inside the native call."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from graphc.backends.llvm.allocator import Array
from graphc.ir import interpret
from graphc.ir.dim import evaluate
from graphc.ir.kernel import Callback, Program, leaves
from graphc.ir.types import TensorType

_Native = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p)


class Callbacks:
    """The C function that a driver calls for a Callback step, and the exceptions it caught."""

    def __init__(self, program: Program, table: Mapping[str, Callable[..., Any]]) -> None:
        self._names = program.dims
        self._steps = {
            number: step for number, step in enumerate(leaves(program.steps))
            if isinstance(step, Callback)
        }
        self._functions = {
            number: _function(step, table) for number, step in self._steps.items()
        }
        self._failures: dict[int, BaseException] = {}  # by thread: calls may run side by side
        self._native = _Native(self._call) if self._functions else None

    @property
    def address(self) -> int:
        """The function's address, 0 if the program has no Callback."""
        return ctypes.cast(self._native, ctypes.c_void_p).value or 0 if self._native else 0

    def take_failure(self) -> BaseException:
        """What the last failed Callback of this thread raised."""
        return self._failures.pop(threading.get_ident())

    def _call(self, number: int, args: int) -> int:
        try:
            self._run(number, args)
        except BaseException as error:
            self._failures[threading.get_ident()] = error
            return 1
        return 0

    def _run(self, number: int, args: int) -> None:
        """Inputs, outputs and dims lie in `args`, in this order."""
        step, names = self._steps[number], self._names
        count = len(step.inputs) + len(step.outputs)
        words = (ctypes.c_int64 * (count + len(names))).from_address(args)
        dims = dict(zip(names, words[count:], strict=True))
        types = [*step.input_types, *step.output_types]
        arrays = [_view(at, type_, dims) for at, type_ in zip(words[:count], types, strict=True)]
        inputs, outputs = arrays[: len(step.inputs)], arrays[len(step.inputs) :]
        for array in inputs:
            array.flags.writeable = False
        attrs = interpret.resolve_attrs(dict(step.attrs), dims)
        result = self._functions[number](inputs, attrs, dims)
        results = result if isinstance(result, tuple | list) else (result,)
        for output, value in zip(outputs, results, strict=True):
            output[...] = value


def _function(step: Callback, table: Mapping[str, Callable[..., Any]]) -> Callable[..., Any]:
    """function(inputs, attributes, dims) of a step."""
    found = table.get(step.op)
    if found is None:
        raise NotImplementedError(
            f"operator {step.op!r} has neither native code nor an entry in the callback table"
            + (f" ({', '.join(step.locs)})" if step.locs else "")
        )
    return lambda arrays, attrs, dims: found(*arrays, **attrs)


def _view(address: int, type_: object, dims: Mapping[str, int]) -> Array:
    """An array over native memory, valid during the call."""
    assert isinstance(type_, TensorType)
    shape = tuple(evaluate(size, dims) for size in type_.shape)
    dtype = type_.dtype.numpy
    size = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
    return np.ndarray(shape, dtype, memoryview((ctypes.c_uint8 * size).from_address(address)))
