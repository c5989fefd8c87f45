"""The NumPy backend's table: every operator as a function of arrays, and the eager runner."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from graphc.ir import interpret
from graphc.ir.op import Op

from . import (
    boxes,
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
    sorting,
    sparse,
    special_functions,
    winograd,
)
from .common import Array, Function, be_as_before, be_quiet
from .counter import draws
from .order import channels_kept, each, laid_out, row_major

TABLE: dict[str, Function] = {
    **elementwise.TABLE,
    **movement.TABLE, **sorting.TABLE,
    **indexing.TABLE,
    **contract.TABLE,
    **random.TABLE,
    **random_sampled.TABLE,
    **composite.TABLE,
    **complex_numbers.TABLE,
    **fourier.TABLE,
    **matrices.TABLE, **matrices_ldl.TABLE,
    **special_functions.TABLE,
    **winograd.TABLE,
    **boxes.TABLE,
    **sparse.TABLE,
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
    if op.family in SILENT:
        out = function(*arrays, **attrs)
    else:
        token = be_quiet()
        try:
            out = function(*arrays, **attrs)
        finally:
            be_as_before(token)
    if op.elementwise:
        for array in arrays:
            if not array.flags.c_contiguous:
                return laid_out(out, arrays)
        return out if out.flags.c_contiguous else laid_out(out, arrays)
    if op.keeps_channels:
        return each(out, arrays, channels_kept(op))
    if op.view or (op.family in AS_LEFT and not op.in_its_order):
        return out
    return each(out, arrays, laid_out if op.keeps_order else row_major)


# whose results lie as NumPy, or LAPACK, leaves them
AS_LEFT = frozenset({"routine", "control", "contract", "window", "random", "structure"})
SILENT = frozenset({"movement", "create", "index", "compare"})
