"""NumPy's inner loops: what a ufunc runs over a stretch of memory, as native code may call it.

A loop is `void (char **operands, const intptr_t *count, const intptr_t *strides, void *data)`
(NumPy's documentation, "C API: ufuncs"). Where a ufunc keeps its loops is looked up in its object,
and what is found is held against what NumPy says of it in Python.
"""

from __future__ import annotations

import ctypes

import numpy as np

from .layouts import layout, word

# of a ufunc's object: counts of inputs, outputs and both; loops, their data, how many there are,
# the name, and the types of each loop's operands
_INPUTS, _OUTPUTS, _OPERANDS, _LOOPS, _DATA, _COUNT, _NAME, _TYPES = 16, 20, 24, 32, 40, 48, 56, 64


def loop_of(ufunc: np.ufunc, dtype: np.dtype) -> tuple[int, int] | None:
    """(code, data) of the loop for operands of one dtype; None: not where it is expected."""
    if type(ufunc) is not np.ufunc:
        return None
    return loop_for(ufunc, "->".join((dtype.char * ufunc.nin, dtype.char * ufunc.nout)))


def loop_for(ufunc: np.ufunc, wanted: str) -> tuple[int, int] | None:
    """The same of operands and results of these dtypes: "dd->?", as `ufunc.types` has them."""
    if layout() is None or type(ufunc) is not np.ufunc:
        return None
    place, count, operands = id(ufunc), _int(ufunc, _COUNT), _int(ufunc, _OPERANDS)
    said = (ufunc.nin, ufunc.nout, ufunc.nargs, ufunc.ntypes)
    if (_int(ufunc, _INPUTS), _int(ufunc, _OUTPUTS), operands, count) != said:
        return None
    if ctypes.string_at(word(place + _NAME)) != ufunc.__name__.encode():
        return None
    if wanted not in ufunc.types:
        return None
    at = ufunc.types.index(wanted)  # where there are two, NumPy takes the first
    kinds = ctypes.string_at(word(place + _TYPES), count * operands)
    numbers = [np.dtype(char).num for char in wanted.replace("->", "")]
    if kinds[at * operands : (at + 1) * operands] != bytes(numbers):
        return None
    code = word(word(place + _LOOPS) + 8 * at)
    return (code, word(word(place + _DATA) + 8 * at)) if code else None


def _int(ufunc: np.ufunc, offset: int) -> int:
    return ctypes.c_int32.from_address(id(ufunc) + offset).value
