"""Quantization: numbers as small integers, a scale and a zero point.

Products of such integers are summed in int32 (their values lie far below its ends), or exactly in
floats where the operands are that small.
"""

from __future__ import annotations

from typing import Any

from .....frontend import functions as T
from .....frontend.tensor import Tensor
from ..carried import Carried, Kind, carried, plain
from ..table import Node, operator
from .arithmetic import dtype_of, element_of
from .convolution import convolved


def _along(node: Node, each: Tensor, x: Tensor) -> Tensor:
    """A scale, or zero point, of one number, of one for each place of an axis, or of blocks."""
    if each.dim() == 0 or (each.numel() == 1 and each.dim() <= 1):
        return each.reshape(())
    axis = node.get("axis", 1) % max(x.dim(), 1)
    block = node.get("block_size", 0)
    if block:
        wide = each.repeat_interleave(block, axis)
        return wide.narrow(axis, 0, x.shape[axis])
    if each.dim() != 1:
        return each
    return each.reshape([-1 if dim == axis else 1 for dim in range(x.dim())])


def rounded(x: Tensor, zero: Any, target: Any) -> Any:
    """x, a quotient, as integers of a dtype or kind: half to even, and cut off at its ends."""
    if isinstance(target, Kind):
        low, high = target.ends
        dtype = target.holder
    else:
        info = T.iinfo(target)
        low, high, dtype = info.min, info.max, target
    found = T.round(x)
    found = found if zero is None else found + zero
    found = T.clamp(found, low, high).to(dtype)
    return Carried(found, target) if isinstance(target, Kind) else found


@operator("QuantizeLinear", 10, settings=(1, 2))
def quantize(node: Node, x: Tensor, scale: Any, zero: Any = None) -> Any:
    """In the type of the zero point."""
    target: Any = T.uint8
    if zero is not None:
        target = zero.kind if isinstance(zero, Carried) else zero.dtype
    if node.get("output_dtype", 0):
        target = element_of(node, node.get("output_dtype"))
    if isinstance(scale, Carried):
        scale = scale.tensor
    whole = target.is_integer and target.bits <= 16
    if not (whole or (isinstance(target, Kind) and not target.is_integer)):
        node.refuse(f"it makes {target}", "quantize to integers of at most 16 bits, or float8")
    wide = T.float64 if x.dtype is T.float64 else T.float32
    if node.get("precision", 0):
        wide = dtype_of(node, node.get("precision"))
    elif x.dtype.is_floating_point:
        wide = T.promote_types(x.dtype, scale.dtype)
    quotient = x.to(wide) / _along(node, scale, x).to(wide)
    quotient = quotient if wide is T.float64 else quotient.to(T.float32)
    if not whole:
        return carried(quotient, target, bool(node.get("saturate", 1)))
    at = None if zero is None else _along(node, plain(zero, T.float32), x)
    return rounded(quotient, at, target)


@operator("DequantizeLinear", 10, settings=(1, 2))
def dequantize(node: Node, x: Tensor, scale: Tensor, zero: Tensor | None = None) -> Any:
    dtype = scale.dtype
    if node.get("output_dtype", 0):
        dtype = dtype_of(node, node.get("output_dtype"))
    wide = x.to(T.float32)
    if zero is not None:
        wide = wide - _along(node, zero, x).to(T.float32)
    return (wide * _along(node, scale, x).to(T.float32)).to(dtype)


@operator("DynamicQuantizeLinear", 11)
def dynamic_quantize(node: Node, x: Tensor) -> Any:
    """uint8 whose range is that of x, with 0."""
    high, low = T.clamp(T.amax(x), min=0), T.clamp(T.amin(x), max=0)
    scale = T.where(high == low, T.ones_like(high), high - low) / 255
    zero = T.round(T.clamp(-low / scale, 0, 255))
    return rounded(x / scale, zero, T.uint8), scale, zero.to(T.uint8)


def centred(x: Tensor, zero: Tensor | None, rows: bool) -> Tensor:
    """x minus its zero point, exactly, as float64: a zero point for each row, or each column."""
    wide = x.to(T.float64)
    if zero is None:
        return wide
    at = zero.to(T.float64)
    if at.dim() == 1 and at.numel() > 1:
        at = at.unsqueeze(-1) if rows else at
    return wide - (at.reshape(()) if at.numel() == 1 else at)


@operator("MatMulInteger", 10, settings=(2, 3))
def matmul_integer(
    node: Node, a: Tensor, b: Tensor, a_zero: Tensor | None = None, b_zero: Tensor | None = None
) -> Any:
    return T.matmul(centred(a, a_zero, True), centred(b, b_zero, False)).to(T.int32)


@operator("QLinearMatMul", 10, settings=(1, 2, 4, 5, 6, 7))
def qlinear_matmul(
    node: Node, a: Tensor, a_scale: Tensor, a_zero: Tensor, b: Tensor, b_scale: Tensor,
    b_zero: Tensor, y_scale: Tensor, y_zero: Tensor,
) -> Any:
    product = T.matmul(centred(a, a_zero, True), centred(b, b_zero, False))
    scale_a = a_scale.unsqueeze(-1) if a_scale.dim() == 1 and a_scale.numel() > 1 else a_scale
    scale = (scale_a.to(T.float32) * b_scale.to(T.float32) / y_scale.to(T.float32)).to(T.float64)
    return requantized(product * scale, y_zero)


def requantized(x: Tensor, zero: Tensor) -> Tensor:
    """Rounded with the zero point, as the operators say."""
    info = T.iinfo(zero.dtype)
    return T.clamp(T.round(x + zero.to(T.float64)), info.min, info.max).to(zero.dtype)


def _channels(each: Tensor, rank: int, first: bool) -> Tensor:
    if each.numel() == 1:
        return each.reshape(())
    return each.reshape([-1, *[1] * (rank - 1)] if first else [1, -1, *[1] * (rank - 2)])


def _convolved(node: Node, x: Tensor, x_zero: Any, w: Tensor, w_zero: Any, bias: Any) -> Tensor:
    wide = centred(x, None if x_zero is None else x_zero.reshape(-1)[:1], True)
    weight = w.to(T.float64)
    if w_zero is not None:
        weight = weight - _channels(w_zero.to(T.float64), w.dim(), True)
    return convolved(node, wide, weight, None if bias is None else bias.to(T.float64))


@operator("ConvInteger", 10, settings=(2, 3))
def conv_integer(
    node: Node, x: Tensor, w: Tensor, x_zero: Tensor | None = None, w_zero: Tensor | None = None
) -> Any:
    return _convolved(node, x, x_zero, w, w_zero, None).to(T.int32)


@operator("QLinearConv", 10, settings=(1, 2, 4, 5, 6, 7))
def qlinear_conv(
    node: Node, x: Tensor, x_scale: Tensor, x_zero: Tensor, w: Tensor, w_scale: Tensor,
    w_zero: Tensor, y_scale: Tensor, y_zero: Tensor, bias: Tensor | None = None,
) -> Any:
    sums = _convolved(node, x, x_zero, w, w_zero, bias)
    scale = (x_scale.reshape(()) * w_scale / y_scale.reshape(())).to(T.float64)
    return requantized(sums * _channels(scale, x.dim(), False), y_zero)
