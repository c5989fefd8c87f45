"""Pooling: the maximum or the sum of a sliding window over the trailing dims (the plane)."""

from __future__ import annotations

from typing import Any

from .. import dtypes
from ..dim import DimEnv, Size, product
from ..op import Attrs, Op, register
from ..rounding import EXACT, LINEAR, SUMMED
from ..types import Shape, TensorType, TupleType, Type
from ._rules import expand, ops, reshape
from ._types import (
    NUMBERS,
    Types,
    fail,
    require_dtype,
    require_i64,
    same_shape,
    sizes_text,
)
from .contract import require_window, window_counts

_WINDOW = ("window", "stride", "pad_low", "pad_high", "dilation")


def _pooled_shape(name: str, x: TensorType, attrs: Attrs, env: DimEnv) -> Shape:
    require_dtype(name, x.dtype, NUMBERS)
    window: tuple[int, ...] = attrs["window"]
    spatial = len(window)
    if not 1 <= spatial <= x.rank or any(k < 1 for k in window):
        fail(f"{name}: window {window} needs positive sizes for the trailing dims of "
             f"{sizes_text(x.shape)}")
    require_window(name, attrs, spatial)
    for k, low, high, d in zip(
        window, attrs["pad_low"], attrs["pad_high"], attrs["dilation"], strict=True
    ):
        if max(low, high) > (k - 1) * d:
            fail(f"{name}: padding {max(low, high)} would put a whole window of {k} "
                 f"(dilation {d}) outside the input")
    lead, plane = x.shape[: x.rank - spatial], x.shape[x.rank - spatial :]
    out = window_counts(plane, window, attrs, env)
    if out is None:
        fail(f"Given input size: {sizes_text(x.shape)} and window {window} ({name}). "
             "Output size is too small")
    return lead + out


def _max_pool_type(types: Types, attrs: Attrs, env: DimEnv) -> Type:
    (x,) = types
    shape = _pooled_shape("max_pool", x, attrs, env)
    for k, low, d in zip(attrs["window"], attrs["pad_low"], attrs["dilation"], strict=True):
        if 2 * low > (k - 1) * d + 1:
            fail("pad should be at most half of effective kernel size, but got "
                 f"pad={low}, kernel_size={k} and dilation={d}")
    return TupleType((TensorType(x.dtype, shape), TensorType(dtypes.i64, shape)))


def _max_pool_grad_type(types: Types, attrs: Attrs, env: DimEnv) -> Type:
    g, indices = types
    require_dtype("max_pool_grad", g.dtype, NUMBERS)
    require_i64("max_pool_grad", indices)
    plane: Shape = attrs["plane_shape"]
    if not same_shape(env, g.shape, indices.shape) or not 1 <= len(plane) <= g.rank:
        fail(f"max_pool_grad: expected gradient {sizes_text(g.shape)} and indices "
             f"{sizes_text(indices.shape)} of one shape that ends in a plane like "
             f"{sizes_text(plane)}")
    return TensorType(g.dtype, g.shape[: g.rank - len(plane)] + plane)


def _window_sum_type(types: Types, attrs: Attrs, env: DimEnv) -> Type:
    return TensorType(types[0].dtype, _pooled_shape("window_sum", types[0], attrs, env))


def _max_pool_vjp(
    grads: Any, inputs: Any, outs: Any, needs: Any, *, window: tuple[int, ...], **attrs: Any
) -> Any:
    plane = inputs[0].type.shape[-len(window) :]
    return (ops.max_pool_grad(grads[0], outs[1], plane_shape=plane),)


def _max_pool_grad_vjp(
    grads: Any, inputs: Any, outs: Any, needs: Any, *, plane_shape: Shape
) -> Any:
    (h,), (g, indices) = grads, inputs
    shape = g.type.shape
    lead = shape[: len(shape) - len(plane_shape)]
    flat = reshape(h, (*lead, product(plane_shape)))
    positions = reshape(indices, (*lead, product(shape[len(lead) :])))
    return (reshape(ops.gather(flat, positions, dim=len(lead)), shape), None)


def _window_sum_vjp(
    grads: Any, inputs: Any, outs: Any, needs: Any, *, window: tuple[int, ...],
    stride: tuple[int, ...], pad_low: tuple[int, ...], pad_high: tuple[int, ...],
    dilation: tuple[int, ...],
) -> Any:
    (g,), (x,) = grads, inputs
    shape = x.type.shape
    spatial = len(window)
    if window == stride and not any(pad_low) and not any(pad_high) and set(dilation) == {1}:
        return (_spread_blocks(g, shape, window),)
    none = (0,) * len(shape)
    lead = none[spatial:]
    g = ops.pad(
        g, low=none, high=none, interior=(*lead, *(s - 1 for s in stride)), value=0.0
    )
    # x[i] was read by the windows at the dilated positions i + pad_low - k * dilation
    low = [(k - 1) * d - p for k, d, p in zip(window, dilation, pad_low, strict=True)]
    high = [
        size + p - n
        for size, p, n in zip(shape[-spatial:], pad_low, g.type.shape[-spatial:], strict=True)
    ]
    g = ops.pad(g, low=(*lead, *low), high=(*lead, *high), interior=none, value=0.0)
    zero = none[:spatial]
    return (
        ops.window_sum(
            g, window=window, stride=(1,) * spatial, pad_low=zero, pad_high=zero,
            dilation=dilation,
        ),
    )


def _spread_blocks(g: Any, shape: Shape, window: tuple[int, ...]) -> Any:
    """Each gradient repeated over its block of a grid of blocks; zeros past the last block."""
    lead = len(shape) - len(window)
    split: list[Size] = list(shape[:lead])
    blocks: list[Size] = list(shape[:lead])
    covered: list[Size] = list(shape[:lead])
    for n, k in zip(g.type.shape[lead:], window, strict=True):
        split += [n, 1]
        blocks += [n, k]
        covered.append(n * k)
    spread = reshape(expand(reshape(g, tuple(split)), tuple(blocks)), tuple(covered))
    high = tuple(size - have for size, have in zip(shape, covered, strict=True))
    if not any(high):
        return spread
    none = (0,) * len(shape)
    return ops.pad(spread, low=none, high=high, interior=none, value=0.0)


register(
    Op(
        "max_pool", "window", _max_pool_type, _max_pool_vjp, arity=1, results=2, attrs=_WINDOW,
        keeps_channels="first", cost=None, rounding=EXACT, takes_complex=False,
        doc="The maximum of each window and its i64 flat index in the plane; the first of equals, "
        "but the last NaN; padding never wins.",
    )
)
register(
    Op(
        "max_pool_grad", "window", _max_pool_grad_type, _max_pool_grad_vjp, arity=2,
        attrs=("plane_shape",),
        cost=None, rounding=SUMMED, takes_complex=False,
        doc="Zeros with g added at the flat indices of its plane, of sizes `plane_shape`.",
    )
)
register(
    Op(
        "window_sum", "window", _window_sum_type, _window_sum_vjp, arity=1, attrs=_WINDOW,
        keeps_channels="first", cost=None, rounding=LINEAR, takes_complex=False,
        doc="The sum of each window; padding counts as 0.",
    )
)
