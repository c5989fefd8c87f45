"""partial: sums and moments of a few rows at a time, which a contraction can make of its results
before these are in memory (`passes/fuse/partials.py` puts it in, behind gradients)."""

from __future__ import annotations

from typing import Any

from .. import dtypes
from ..dim import DimEnv, ceil_div, product, unwrap
from ..op import Attrs, Op, register
from ..rounding import DELICATE
from ..types import TensorType, Type
from ._rules import ops, sum_dims
from ._types import Types, fail, require_dtype

KINDS = ("sum", "mean", "squares")


def _partial_type(types: Types, attrs: Attrs, env: DimEnv) -> Type:
    (x,) = types
    require_dtype("partial", x.dtype, (dtypes.f32, dtypes.f64))
    if x.rank < 2 or attrs["rows"] < 1 or attrs["kind"] not in KINDS:
        fail(f"partial: {attrs['kind']} of {attrs['rows']} rows of a tensor of {x.rank} dims")
    blocks = ceil_div(product(x.shape[:-1]), attrs["rows"])
    return TensorType(x.dtype, (unwrap(blocks), x.shape[-1]))


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

    flat = ops.reshape(x, shape=(count, columns))
    total = sum_dims(blocked(flat), (1,))
    if kind == "sum":
        return total
    mean = total / elements(x, shape, rows)
    if kind == "mean":
        return mean
    each = ops.expand(ops.reshape(mean, shape=(blocks, 1, columns)), shape=(blocks, rows, columns))
    means = ops.reshape(each, shape=(unwrap(blocks * rows), columns))
    left = flat - ops.slice(means, starts=(0, 0), stops=(count, columns), steps=(1, 1))
    return sum_dims(blocked(left * left), (1,))


register(
    Op(
        "partial", "composite", _partial_type, None, _partial, arity=1, attrs=("rows", "kind"),
        nondifferentiable="it is made of sums when gradients are there",
        cost=None, rounding=DELICATE, takes_complex=False,
        doc="x [..., C] seen as [P, C], in blocks of `rows` rows, the last one shorter: the sum, "
        "the mean, or the sum of squares around the mean, of each block's columns [blocks, C].",
    )
)
