"""Boxes of images: weighted sums over rows and columns of them, and where their maxima are.

What detection models sample of an image is separable (He et al. 2017, arXiv:1703.06870; Dai et al.
2016, arXiv:1605.06409): a bin of a box reads some rows and some columns, each with its weight.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .. import dtypes
from ..dim import DimEnv, Size
from ..op import Attrs, Op, register
from ..rounding import EXACT, LINEAR
from ..types import Shape, TensorType, Type
from ._rules import accumulation_dtype, cast, filled, ops, reshape, sum_dims
from ._types import (
    FLOATS,
    NUMBERS,
    Types,
    fail,
    require_dtype,
    require_i64,
    require_one_dtype,
    same_shape,
    sizes_text,
)

# --- types ---------------------------------------------------------------------------------------


def _require_taps(name: str, taps: Types, env: DimEnv) -> tuple[Size, Size, Size]:
    """The number of boxes, and of their rows and columns of bins."""
    batch, rows, row_weights, columns, column_weights = taps
    for index in (batch, rows, columns):
        require_i64(name, index)
    fits = (
        batch.rank == 1 and rows.rank == 3 and columns.rank == 3
        and same_shape(env, rows.shape, row_weights.shape)
        and same_shape(env, columns.shape, column_weights.shape)
        and env.equal(batch.shape[0], rows.shape[0])
        and env.equal(batch.shape[0], columns.shape[0])
    )
    if not fits:
        fail(f"{name}: expected images [K], rows [K, P, I] and columns [K, Q, J] with weights of "
             f"their shapes, got {', '.join(sizes_text(tap.shape) for tap in taps)}")
    return rows.shape[0], rows.shape[1], columns.shape[1]


def _require_images(name: str, shape: Shape) -> None:
    if len(shape) != 4:
        fail(f"{name}: expected images [N, C, H, W], got {sizes_text(shape)}")


def _result_shape(name: str, shape: Shape, taps: Types, sensitive: bool, env: DimEnv) -> Shape:
    _require_images(name, shape)
    boxes, height, width = _require_taps(name, taps, env)
    channels = shape[1]
    if sensitive:
        if height * width == 0 or not env.divides(height * width, channels):
            fail(f"{name}: {channels} channels are no multiple of {height} * {width} bins")
        channels = channels // (height * width)
    return (boxes, channels, height, width)


def _pool_type(types: Types, attrs: Attrs, env: DimEnv) -> Type:
    x, *taps = types
    weighted = (x, taps[2], taps[4])
    require_dtype("box_pool", require_one_dtype("box_pool", weighted), FLOATS)
    shape = _result_shape("box_pool", x.shape, tuple(taps), attrs["sensitive"], env)
    return TensorType(x.dtype, shape)


def _pool_grad_type(types: Types, attrs: Attrs, env: DimEnv) -> Type:
    g, *taps = types
    weighted = (g, taps[2], taps[4])
    require_dtype("box_pool_grad", require_one_dtype("box_pool_grad", weighted), FLOATS)
    shape = _result_shape("box_pool_grad", attrs["shape"], tuple(taps), attrs["sensitive"], env)
    if not same_shape(env, g.shape, shape):
        fail(f"box_pool_grad: expected a gradient {sizes_text(shape)}, got {sizes_text(g.shape)}")
    return TensorType(g.dtype, attrs["shape"])


def _argmax_type(types: Types, attrs: Attrs, env: DimEnv) -> Type:
    x, batch, top, bottom, left, right = types
    require_dtype("box_argmax", x.dtype, NUMBERS)
    _require_images("box_argmax", x.shape)
    for index in types[1:]:
        require_i64("box_argmax", index)
    fits = (
        batch.rank == 1 and top.rank == 2 and left.rank == 2
        and same_shape(env, top.shape, bottom.shape) and same_shape(env, left.shape, right.shape)
        and env.equal(batch.shape[0], top.shape[0]) and env.equal(batch.shape[0], left.shape[0])
    )
    if not fits:
        fail("box_argmax: expected images [K], two edges of rows [K, P] and two of columns [K, Q], "
             f"got {', '.join(sizes_text(index.shape) for index in types[1:])}")
    return TensorType(dtypes.i64, (batch.shape[0], x.shape[1], top.shape[1], left.shape[1]))


# --- in primitives -------------------------------------------------------------------------------
# A value of every tap of every bin has the dims [K, C, P, Q, I, J].


def _places(shape: Shape, batch: Any, rows: Any, columns: Any, sensitive: bool) -> Sequence[Any]:
    """Where the taps lie in images of that shape: an index for each of its dims."""
    boxes, height, samples = rows.type.shape
    _, width, others = columns.type.shape
    channels = shape[1] // (height * width) if sensitive else shape[1]

    def counted(size: Size, dim: int) -> Any:
        line = tuple(size if d == dim else 1 for d in range(6))
        return ops.iota.like(batch, shape=line, dim=dim, dtype=dtypes.i64)

    channel = counted(channels, 1)
    if sensitive:
        across, down = (filled(batch, (), size, dtypes.i64) for size in (width, height))
        channel = (channel * down + counted(height, 2)) * across + counted(width, 3)
    return (
        reshape(batch, (boxes, 1, 1, 1, 1, 1)), channel,
        reshape(rows, (boxes, 1, height, 1, samples, 1)),
        reshape(columns, (boxes, 1, 1, width, 1, others)),
    )


def _of_rows(weights: Any) -> Any:
    boxes, height, samples = weights.type.shape
    return reshape(weights, (boxes, 1, height, 1, samples, 1))


def _of_columns(weights: Any) -> Any:
    boxes, width, samples = weights.type.shape
    return reshape(weights, (boxes, 1, 1, width, 1, samples))


def _pool(
    x: Any, batch: Any, rows: Any, row_weights: Any, columns: Any, column_weights: Any, *,
    sensitive: bool,
) -> Any:
    dtype, wide = x.type.dtype, accumulation_dtype(x.type.dtype)
    taken = ops.index(x, *_places(x.type.shape, batch, rows, columns, sensitive), dim=0)
    weights = _of_rows(cast(row_weights, wide)) * _of_columns(cast(column_weights, wide))
    return cast(sum_dims(cast(taken, wide) * weights, (4, 5)), dtype)


def _pool_grad(
    g: Any, batch: Any, rows: Any, row_weights: Any, columns: Any, column_weights: Any, *,
    shape: Shape, sensitive: bool,
) -> Any:
    dtype, wide = g.type.dtype, accumulation_dtype(g.type.dtype)
    weights = _of_rows(cast(row_weights, wide)) * _of_columns(cast(column_weights, wide))
    spread = reshape(cast(g, wide), (*g.type.shape, 1, 1)) * weights
    places = _places(shape, batch, rows, columns, sensitive)
    zero = filled(g, shape, 0, wide)
    return cast(ops.index_put(zero, spread, *places, dim=0, accumulate=True), dtype)


# --- gradients -----------------------------------------------------------------------------------


def _weight_gradients(x: Any, g: Any, taps: Sequence[Any], needs: Any, sensitive: bool) -> Any:
    """Those of the rows' and of the columns' weights, of images x and a gradient of the bins."""
    batch, rows, row_weights, columns, column_weights = taps
    dtype, wide = g.type.dtype, accumulation_dtype(g.type.dtype)
    of_rows = of_columns = None
    if needs[0] or needs[1]:
        taken = ops.index(x, *_places(x.type.shape, batch, rows, columns, sensitive), dim=0)
        share = cast(taken, wide) * reshape(cast(g, wide), (*g.type.shape, 1, 1))
    if needs[0]:
        weighted = share * _of_columns(cast(column_weights, wide))
        of_rows = cast(sum_dims(weighted, (1, 3, 5)), dtype)
    if needs[1]:
        weighted = share * _of_rows(cast(row_weights, wide))
        of_columns = cast(sum_dims(weighted, (1, 2, 4)), dtype)
    return of_rows, of_columns


def _pool_vjp(grads: Any, inputs: Any, outs: Any, needs: Any, *, sensitive: bool) -> Any:
    (g,), (x, *taps) = grads, inputs
    gx = None
    if needs[0]:
        gx = ops.box_pool_grad(g, *taps, shape=x.type.shape, sensitive=sensitive)
    of_rows, of_columns = _weight_gradients(x, g, taps, (needs[3], needs[5]), sensitive)
    return (gx, None, None, of_rows, None, of_columns)


def _pool_grad_vjp(
    grads: Any, inputs: Any, outs: Any, needs: Any, *, shape: Shape, sensitive: bool
) -> Any:
    (h,), (g, *taps) = grads, inputs
    gg = ops.box_pool(h, *taps, sensitive=sensitive) if needs[0] else None
    of_rows, of_columns = _weight_gradients(h, g, taps, (needs[3], needs[5]), sensitive)
    return (gg, None, None, of_rows, None, of_columns)


# --- records -------------------------------------------------------------------------------------

register(
    Op(
        "box_pool", "composite", _pool_type, _pool_vjp, _pool, arity=6, attrs=("sensitive",),
        cost=None, rounding=LINEAR, takes_complex=False,
        doc="[K, C, P, Q] of images x [N, C, H, W], where box k lies in image batch[k]: the sum "
        "over i and j of x at rows[k, p, i] and columns[k, q, j], by the weights of these two. "
        "`sensitive`: bin (p, q) of channel c reads channel (c * P + p) * Q + q of x.",
    )
)
register(
    Op(
        "box_pool_grad", "composite", _pool_grad_type, _pool_grad_vjp, _pool_grad, arity=6,
        attrs=("shape", "sensitive"),
        cost=None, rounding=LINEAR, takes_complex=False,
        doc="box_pool's gradient for images of `shape`, from g [K, C, P, Q].",
    )
)
register(
    Op(
        "box_argmax", "routine", _argmax_type, arity=6,
        nondifferentiable="integer result",
        cost=None, rounding=EXACT, takes_complex=False,
        doc="i64 [K, C, P, Q]: the flat position in the plane of the largest x [N, C, H, W] in "
        "rows top[k, p] .. bottom[k, p] - 1 and columns left[k, q] .. right[k, q] - 1 of image "
        "batch[k]; the first of equals, NaN wins, -1 where there is none.",
    )
)
