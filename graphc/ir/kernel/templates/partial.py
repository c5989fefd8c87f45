"""Partials of an epilogue: what they may be, and what they mean."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from ...dim import Size, ceil_div, product
from ..lanes import Array
from ..nest import Partial

if TYPE_CHECKING:
    from ..verify import Verifier

KINDS = ("sum", "mean", "squares")


def verify_partial(
    stmt: Partial, place: tuple[Size, Size] | None, verifier: Verifier
) -> None:
    """Fail unless a template whose results lie in so many rows and columns can store a Partial."""
    if place is None:
        verifier.fail(f"partial {stmt.buffer} of sums that do not lie in rows")
        return
    rows, columns = place
    dtype, size, access = verifier.buffers.get(stmt.buffer, (None, 0, "in"))
    if stmt.kind not in KINDS or stmt.rows < 1:
        verifier.fail(f"partial {stmt.buffer} is {stmt.kind!r} of {stmt.rows} rows")
    blocks = verifier.number(product((ceil_div(rows, stmt.rows), columns)))
    if access == "in" or verifier.scalar(stmt.value) is not dtype or not dtype.is_float:
        verifier.fail(f"partial {stmt.buffer} of {stmt.value.dtype.name}")
    if size < blocks:
        verifier.fail(f"partial {stmt.buffer} has {blocks} elements, its buffer {size}")


def store_partials(
    found: Mapping[Partial, Array], memory: Mapping[str, Array]
) -> None:
    """The meaning, in NumPy: of the values in their rows and columns."""
    for stmt, values in found.items():
        blocks = -(-len(values) // stmt.rows)
        results = [
            _reduced(values[i * stmt.rows : (i + 1) * stmt.rows], stmt.kind) for i in range(blocks)
        ]
        if results:
            whole = np.concatenate(results)
            memory[stmt.buffer][: whole.size] = whole


def _reduced(block: Array, kind: str) -> Array:
    total: Array = np.add.reduce(block, axis=0)
    if kind == "sum":
        return total
    mean: Array = total / block.dtype.type(len(block))
    if kind == "mean":
        return mean
    left = block - mean
    squares: Array = np.add.reduce(left * left, axis=0)
    return squares
