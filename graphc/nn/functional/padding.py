"""Padding, shuffles of pixels, distances."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

import graphc.frontend.functions as T

from ...backends.numpy.padding import AROUND, padded
from ...frontend import promote
from ...frontend.autocast import listed
from ...frontend.autocast_lists import NAMES
from ...frontend.context import local
from ...frontend.dispatch import apply, fixed
from ...frontend.errors import located
from ...frontend.functions.arguments import named, recorded_as
from ...frontend.history import requires_grad
from ...frontend.near import is_near
from ...frontend.numbers import SymInt
from ...frontend.ownership import owns_result
from ...frontend.replayed import Watch, replayed
from ...frontend.result_layouts import as_suggested, in_rows
from ...frontend.tensor import Tensor, from_array
from ...ir import ops


def pad(input: Tensor, pad: Any, mode: str = "constant", value: float | None = None) -> Tensor:
    """Pad the trailing dims, last first: (left, right, top, bottom, ...); negative crops."""
    if mode == "constant" and any(isinstance(p, SymInt) for p in pad):
        return _by_free_amounts(input, pad, 0.0 if value is None else value)
    if mode == "constant":
        return _with_number(input, pad, value)
    if local.trace is None and type(input) is Tensor and input.numel() <= _FEW:
        return _again_of_few(input, pad, mode)
    return _with_numbers_inside(input, pad, mode)


def _pairs(input: Tensor, pad: Any) -> list[tuple[int, int]]:
    amounts = [int(p) for p in pad]
    if len(amounts) % 2:
        raise RuntimeError("Padding length must be divisible by 2")
    if len(amounts) // 2 > input.dim():
        raise RuntimeError(
            "Padding length should be less than or equal to two times the input dimension but "
            f"got padding length {len(amounts)} and input of dimension {input.dim()}"
        )
    return list(zip(amounts[::2], amounts[1::2], strict=True))


@replayed
@owns_result
def _with_number(input: Tensor, pad: Any, value: float | None) -> Tensor:
    return _constant(input, _pairs(input, pad), 0.0 if value is None else value)


def _filled(like: Tensor, dim: int, size: Any, value: float) -> Tensor:
    shape = (*like.shape[:dim], size, *like.shape[dim + 1 :])
    return T.full(shape, value, dtype=like.dtype, device=like.device)


def _by_free_amounts(input: Tensor, pad: Any, value: float) -> Tensor:
    """As many as sizes of the running trace say; crops as by numbers."""
    pad = [int(p) if not isinstance(p, SymInt) or p < 0 else p for p in pad]
    for dim, low, high in zip(range(input.dim() - 1, -1, -1), pad[::2], pad[1::2], strict=False):
        if not isinstance(low, SymInt) and not isinstance(high, SymInt):
            continue
        before, behind = (
            [_filled(input, dim, n, value)] if isinstance(n, SymInt) else [] for n in (low, high)
        )
        input = T.cat([*before, input, *behind], dim)
    return _with_number(input, [0 if isinstance(p, SymInt) else p for p in pad], value)


@owns_result
def _with_numbers_inside(input: Tensor, pad: Any, mode: str) -> Tensor:
    pairs = _pairs(input, pad)
    if mode not in ("reflect", "replicate", "circular"):
        raise NotImplementedError(f"Unrecognised padding mode {mode}")
    if not 0 <= input.dim() - len(pairs) - 1 < 2 or not 0 < len(pairs) < 4:
        raise NotImplementedError(located(
            f"Padding size {2 * len(pairs)} is not supported for {input.dim()}D input tensor.\n"
            "Supported combinations for non-constant padding:\n"
            "  - 2D or 3D input: padding size = 2 (pads last dimension)\n"
            "  - 3D or 4D input: padding size = 4 (pads last 2 dimensions)\n"
            "  - 4D or 5D input: padding size = 6 (pads last 3 dimensions)"
        ))
    if mode == "circular":
        return named(in_rows(_around(input, pairs, mode)), "CopySlices")
    padded = as_suggested(_LISTED[mode, len(pairs)](input, pairs, mode), input)
    kind = "Reflection" if mode == "reflect" else "Replication"
    return named(padded, f"{kind}Pad{len(pairs)}DBackward0")


_again_of_few = replayed(_with_numbers_inside)
_FEW = 4096  # numbers of which each is looked up in less time than lines are put side by side


def _around(input: Tensor, pairs: list[tuple[int, int]], mode: str) -> Tensor:
    copied = _copied(input, pairs, mode)
    if copied is not None:
        return copied
    for i, (low, high) in enumerate(pairs):
        input = _by_index(input, input.dim() - 1 - i, low, high, mode)
    return input


def _copied(input: Tensor, pairs: list[tuple[int, int]], mode: str) -> Tensor | None:
    """In one go; None where a history, a trace or another device asks for operators, or what is to
    be around it is not all inside."""
    again = type(local.counted) is Watch  # and what it comes to will be done again
    if local.trace is not None or input._graphc_trace is not None or (
        local.counted is not None and not again
    ) or not is_near(input) or (local.grad and requires_grad(input)):
        return None
    array = input._graphc_array
    if type(array) is not np.ndarray or not array.flags.c_contiguous or 0 in array.shape:
        return None
    rank = array.ndim
    low, high = [0] * rank, [0] * rank
    for i, (before, after) in enumerate(pairs):
        low[rank - 1 - i], high[rank - 1 - i] = before, after
    most = [size - 1 if mode == "reflect" else size for size in array.shape]
    for size, before, after in zip(most, low, high, strict=True):
        if min(before, after) < 0 or (mode != "replicate" and max(before, after) > size):
            return None
    if not any(low) and not any(high):
        return None
    if again:
        return _looked_up(input, low, high, mode)
    return from_array(padded(array, low, high, AROUND[mode]))


def _looked_up(input: Tensor, low: list[int], high: list[int], mode: str) -> Tensor:
    """Each number of the padded dims, by its place among them."""
    lead = next(d for d in range(len(low)) if low[d] or high[d])
    outer, inner = input._graphc_array.shape[:lead], input._graphc_array.shape[lead:]
    places = np.arange(math.prod(inner)).reshape(inner)
    places = padded(places, low[lead:], high[lead:], AROUND[mode])
    flat = input.reshape([*outer, math.prod(inner)])
    found: Tensor = apply(ops.index, flat, fixed(places.reshape(-1)), dim=lead)
    return found.reshape([*outer, *places.shape])


# what autocast knows them as
_LISTED = {
    (mode, count): listed(_around, f"{name}_pad{count}d") if f"{name}_pad{count}d" in NAMES
    else _around
    for mode, name in (("reflect", "reflection"), ("replicate", "replication"))
    for count in (1, 2, 3)
}


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
        return result
    fill: Any = bool(value) if input.dtype.kind == "bool" else value
    padded: Tensor = apply(
        ops.pad, result, low=tuple(low), high=tuple(high), interior=(0,) * rank, value=fill
    )
    return padded


def _by_index(input: Tensor, dim: int, low: int, high: int, mode: str) -> Tensor:
    if mode == "circular" and (low < 0 or high < 0):  # what is cut off is not wrapped around
        kept = input.shape[dim] + min(low, 0) + min(high, 0)
        input, low, high = input.narrow(dim, max(-low, 0), kept), max(low, 0), max(high, 0)
    size = input.shape[dim]
    if mode == "reflect" and (low >= size or high >= size):
        raise RuntimeError(
            "Argument #4: Padding size should be less than the corresponding input dimension, "
            f"but got: padding ({low}, {high}) at dimension {dim} of input {list(input.shape)}"
        )
    if mode == "circular" and max(low, high) > size:
        raise RuntimeError(located("Padding value causes wrapping around more than once."))
    if min(low, high) >= 0 and max(low, high) > 0:
        return T.cat(_parts(input, dim, size, low, high, mode), dim)
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


_APART = 4  # lines, whose gradients are added one by one; those of more are a sum


def _parts(
    input: Tensor, dim: int, size: int, low: int, high: int, mode: str
) -> list[Tensor]:
    """What lies side by side: whole lines are copied, where an index would take each number."""
    parts = [input]
    if low and mode == "reflect":
        parts.insert(0, input.narrow(dim, 1, low).flip(dim))
    elif low and mode == "circular":
        parts.insert(0, input.narrow(dim, size - low, low))
    elif low:
        parts[:0] = _repeated(input, dim, 0, low)
    if high and mode == "reflect":
        parts.append(input.narrow(dim, size - 1 - high, high).flip(dim))
    elif high and mode == "circular":
        parts.append(input.narrow(dim, 0, high))
    elif high:
        parts += _repeated(input, dim, size - 1, high)
    return parts


def _repeated(input: Tensor, dim: int, at: int, times: int) -> list[Tensor]:
    line = input.narrow(dim, at, 1)
    if times <= _APART and local.grad and requires_grad(input):
        return [line] * times
    shape = [times if d == dim else size for d, size in enumerate(input.shape)]
    return [line.expand(shape)]


@replayed
@owns_result
@recorded_as("PixelShuffleBackward0")
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


@replayed
@owns_result
@recorded_as("PixelUnshuffleBackward0")
def pixel_unshuffle(input: Tensor, downscale_factor: int) -> Tensor:
    """The inverse of pixel_shuffle."""
    *lead, channels, height, width = input.shape
    r = downscale_factor
    for side, size, place in (("height", height, -2), ("width", width, -1)):
        if size % r:
            raise RuntimeError(
                f"pixel_unshuffle expects {side} to be divisible by downscale_factor, but "
                f"input.size({place})={size} is not divisible by {r}"
            )
    count = len(lead)
    split = input.reshape([*lead, channels, height // r, r, width // r, r])
    order = [*range(count), count, count + 2, count + 4, count + 1, count + 3]
    found = split.permute(order).reshape([*lead, channels * r * r, height // r, width // r])
    return as_suggested(found, input)


@listed
@replayed
def cosine_similarity(x1: Tensor, x2: Tensor, dim: int = 1, eps: float = 1e-8) -> Tensor:
    """x1 . x2 / (max(|x1|, eps) max(|x2|, eps)) along dim."""
    x1, x2 = T.broadcast_tensors(x1, x2)
    if x1.dtype is not x2.dtype or not x1.dtype.differentiable:
        common = T.result_type(x1, x2)
        if not common.differentiable:
            raise RuntimeError(located(
                "expected common dtype to be floating point, yet common dtype is "
                f"{promote._name(common)}. Cure: x1.float()"
            ))
        x1, x2 = x1.to(common), x2.to(common)
    first, second = (x / _at_least(x.norm(2, dim, keepdim=True), eps) for x in (x1, x2))
    return (first * second).sum(dim)


def _at_least(norm: Tensor, eps: float) -> Tensor:
    """max(norm, eps), with the gradient of norm all the same, as PyTorch's lengths have it."""
    return T.where(norm < eps, norm + (eps - norm.detach()), norm)


@replayed
@recorded_as("NormBackward1")
def pairwise_distance(
    x1: Tensor, x2: Tensor, p: float = 2.0, eps: float = 1e-6, keepdim: bool = False
) -> Tensor:
    """norm_p(x1 - x2 + eps) along the last dim."""
    return (x1 - x2 + eps).norm(p, -1, keepdim=keepdim)
