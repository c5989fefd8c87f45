"""The NumPy backend's table: every operator as a function of arrays, and the eager runner."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
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
from .counter import draws

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


# What runs: the TABLE, or faster functions that give the same bits (`use`).
HOST: dict[str, Function] = dict(TABLE)
_EAGER = {**HOST, **draws(HOST)}


def use(functions: Mapping[str, Function]) -> None:
    """From now on these serve in the TABLE's place, but for references."""
    HOST.update(functions)
    _EAGER.update(functions)
    _EAGER.update(draws(HOST))


def run(op: Op, arrays: Sequence[Array], attrs: Mapping[str, Any]) -> Any:
    """Apply one operator to arrays: an array, or a tuple of them. Views share memory.

    Raises IndexError or RuntimeError for values the operator does not take (an index out of
    range, an integer division by zero).
    """
    function = _EAGER.get(op.name)
    if function is None:
        return interpret.run_control(op, arrays, attrs, TABLE)
    if op.family in _SILENT:
        out = function(*arrays, **attrs)
    else:
        with np.errstate(all="ignore"):
            out = function(*arrays, **attrs)
    if op.elementwise:
        for array in arrays:
            if not array.flags.c_contiguous:
                return _laid_out(out, arrays)
        return out if out.flags.c_contiguous else _laid_out(out, arrays)
    if op.view or (op.family in _AS_LEFT and not op.in_its_order):
        return out
    return _each(out, arrays, _laid_out if op.keeps_order else _row_major)


def _each(out: Any, arrays: Sequence[Array], order: Callable[..., Array]) -> Any:
    if type(out) is tuple:
        return tuple([order(part, arrays) for part in out])
    return order(out, arrays)


def _row_major(out: Array, arrays: Sequence[Array]) -> Array:
    return out if out.flags.c_contiguous else np.ascontiguousarray(out)


def _laid_out(out: Array, arrays: Sequence[Array]) -> Array:
    """A result in the layout of the first operand of its shape, without its gaps.

    Row-major where that one is expanded, or there is none. NumPy goes by the strides of all
    operands together, 0 counting as smallest. Layouts show: in `view`, and in the order of random
    draws.
    """
    for array in arrays:
        if array.shape == out.shape:
            if array.flags.c_contiguous or 0 in array.strides:
                break
            order = sorted(range(out.ndim), key=lambda d: -array.strides[d])
            turned = out.transpose(order)
            if turned.flags.c_contiguous:
                return out
            return np.ascontiguousarray(turned).transpose(np.argsort(order))
    return out if out.flags.c_contiguous else np.ascontiguousarray(out)


# whose results lie as NumPy, or LAPACK, leaves them
_AS_LEFT = frozenset({"routine", "control", "contract", "window", "random", "structure"})
_SILENT = frozenset({"movement", "create", "index", "compare"})
