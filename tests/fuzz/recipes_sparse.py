"""Recipes of products of sparse matrices."""

from __future__ import annotations

from typing import Any

import numpy as np

from graphc.doubt.case import Style
from graphc.ir import dtypes, ops
from graphc.ir.graph import Expr
from tests.fuzz.maker import Maker
from tests.fuzz.recipes import NUMBERS, recipe


def _given(m: Maker, array: np.ndarray) -> Expr:
    found: Expr = m.fresh(
        dtypes.i64, array.shape, Style("given", array=array.astype(np.int64)), keep=False
    )
    return found


def _walk(m: Maker, lines: np.ndarray, count: int) -> list[Expr]:
    """How lines are walked; that of a graph that may fail ends beside the entries now and then."""
    ends = np.cumsum(np.bincount(lines, minlength=count))
    if m.traits.failing and m.chance(0.3):
        ends[m.rng.randrange(count)] += m.rng.choice((-1, 1)) * (lines.size + 1)
    return [_given(m, ends), _given(m, np.argsort(lines, kind="stable"))]


@recipe("sparse_product", "sparse_sampled")
def _product(m: Maker, name: str) -> Any:
    dtype, width = m.dtype(NUMBERS), m.rng.choice((1, 2, 7, *m.sizes))
    entries = m.rng.choice((0, 1, 3, 17, 40))
    rows, columns = m.rng.randint(1, 9), m.rng.randint(1, 9)
    lines = np.array([[m.rng.randrange(n) for _ in range(entries)] for n in (rows, columns)], int)
    places = [_given(m, lines[0]), _given(m, lines[1]), *_walk(m, lines[0], rows)]
    if m.chance(0.6):
        places += _walk(m, lines[1], columns)
    elif m.traits.failing and entries:
        places[1] = m.indices(columns, (entries,))
    # each engine adds up in its own order
    tame = Style() if m.traits.special else None
    right = m.shaped(dtype, (columns, width), tame)
    if name == "sparse_sampled":
        return ops.sparse_sampled(m.shaped(dtype, (rows, width), tame), right, *places)
    return ops.sparse_product(m.shaped(dtype, (entries,), tame), right, *places)
