"""Padding, folding, resampling by integer factors."""

from __future__ import annotations

from typing import Any

import numpy as np

import graphc.frontend.functions as T

from ...frontend.dispatch import apply
from ...frontend.tensor import Tensor
from ...ir import ops
from .conv import tuple_of


def pad(input: Tensor, pad: Any, mode: str = "constant", value: float | None = None) -> Tensor:
    """Pad the trailing dims, last first: (left, right, top, bottom, ...); negative crops."""
    amounts = [int(p) for p in pad]
    if len(amounts) % 2:
        raise RuntimeError("Padding length must be divisible by 2")
    if len(amounts) // 2 > input.dim():
        raise RuntimeError(
            "Padding length should be less than or equal to two times the input dimension but "
            f"got padding length {len(amounts)} and input of dimension {input.dim()}"
        )
    pairs = list(zip(amounts[::2], amounts[1::2], strict=True))
    if mode == "constant":
        return _constant(input, pairs, 0.0 if value is None else value)
    if mode not in ("reflect", "replicate", "circular"):
        raise NotImplementedError(f"Unrecognised padding mode {mode}")
    result = input
    for i, (low, high) in enumerate(pairs):
        result = _by_index(result, input.dim() - 1 - i, low, high, mode)
    return result


def _constant(input: Tensor, pairs: list[tuple[int, int]], value: float) -> Tensor:
    rank = input.dim()
    low, high = [0] * rank, [0] * rank
    result = input
    for i, (before, after) in enumerate(pairs):
        dim = rank - 1 - i
        low[dim], high[dim] = max(before, 0), max(after, 0)
        if before < 0 or after < 0:
            start, stop = max(-before, 0), result.shape[dim] - max(-after, 0)
            result = result.narrow(dim, start, stop - start)
    if not any(low) and not any(high):
        return result.clone() if result is input else result
    fill: Any = bool(value) if input.dtype.kind == "bool" else value
    padded: Tensor = apply(
        ops.pad, result, low=tuple(low), high=tuple(high), interior=(0,) * rank, value=fill
    )
    return padded


def _by_index(input: Tensor, dim: int, low: int, high: int, mode: str) -> Tensor:
    size = input.shape[dim]
    if mode == "reflect" and (low >= size or high >= size):
        raise RuntimeError(
            "Padding size should be less than the corresponding input dimension, but got: "
            f"padding ({low}, {high}) at dimension {dim} of input {list(input.shape)}"
        )
    positions = []
    for i in range(-low, size + high):
        if mode == "circular":
            positions.append(i % size)
        elif mode == "replicate":
            positions.append(min(max(i, 0), size - 1))
        else:
            j = abs(i)
            positions.append(j if j < size else 2 * (size - 1) - j)
    return input.index_select(dim, T.tensor(positions))


def pixel_shuffle(input: Tensor, upscale_factor: int) -> Tensor:
    """[*, C r^2, H, W] -> [*, C, H r, W r]."""
    *lead, channels, height, width = input.shape
    r = upscale_factor
    if channels % (r * r):
        raise RuntimeError(
            "pixel_shuffle expects its input's 'channel' dimension to be divisible by the square "
            f"of upscale_factor, but input.size(-3)={channels} is not divisible by {r * r}"
        )
    count = len(lead)
    split = input.reshape([*lead, channels // (r * r), r, r, height, width])
    order = [*range(count), count, count + 3, count + 1, count + 4, count + 2]
    return split.permute(order).reshape([*lead, channels // (r * r), height * r, width * r])


def pixel_unshuffle(input: Tensor, downscale_factor: int) -> Tensor:
    """The inverse of pixel_shuffle."""
    *lead, channels, height, width = input.shape
    r = downscale_factor
    count = len(lead)
    split = input.reshape([*lead, channels, height // r, r, width // r, r])
    order = [*range(count), count, count + 2, count + 4, count + 1, count + 3]
    return split.permute(order).reshape([*lead, channels * r * r, height // r, width // r])


def unfold(
    input: Tensor, kernel_size: Any, dilation: Any = 1, padding: Any = 0, stride: Any = 1
) -> Tensor:
    """Sliding blocks of [N, C, H, W] as columns [N, C*KH*KW, L]."""
    kernel, step = tuple_of(kernel_size, 2), tuple_of(stride, 2)
    spread, border = tuple_of(dilation, 2), tuple_of(padding, 2)
    padded = pad(input, (border[1], border[1], border[0], border[0]))
    batch, channels, height, width = padded.shape
    rows = (height - spread[0] * (kernel[0] - 1) - 1) // step[0] + 1
    columns = (width - spread[1] * (kernel[1] - 1) - 1) // step[1] + 1
    parts = []
    for i in range(kernel[0]):
        for j in range(kernel[1]):
            top, left = i * spread[0], j * spread[1]
            parts.append(
                padded[:, :, top : top + step[0] * (rows - 1) + 1 : step[0],
                       left : left + step[1] * (columns - 1) + 1 : step[1]]
            )
    stacked = T.stack(parts, 2)
    return stacked.reshape([batch, channels * kernel[0] * kernel[1], rows * columns])


def interpolate(
    input: Tensor, size: Any = None, scale_factor: Any = None, mode: str = "nearest",
    align_corners: bool | None = None, recompute_scale_factor: bool | None = None,
    antialias: bool = False,
) -> Tensor:
    """Resize the spatial dims by nearest neighbour or (bi)linear interpolation."""
    spatial = input.dim() - 2
    if (size is None) == (scale_factor is None):
        raise ValueError("only one of size or scale_factor should be defined")
    if antialias:
        raise NotImplementedError("interpolate: antialias=True is not supported")
    sizes = tuple(input.shape)[2:]
    if size is not None:
        outputs = tuple_of(size, spatial, "size")
        scales: tuple[Any, ...] = (None,) * spatial
    else:
        scales = tuple_of(scale_factor, spatial, "scale_factor")
        outputs = tuple(int(s * f) for s, f in zip(sizes, scales, strict=True))
        if recompute_scale_factor:
            scales = (None,) * spatial
    result = input
    # torch computes positions in the input's dtype, in float32 for narrower ones
    real: Any = np.float64 if input.dtype is T.float64 else np.float32
    for i in range(spatial):
        if mode in ("nearest", "nearest-exact"):
            offset = 0.0 if mode == "nearest" else 0.5
            scale = real(sizes[i]) / real(outputs[i]) if scales[i] is None else real(1 / scales[i])
            positions = (np.arange(outputs[i], dtype=real) + real(offset)) * scale
            index = np.minimum(positions.astype(np.int64), sizes[i] - 1)
            result = result.index_select(2 + i, T.tensor(index))
        elif mode in ("linear", "bilinear", "trilinear"):
            result = _linear(result, 2 + i, outputs[i], scales[i], bool(align_corners), real)
        else:
            raise NotImplementedError(
                f"interpolate mode {mode!r} is not supported; use nearest, nearest-exact, linear, "
                "bilinear or trilinear"
            )
    return result


def _linear(
    input: Tensor, dim: int, outputs: int, given: float | None, align: bool, real: Any
) -> Tensor:
    """One dim resized: each output is a blend of the two inputs around its position."""
    size = input.shape[dim]
    steps = np.arange(outputs, dtype=real)
    if align:
        scale = real(size - 1) / real(outputs - 1) if outputs > 1 else real(0)
        position = steps * scale
    else:
        scale = real(size) / real(outputs) if given is None else real(1 / given)
        position = np.maximum(scale * (steps + real(0.5)) - real(0.5), real(0))
    lower = np.minimum(position.astype(np.int64), size - 1)
    upper = np.minimum(lower + 1, size - 1)
    shape = [-1 if d == dim else 1 for d in range(input.dim())]
    blend = T.tensor(position - lower).to(input.dtype).reshape(shape)
    first = input.index_select(dim, T.tensor(lower))
    second = input.index_select(dim, T.tensor(upper))
    return first * (1 - blend) + second * blend


def cosine_similarity(x1: Tensor, x2: Tensor, dim: int = 1, eps: float = 1e-8) -> Tensor:
    """x1 . x2 / (max(|x1|, eps) max(|x2|, eps)) along dim."""
    first = x1 / x1.norm(2, dim, keepdim=True).clamp_min(eps)
    second = x2 / x2.norm(2, dim, keepdim=True).clamp_min(eps)
    return (first * second).sum(dim)


def pairwise_distance(
    x1: Tensor, x2: Tensor, p: float = 2.0, eps: float = 1e-6, keepdim: bool = False
) -> Tensor:
    """norm_p(x1 - x2 + eps) along the last dim."""
    return (x1 - x2 + eps).norm(p, -1, keepdim=keepdim)
