"""Reading and writing at positions held in i64 tensors. Every position is checked at run time."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..dim import DimEnv
from ..op import Attrs, Op, OpError, register
from ..rounding import EXACT, SUMMED, Rounding
from ..types import Shape, TensorType, Type
from ._rules import cast, ops, select, sum_to, zeros
from ._types import (
    RING,
    Types,
    broadcast_shapes,
    fail,
    require_dim,
    require_dtype,
    require_i64,
    require_one_dtype,
    same_shape,
    sizes_text,
)

REDUCTIONS = ("", "add", "mul", "amax", "amin")

# --- gather and scatter: one index per element, along one dim --------------------------------


def _require_index(name: str, x: TensorType, index: TensorType, dim: int, env: DimEnv) -> None:
    require_i64(name, index)
    if index.rank != x.rank:
        fail("Index tensor must have the same number of dimensions as input tensor "
             f"({name}: {index.rank} and {x.rank})")
    require_dim(name, dim, x.rank)
    for d in range(x.rank):
        have, limit = index.shape[d], x.shape[d]
        if d != dim and have != limit and not env.at_most(have, limit):
            fail(
                f"Size does not match at dimension {d} expected index {sizes_text(index.shape)} "
                f"to be no larger than self {sizes_text(x.shape)} apart from dimension {dim}"
            )


def _gather_type(types: Types, attrs: Attrs, env: DimEnv) -> Type:
    x, index = types
    _require_index("gather", x, index, attrs["dim"], env)
    return TensorType(x.dtype, index.shape)


def _scatter_type(types: Types, attrs: Attrs, env: DimEnv) -> Type:
    x, index, source = types
    require_one_dtype("scatter", (x, source))
    _require_index("scatter", x, index, attrs["dim"], env)
    if attrs["reduce"] not in REDUCTIONS:
        fail(f"scatter: reduce argument must be one of {REDUCTIONS}, got {attrs['reduce']!r}")
    if attrs["reduce"]:
        require_dtype("scatter", x.dtype, RING)
    if not same_shape(env, index.shape, source.shape):
        fail(f"scatter: expected src {sizes_text(source.shape)} to have the shape of index "
             f"{sizes_text(index.shape)}; slice a larger src first")
    return x


def _gather_vjp(
    grads: Any, inputs: Any, outs: Any, needs: Any, *, dim: int, subject: str = ""
) -> Any:
    x, index = inputs
    return (ops.scatter(zeros(x), index, grads[0], dim=dim, reduce="add"), None)


def _scatter_vjp(
    grads: Any, inputs: Any, outs: Any, needs: Any, *, dim: int, reduce: str
) -> Any:
    (g,), (x, index, source) = grads, inputs
    if reduce == "mul":
        return _scatter_mul_vjp(g, x, index, source, outs[0], needs, dim)
    if reduce in ("amax", "amin"):
        return _scatter_extremum_vjp(g, x, index, source, outs[0], needs, dim)
    gx = gsource = None
    if needs[0]:
        gx = g if reduce else ops.scatter(g, index, zeros(source), dim=dim, reduce="")
    if needs[2]:
        gsource = ops.gather(g, index, dim=dim)
    return (gx, None, gsource)


def _scatter_mul_vjp(
    g: Any, x: Any, index: Any, source: Any, y: Any, needs: Any, dim: int
) -> Any:
    """Products of all the other factors, zeros handled as torch's scatter_reduce("prod") does."""
    gx = gsource = None
    if needs[0]:
        nonzero = select(ops.eq(x, 0.0), 1.0, x)
        others = ops.scatter(nonzero, index, source, dim=dim, reduce="mul") / nonzero
        gx = g * others
    if needs[2]:
        zero = ops.eq(source, 0.0)
        zero_count = ops.scatter(
            zeros(x), index, cast(zero, source.type.dtype), dim=dim, reduce="add"
        )
        only_zero = ops.logical_and(zero, ops.eq(ops.gather(zero_count, index, dim=dim), 1.0))
        without = ops.scatter(x, index, select(only_zero, 1.0, source), dim=dim, reduce="mul")
        gsource = ops.where(
            only_zero,
            ops.gather(g * without, index, dim=dim),
            ops.gather(g * y, index, dim=dim) / select(zero, 1.0, source),
        )
    return (gx, None, gsource)


def _scatter_extremum_vjp(
    g: Any, x: Any, index: Any, source: Any, y: Any, needs: Any, dim: int
) -> Any:
    """The gradient is shared evenly among everything that reached the extremum."""
    dtype = x.type.dtype
    won = cast(ops.eq(x, y), dtype)
    source_won = cast(ops.eq(source, ops.gather(y, index, dim=dim)), dtype)
    share = g / ops.scatter(won, index, source_won, dim=dim, reduce="add")
    return (
        won * share if needs[0] else None,
        None,
        source_won * ops.gather(share, index, dim=dim) if needs[2] else None,
    )


# --- index and index_put: NumPy's advanced indexing of neighbouring dims ---------------------


def _indexed_shape(
    name: str, x: TensorType, indices: Types, dim: int, env: DimEnv
) -> Shape:
    """The shape of x indexed at dims dim .. dim + len(indices) - 1 by broadcast tensors."""
    if not indices:
        fail(f"{name}: needs at least one index tensor")
    if not 0 <= dim <= x.rank - len(indices):
        fail(f"too many indices for tensor of dimension {x.rank}", IndexError)
    for index in indices:
        require_i64(name, index)
    try:
        middle = broadcast_shapes(env, *(index.shape for index in indices))
    except OpError:
        shapes = ", ".join(sizes_text(index.shape) for index in indices)
        fail("shape mismatch: indexing tensors could not be broadcast together with shapes "
             + shapes, IndexError)
    return x.shape[:dim] + middle + x.shape[dim + len(indices) :]


def _index_type(types: Types, attrs: Attrs, env: DimEnv) -> Type:
    x, *indices = types
    return TensorType(x.dtype, _indexed_shape("index", x, tuple(indices), attrs["dim"], env))


def _index_put_type(types: Types, attrs: Attrs, env: DimEnv) -> Type:
    if len(types) < 2:
        fail("index_put takes x, src and at least one index tensor", TypeError)
    x, source, *indices = types
    require_one_dtype("index_put", (x, source))
    if attrs["accumulate"]:
        require_dtype("index_put", x.dtype, RING)
    shape = _indexed_shape("index_put", x, tuple(indices), attrs["dim"], env)
    try:
        fits = same_shape(env, broadcast_shapes(env, shape, source.shape), shape)
    except OpError:
        fits = False
    if not fits:
        fail(f"shape mismatch: value tensor of shape {sizes_text(source.shape)} cannot be "
             f"broadcast to indexing result of shape {sizes_text(shape)}")
    return x


def _index_vjp(
    grads: Any, inputs: Any, outs: Any, needs: Any, *, dim: int, subject: str = ""
) -> Any:
    x, *indices = inputs
    gx = ops.index_put(zeros(x), grads[0], *indices, dim=dim, accumulate=True)
    return (gx, *(None for _ in indices))


def _index_put_vjp(
    grads: Any, inputs: Any, outs: Any, needs: Any, *, dim: int, accumulate: bool
) -> Any:
    (g,), (_, source, *indices) = grads, inputs
    gx = gsource = None
    if needs[0]:
        gx = g
        if not accumulate:
            zero = zeros(source)
            gx = ops.index_put(g, zero, *indices, dim=dim, accumulate=False)
    if needs[1]:
        gsource = sum_to(ops.index(g, *indices, dim=dim), source.type.shape)
    return (gx, gsource, *(None for _ in indices))


# --- records ---------------------------------------------------------------------------------

# what the positions are to the user ("Target"): an error then names that, not an index and a dim;
# with a class before a colon ("RuntimeError: ...") it is all that the error says
_SUBJECT = frozenset({"subject"})



def _scatter_rounding(attrs: Mapping[str, Any], sources: Any, results: Any) -> Rounding:
    return SUMMED if attrs["reduce"] in ("add", "mul") else EXACT


def _index_put_rounding(attrs: Mapping[str, Any], sources: Any, results: Any) -> Rounding:
    return SUMMED if attrs["accumulate"] else EXACT


register(
    Op(
        "gather", "index", _gather_type, _gather_vjp, arity=2, attrs=("dim",), optional=_SUBJECT,
        cost=None, rounding=EXACT, takes_complex=True,
        doc="x[..., index[i], ...] along `dim`; an index outside 0 .. size-1 is a RuntimeError.",
    )
)
register(
    Op(
        "scatter", "index", _scatter_type, _scatter_vjp, arity=3, attrs=("dim", "reduce"),
        cost=None, rounding=_scatter_rounding, takes_complex=True,
        doc='x with src written at index along `dim`; reduce "" (last wins) "add" "mul" '
        '"amax" "amin" combines with what is there.',
    )
)
register(
    Op(
        "index", "index", _index_type, _index_vjp, attrs=("dim",), optional=_SUBJECT,
        cost=None, rounding=EXACT, takes_complex=True,
        doc="x indexed at dims dim.. by broadcast i64 tensors, result dims in their place; "
        "negative wraps, out of range is an IndexError.",
    )
)
register(
    Op(
        "index_put", "index", _index_put_type, _index_put_vjp, attrs=("dim", "accumulate"),
        cost=None, rounding=_index_put_rounding, takes_complex=True,
        doc="x with src written (or added, where `accumulate`) at the positions of `index`.",
    )
)
