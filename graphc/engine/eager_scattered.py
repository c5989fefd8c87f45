"""x.scatter_(dim, index, numbers) and scatter_add_ in eager mode, of few numbers: native code in
the memory of x, which gives NumPy's bits (eager_rows.py)."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from ..ir.memory import contiguous
from ..ir.op import Attrs, Op
from .eager_added import held
from .eager_form import Types
from .eager_rows import MOST, native

Ready = Callable[..., Any]
_SUMS = {"": 0, "add": 1}


def into(op: Op, types: Types, attrs: Attrs, slow: Ready) -> Ready:
    """What `slow` does, of (x, index, numbers, the array of x). It has a function `rows` of the
    last three (eager_added.held), and one, `number`, where a single number goes everywhere."""
    if op.name != "scatter" or attrs["reduce"] not in _SUMS or len(types) != 3:
        return slow
    own: Any = types[0].shape
    shape: Any = types[1].shape
    dim, dtype = attrs["dim"], types[0].dtype.numpy
    fits = (
        dtype.char in "fd" and types[2].dtype is types[0].dtype and types[1].dtype.name == "i64"
        and types[2].shape == shape and 0 < math.prod(shape) <= MOST and len(shape) == len(own)
        and all(n == m for d, (n, m) in enumerate(zip(own, shape, strict=True)) if d != dim)
    )
    if not fits:
        return slow
    sizes = [math.prod(shape[:dim]), shape[dim], math.prod(shape[dim + 1 :]), own[dim]]
    adds = _SUMS[attrs["reduce"]]

    def made(step: int) -> Ready:
        words = [*sizes, step, adds]
        return held(lambda: native.function("scatter", dtype.char, words), slow)

    every, alone = made(1), made(0)
    first = (0,) * len(shape) + (...,)

    def scattered(x: Any, index: Any, source: Any, out: Any) -> None:
        if any(source.strides):
            every(x, index, contiguous(source), out)
        else:  # one number, which is repeated
            alone(x, index, source[first], out)

    scattered.__dict__.update(rows=every.__dict__["rows"], number=alone.__dict__["rows"])
    return scattered
