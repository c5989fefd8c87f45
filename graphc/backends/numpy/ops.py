"""The NumPy backend's table: every operator as a function of arrays, and the eager runner."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from graphc.ir import interpret
from graphc.ir.op import Op

from . import composite, contract, elementwise, indexing, movement, random
from .common import Array, Function

TABLE: dict[str, Function] = {
    **elementwise.TABLE,
    **movement.TABLE,
    **indexing.TABLE,
    **contract.TABLE,
    **random.TABLE,
    **composite.TABLE,
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
        return function(*arrays, **attrs)
    with np.errstate(all="ignore"):
        return function(*arrays, **attrs)


_SILENT = frozenset({"movement", "create", "index", "compare"})
