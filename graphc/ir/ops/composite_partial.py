"""partial: sums and moments of a few rows at a time, which a contraction can make of its results
before these are in memory (`passes/fuse/partials.py` puts it in, behind gradients)."""

from __future__ import annotations

from typing import Any

from .. import dtypes
from ..dim import DimEnv, ceil_div, product, unwrap
from ..op import Attrs, Op, register
from ..rounding import DELICATE
from ..types import TensorType, Type
from ._rules import accumulation_dtype, cast, ops, sum_dims
from ._types import FLOATS, Types, fail, require_dtype

KINDS = ("sum", "mean", "squares")


def _partial_type(types: Types, attrs: Attrs, env: DimEnv) -> Type:
    (x,) = types
    require_dtype("partial", x.dtype, FLOATS)
    if x.rank < 2 or attrs["rows"] < 1 or attrs["kind"] not in KINDS:
        fail(f"partial: {attrs['kind']} of {attrs['rows']} rows of a tensor of {x.rank} dims")
    blocks = ceil_div(product(x.shape[:-1]), attrs["rows"])
    return TensorType(accumulation_dtype(x.dtype), (unwrap(blocks), x.shape[-1]))


def elements(x: Any, shape: Any, rows: int) -> Any:
    """How many rows each block of x has, [blocks, 1] in x's dtype: the last one has what is
    left. `shape` is x's own."""
    count = unwrap(product(shape[:-1]))
    blocks = unwrap(ceil_div(count, rows))
    kind = x.type.dtype
    if isinstance(count, int) and count % rows == 0:
        return ops.full.like(x, shape=(blocks, 1), value=float(rows), dtype=kind)
    number = ops.iota.like(x, shape=(blocks, 1), dim=0, dtype=dtypes.i64)
    most = ops.full.like(x, shape=(), value=count, dtype=dtypes.i64)
    return ops.cast(ops.minimum(most - number * rows, rows), dtype=kind)


def _spread(blocks: Any, shape: Any, rows: int) -> Any:
    """Each block's row for every row of a tensor of that shape."""
    count, columns = unwrap(product(shape[:-1])), shape[-1]
    number, _ = blocks.type.shape
    each = ops.reshape(blocks, shape=(number, 1, columns))
    every = ops.expand(each, shape=(number, rows, columns))
    flat = ops.reshape(every, shape=(unwrap(number * rows), columns))
    flat = ops.slice(flat, starts=(0, 0), stops=(count, columns), steps=(1, 1))
    return ops.reshape(flat, shape=shape)


def _partial_vjp(
    grads: Any, inputs: Any, outs: Any, needs: Any, *, rows: int, kind: str
) -> Any:
    (x,), shape, wide = inputs, inputs[0].type.shape, outs[0].type.dtype
    g = grads[0] / elements(outs[0], shape, rows) if kind == "mean" else grads[0]
    spread = _spread(g, shape, rows)
    if kind == "squares":
        mean = ops.partial(x, rows=rows, kind="mean")
        spread = (cast(x, wide) - _spread(mean, shape, rows)) * (spread + spread)
    return (cast(spread, x.type.dtype),)


def _partial(x: Any, *, rows: int, kind: str) -> Any:
    shape = x.type.shape
    count, columns = unwrap(product(shape[:-1])), shape[-1]
    blocks = unwrap(ceil_div(count, rows))

    def blocked(flat: Any) -> Any:
        """[count, columns] -> [blocks, rows, columns], 0 behind the end."""
        if not (isinstance(count, int) and count % rows == 0):
            behind = unwrap(blocks * rows - count)
            flat = ops.pad(flat, low=(0, 0), high=(behind, 0), interior=(0, 0), value=0.0)
        return ops.reshape(flat, shape=(blocks, rows, columns))

    x = cast(x, accumulation_dtype(x.type.dtype))
    flat = ops.reshape(x, shape=(count, columns))
    total = sum_dims(blocked(flat), (1,))
    if kind == "sum":
        return total
    mean = total / elements(x, shape, rows)
    if kind == "mean":
        return mean
    left = flat - _spread(mean, (count, columns), rows)
    return sum_dims(blocked(left * left), (1,))


register(
    Op(
        "partial", "composite", _partial_type, _partial_vjp, _partial, arity=1,
        attrs=("rows", "kind"),
        cost=None, rounding=DELICATE, takes_complex=False,
        doc="x [..., C] seen as [P, C], in blocks of `rows` rows, the last one shorter: the sum, "
        "the mean, or the sum of squares around the mean, of each block's columns [blocks, C], at "
        "least in float32.",
    )
)
