"""The NumPy backend's table: every operator as a function of arrays, and the eager runner."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from graphc.ir import interpret
from graphc.ir.op import Op

from . import (
    complex_numbers,
    composite,
    contract,
    elementwise,
    fourier,
    indexing,
    matrices,
    matrices_ldl,
    movement,
    random,
    random_sampled,
    special_functions,
)
from .common import Array, Function

TABLE: dict[str, Function] = {
    **elementwise.TABLE,
    **movement.TABLE,
    **indexing.TABLE,
    **contract.TABLE,
    **random.TABLE,
    **random_sampled.TABLE,
    **composite.TABLE,
    **complex_numbers.TABLE,
    **fourier.TABLE,
    **matrices.TABLE, **matrices_ldl.TABLE,
    **special_functions.TABLE,
}


def run(op: Op, arrays: Sequence[Array], attrs: Mapping[str, Any]) -> Any:
    """Apply one operator to arrays: an array, or a tuple of them. Views share memory.

    Raises IndexError or RuntimeError for values the operator does not take (an index out of
    range, an integer division by zero).
    """
    function = TABLE.get(op.name)
    if function is None:
        return interpret.run_control(op, arrays, attrs, TABLE)
    if op.family in _SILENT:
        out = function(*arrays, **attrs)
    else:
        with np.errstate(all="ignore"):
            out = function(*arrays, **attrs)
    if op.elementwise and not out.flags.c_contiguous:
        return _laid_out(out, arrays)
    return out


def _laid_out(out: Array, arrays: Sequence[Array]) -> Array:
    """The result of an elementwise operator, row-major where its first operand is expanded.

    NumPy gives the result of a broadcast view the order of its strides, 0 counting as smallest;
    torch ignores them.
    """
    for array in arrays:
        if array.shape == out.shape:
            return np.ascontiguousarray(out) if 0 in array.strides else out
    return np.ascontiguousarray(out)


_SILENT = frozenset({"movement", "create", "index", "compare"})
