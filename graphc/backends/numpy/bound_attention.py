"""attention of known sizes, in the steps of its decomposition; see bound.py."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from graphc.ir.dtypes import rounded
from graphc.ir.types import TensorType

from .common import Array, Function


def attention(
    types: Sequence[TensorType], *, causal: bool, scale: float, dropout: float = 0.0
) -> Function | None:
    """Without dropout; of one mask at most."""
    q, k, *_ = types
    masks = types[3:]
    if dropout or len(masks) > 1 or 0 in q.shape or 0 in k.shape or not all(
        t.dtype is q.dtype for t in types[:3]
    ) or any(t.dtype is not q.dtype and t.dtype.name != "bool" for t in masks):
        return None
    dtype = q.dtype.numpy
    factor, zero, one = (rounded(value, q.dtype) for value in (scale, 0, 1))
    infinity, lowest = np.asarray(np.inf, dtype), np.asarray(-np.inf, dtype)
    rows: Any = q.shape[:-1]
    keys: Any = k.shape[-2]
    chosen = bool(masks) and masks[0].dtype.name == "bool"
    seen = np.tri(rows[-1], keys, dtype=np.bool_) if causal else None
    product, where = np.matmul, np.where
    peak_of: Any = np.maximum.reduce
    total_of: Any = np.add.reduce

    def run(q: Array, k: Array, v: Array, *masks: Array) -> tuple[Array, Array]:
        scores: Any = product(q, k.swapaxes(-1, -2))
        np.multiply(scores, factor, scores)
        for mask in masks:
            scores = where(mask, scores, lowest) if chosen else np.add(scores, mask)
        if seen is not None:
            scores = where(seen, scores, lowest)
        peak = peak_of(scores, -1, None, None, True)
        peak = where(np.equal(peak, lowest), zero, peak)
        e = np.subtract(scores, peak, scores)
        np.exp(e, e)
        total = total_of(e, -1, None, None, True)
        nothing = np.equal(total, zero)
        lse = where(nothing, infinity, np.add(peak, np.log(total)))
        np.divide(e, where(nothing, one, total), e)
        return product(e, v), lse.reshape(rows)

    return run
