"""com.microsoft: what ONNX Runtime's optimizer and quantizer, Olive and Optimum write.

Their meaning: https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md
"""

from __future__ import annotations

import functools
from typing import Any

from .....frontend import functions as T
from .....frontend.tensor import Tensor
from .....nn import functional as F
from ..table import Node, operator
from .convolution import convolved
from .pooling import average_pool
from .product import gemm
from .quantized import (
    centred,
    dequantize,
    dynamic_quantize,
    matmul_integer,
    quantize,
    requantized,
    rounded,
)

DOMAIN = "com.microsoft"
row = functools.partial(operator, domain=DOMAIN)


# --- activations -------------------------------------------------------------------------------


@row("Gelu")
def gelu(node: Node, x: Tensor) -> Any:
    return F.gelu(x)


@row("FastGelu")
def fast_gelu(node: Node, x: Tensor, bias: Tensor | None = None) -> Any:
    return F.gelu(x if bias is None else x + bias, approximate="tanh")


@row("BiasGelu")
def bias_gelu(node: Node, x: Tensor, bias: Tensor) -> Any:
    return F.gelu(x + bias)


@row("QuickGelu")
def quick_gelu(node: Node, x: Tensor) -> Any:
    return x * T.sigmoid(node.get("alpha", 1.702) * x)


# name -> (function of x and its parameters, their defaults)
_ACTIVATIONS: dict[str, Any] = {
    "": (lambda x: x, ()), "Relu": (T.relu, ()), "Tanh": (T.tanh, ()), "Sigmoid": (T.sigmoid, ()),
    "LeakyRelu": (F.leaky_relu, (0.01,)),
    "Clip": (T.clamp, (None, None)),
    "HardSigmoid": (lambda x, a, b: T.clamp(a * x + b, 0, 1), (0.2, 0.5)),
}


def _activated(node: Node, x: Tensor, given: list[float]) -> Tensor:
    name = node.one_of("activation", "", tuple(_ACTIVATIONS))
    function, defaults = _ACTIVATIONS[name]
    return function(x, *[*given, *defaults[len(given):]][: len(defaults)])


# --- products ----------------------------------------------------------------------------------


@row("FusedMatMul TransposeMatMul")
def fused_matmul(node: Node, a: Tensor, b: Tensor) -> Any:
    """alpha * A B, each with its last two dims, or its batch, turned."""
    found = T.matmul(*[
        _turned(node, x, side) for x, side in ((a, "A"), (b, "B"))
    ])
    alpha = node.get("alpha", 1.0)
    return found if alpha == 1 else found * alpha


def _turned(node: Node, x: Tensor, side: str) -> Tensor:
    if x.dim() < 2:
        return x
    if node.get(f"transBatch{side}", 0):  # [M, *batch, K] as [*batch, M, K]
        x = x.movedim(0, -2)
    return x.transpose(-1, -2) if node.get(f"trans{side}", 0) else x


@row("FusedGemm")
def fused_gemm(node: Node, a: Tensor, b: Tensor, c: Tensor | None = None) -> Any:
    alpha = node.get("activation_alpha")
    beta = node.get("activation_beta")
    given = [each for each in (alpha, beta) if each is not None]
    return _activated(node, gemm(node, a, b, c), given)


@row("FusedConv")
def fused_conv(
    node: Node, x: Tensor, weight: Tensor, bias: Tensor | None = None, more: Tensor | None = None
) -> Any:
    """A convolution, plus another tensor, through an activation."""
    found = convolved(node, x, weight, bias)
    found = found if more is None else found + more
    return _activated(node, found, list(node.get("activation_params", ())))


@row("MatMulNBits", settings=(1, 2, 3, 4))
def matmul_bits(
    node: Node, x: Tensor, packed: Tensor, scales: Tensor, zeros: Tensor | None = None,
    groups: Tensor | None = None, bias: Tensor | None = None,
) -> Any:
    """x W^T, W [N, K] of 2, 4 or 8 bits in blocks along K that have a scale and a zero point."""
    bits, block = node.get("bits", 4), node.get("block_size")
    rows, depth = node.get("N"), node.get("K")
    if bits not in (2, 4, 8):
        node.refuse(f"it has integers of {bits} bits", "quantize to 2, 4 or 8 bits")
    if groups is not None:
        node.refuse("its columns are in another order (g_idx)", "export it without act_order")
    blocks = -(-depth // block)
    whole = _unpacked(packed.reshape(rows, -1), bits).reshape(rows, blocks, block).to(T.float32)
    if zeros is None:
        at: Any = float(1 << bits - 1)
    elif zeros.dtype is T.uint8:
        at = _unpacked(zeros.reshape(rows, -1), bits)[:, :blocks].unsqueeze(-1).to(T.float32)
    else:
        at = zeros.reshape(rows, blocks, 1).to(T.float32)
    weight = (whole - at) * scales.reshape(rows, blocks, 1).to(T.float32)
    weight = weight.reshape(rows, blocks * block)[:, :depth].to(x.dtype)
    return F.linear(x, weight, bias)


def _unpacked(x: Tensor, bits: int) -> Tensor:
    """Integers that share bytes, the first lowest, along the last dim."""
    if bits == 8:
        return x
    ones = (1 << bits) - 1
    parts = [T.bitwise_and(T.bitwise_right_shift(x, at), ones) for at in range(0, 8, bits)]
    return T.stack(parts, -1).flatten(-2)


# --- normalizations ----------------------------------------------------------------------------


@row("SkipLayerNormalization")
def skip_layer_norm(
    node: Node, x: Tensor, skip: Tensor, gamma: Tensor, beta: Tensor | None = None,
    bias: Tensor | None = None,
) -> Any:
    """LayerNorm(x + skip + bias), and that sum as the fourth result."""
    if node.wants(1) or node.wants(2):
        node.refuse("it is asked for its mean or deviation", "export it for inference")
    total = _total(x, skip, bias)
    found = F.layer_norm(total, (x.shape[-1],), gamma, beta, node.get("epsilon", 1e-12))
    return found, None, None, total


@row("SkipSimplifiedLayerNormalization")
def skip_rms_norm(
    node: Node, x: Tensor, skip: Tensor, gamma: Tensor, bias: Tensor | None = None
) -> Any:
    if node.wants(1) or node.wants(2):
        node.refuse("it is asked for its mean or deviation", "export it for inference")
    total = _total(x, skip, bias)
    found = F.rms_norm(total, (x.shape[-1],), gamma, node.get("epsilon", 1e-12))
    return found, None, None, total


def _total(x: Tensor, skip: Tensor, bias: Tensor | None) -> Tensor:
    total = x + skip
    return total if bias is None else total + bias


@operator("SimplifiedLayerNormalization")  # it is of this domain, though no operator of ONNX
def rms_norm(node: Node, x: Tensor, scale: Tensor) -> Any:
    if node.wants(1):
        node.refuse("it is asked for its deviation", "export it for inference")
    axis = node.get("axis", -1) % x.dim()
    return F.rms_norm(x, tuple(x.shape)[axis:], scale, node.get("epsilon", 1e-5))


@row("EmbedLayerNormalization")
def embed_layer_norm(
    node: Node, ids: Tensor, segments: Tensor | None, words: Tensor, positions: Tensor,
    segment_table: Tensor | None, gamma: Tensor, beta: Tensor, mask: Tensor | None = None,
    places: Tensor | None = None,
) -> Any:
    """The normalized sum of the embeddings of words, positions and segments; how many of each row
    the mask has; that sum."""
    total = words[ids.long()]
    if places is None:
        total = total + positions[: ids.shape[1]]
    else:
        total = total + positions[places.long()]
    if segment_table is not None and segments is not None:
        total = total + segment_table[segments.long()]
    found = F.layer_norm(total, (total.shape[-1],), gamma, beta, node.get("epsilon", 1e-12))
    lengths = T.zeros(ids.shape[0], dtype=T.int32)
    if mask is not None:
        lengths = mask.sum(-1).to(T.int32)
    return found, lengths, total


# --- quantized ---------------------------------------------------------------------------------


row("QuantizeLinear", settings=(1, 2))(quantize)
row("DequantizeLinear", settings=(1, 2))(dequantize)


@row("MatMulIntegerToFloat", settings=(2, 3, 4, 5))
def matmul_to_float(
    node: Node, a: Tensor, b: Tensor, a_scale: Tensor, b_scale: Tensor,
    a_zero: Tensor | None = None, b_zero: Tensor | None = None, bias: Tensor | None = None,
) -> Any:
    found = matmul_integer(node, a, b, a_zero, b_zero).to(a_scale.dtype) * (a_scale * b_scale)
    return found if bias is None else found + bias


@row("DynamicQuantizeMatMul", settings=(2, 3))
def dynamic_matmul(
    node: Node, a: Tensor, b: Tensor, b_scale: Tensor, b_zero: Tensor | None = None,
    bias: Tensor | None = None,
) -> Any:
    small, scale, zero = dynamic_quantize(node, a)
    return matmul_to_float(node, small, b, scale, b_scale, zero, b_zero, bias)


@row("QGemm", settings=(1, 2, 4, 5, 7, 8))
def quantized_gemm(
    node: Node, a: Tensor, a_scale: Tensor, a_zero: Tensor, b: Tensor, b_scale: Tensor,
    b_zero: Tensor, c: Tensor | None = None, scale: Tensor | None = None,
    zero: Tensor | None = None,
) -> Any:
    """In float32 where it has no scale of its own; c counts in alpha * a_scale * b_scale."""
    a = a.t() if node.get("transA", 0) else a
    b = b.t() if node.get("transB", 0) else b
    sums = T.matmul(centred(a, a_zero, False), centred(b, b_zero, False))
    sums = sums if c is None else sums + c.to(T.float64)
    factor = node.get("alpha", 1.0) * a_scale.reshape(()) * b_scale
    if scale is None:
        return (sums * factor.to(T.float64)).to(T.float32)
    zero = T.zeros((), dtype=a.dtype) if zero is None else zero
    return requantized(sums * (factor / scale).to(T.float64), zero)


def real(x: Tensor, scale: Tensor, zero: Tensor | None) -> Tensor:
    wide = x.to(T.float32)
    wide = wide if zero is None else wide - zero.to(T.float32)
    return wide * scale


def _small(x: Tensor, scale: Tensor, zero: Tensor | None, like: Tensor) -> Any:
    at = None if zero is None else zero.to(T.float32)
    return rounded(x / scale, at, like.dtype)


def _both(name: str, function: Any) -> None:
    def compute(
        node: Node, a: Tensor, a_scale: Tensor, a_zero: Tensor | None, b: Tensor, b_scale: Tensor,
        b_zero: Tensor | None, scale: Tensor, zero: Tensor | None = None,
    ) -> Any:
        found = function(real(a, a_scale, a_zero), real(b, b_scale, b_zero))
        return _small(found, scale, zero, a)

    row(name, settings=(1, 2, 4, 5, 6, 7))(compute)


def _one(name: str, function: Any) -> None:
    def compute(
        node: Node, x: Tensor, x_scale: Tensor, x_zero: Tensor | None, scale: Tensor,
        zero: Tensor | None = None,
    ) -> Any:
        return _small(function(node, real(x, x_scale, x_zero)), scale, zero, x)

    row(name, settings=(1, 2, 3, 4))(compute)


def _over_plane(node: Node, x: Tensor) -> Tensor:
    last = node.get("channels_last", 0)
    dims = list(range(1, x.dim() - 1)) if last else list(range(2, x.dim()))
    return x.mean(dims, keepdim=True)


def _mean_of_windows(node: Node, x: Tensor) -> Any:
    last = node.get("channels_last", 0)
    found = average_pool(node, x.movedim(-1, 1) if last else x)
    return found.movedim(1, -1) if last else found


_both("QLinearAdd", lambda a, b: a + b)
_both("QLinearMul", lambda a, b: a * b)
_one("QLinearSigmoid", lambda node, x: T.sigmoid(x))
_one("QLinearLeakyRelu", lambda node, x: F.leaky_relu(x, node.get("alpha", 0.01)))
_one("QLinearGlobalAveragePool", _over_plane)
_one("QLinearAveragePool", _mean_of_windows)
_one("QLinearSoftmax", lambda node, x: T.softmax(x, node.get("axis", -1)))


@row("QLinearWhere", settings=(2, 3, 5, 6, 7, 8))
def qlinear_where(
    node: Node, chosen: Tensor, x: Tensor, x_scale: Tensor, x_zero: Tensor, y: Tensor,
    y_scale: Tensor, y_zero: Tensor, scale: Tensor, zero: Tensor,
) -> Any:
    found = T.where(chosen, real(x, x_scale, x_zero), real(y, y_scale, y_zero))
    return _small(found, scale, zero, x)


@row("QLinearConcat")
def qlinear_concat(node: Node, scale: Tensor, zero: Tensor, *parts: Any) -> Any:
    """Of (x, scale, zero point), one after another."""
    if not parts or len(parts) % 3:
        node.refuse(f"it has {len(parts)} inputs of parts", "the file is damaged")
    wide = [real(*parts[i : i + 3]) for i in range(0, len(parts), 3)]
    return _small(T.cat(wide, node.get("axis", 0)), scale, zero, parts[0])
