"""Unpooling, fractional and power-average pooling, and pooling with indices."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

from ...frontend import functions as T
from ...frontend.autocast import listed
from ...frontend.functions.arguments import recorded_as
from ...frontend.ownership import owns_result
from ...frontend.tensor import Tensor
from .conv import tuple_of
from .pooling import (
    adaptive_max_pool1d,
    adaptive_max_pool2d,
    adaptive_max_pool3d,
    avg_pool1d,
    avg_pool2d,
    avg_pool3d,
    max_pool1d,
    max_pool2d,
    max_pool3d,
)


def _with_indices(pool: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(pool)
    def pooled(*args: Any, **kwargs: Any) -> Any:
        return pool(*args, **{**kwargs, "return_indices": True})

    pooled.__name__ = pool.__name__ + "_with_indices"
    pooled.__doc__ = f"{pool.__name__} with return_indices=True."
    return pooled


max_pool1d_with_indices = _with_indices(max_pool1d)
max_pool2d_with_indices = _with_indices(max_pool2d)
max_pool3d_with_indices = _with_indices(max_pool3d)
adaptive_max_pool1d_with_indices = _with_indices(adaptive_max_pool1d)
adaptive_max_pool2d_with_indices = _with_indices(adaptive_max_pool2d)
adaptive_max_pool3d_with_indices = _with_indices(adaptive_max_pool3d)


def _power_average(
    pool: Callable[..., Tensor], spatial: int, input: Tensor, power: Any, kernel_size: Any,
    stride: Any, ceil_mode: bool,
) -> Tensor:
    mean = pool(input.pow(power), kernel_size, stride, 0, ceil_mode)
    count = math.prod(tuple_of(kernel_size, spatial, "kernel_size"))
    # relu keeps the root from negative sums of odd powers
    return (T.sign(mean) * T.relu(T.abs(mean))).mul(count).pow(1.0 / power)


def lp_pool1d(
    input: Tensor, norm_type: float, kernel_size: Any, stride: Any = None,
    ceil_mode: bool = False,
) -> Tensor:
    """The p-norm of each window of [N, C, L]."""
    return _power_average(avg_pool1d, 1, input, norm_type, kernel_size, stride, ceil_mode)


def lp_pool2d(
    input: Tensor, norm_type: float, kernel_size: Any, stride: Any = None,
    ceil_mode: bool = False,
) -> Tensor:
    """The p-norm of each window of [N, C, H, W]."""
    return _power_average(avg_pool2d, 2, input, norm_type, kernel_size, stride, ceil_mode)


def lp_pool3d(
    input: Tensor, norm_type: float, kernel_size: Any, stride: Any = None,
    ceil_mode: bool = False,
) -> Tensor:
    """The p-norm of each window of [N, C, D, H, W]."""
    return _power_average(avg_pool3d, 3, input, norm_type, kernel_size, stride, ceil_mode)


def _unpooled_sizes(
    input: Tensor, spatial: int, kernel: Any, stride: Any, padding: Any, wanted: Any
) -> list[int]:
    sizes = tuple(input.shape)[input.dim() - spatial :]
    default = [
        (sizes[d] - 1) * stride[d] + kernel[d] - 2 * padding[d] for d in range(spatial)
    ]
    if wanted is None:
        return default
    given = list(wanted)
    if len(given) == spatial + 2:
        given = given[2:]
    if len(given) != spatial:
        raise ValueError(
            "output_size should be a sequence containing "
            f"{spatial} or {spatial + 2} elements, but it has a length of '{len(given)}'"
        )
    for d in range(spatial):
        low, high = default[d] - stride[d], default[d] + stride[d]
        if not low < given[d] < high:
            raise ValueError(
                f'invalid output_size "{given}" (dim {d} must be between {low} and {high})'
            )
    return given


@owns_result
def _unpool(
    spatial: int, input: Tensor, indices: Tensor, kernel_size: Any, stride: Any, padding: Any,
    output_size: Any,
) -> Tensor:
    kernel = tuple_of(kernel_size, spatial, "kernel_size")
    step = kernel if stride is None else tuple_of(stride, spatial, "stride")
    border = tuple_of(padding, spatial, "padding")
    sizes = _unpooled_sizes(input, spatial, kernel, step, border, output_size)
    if indices.dtype is not T.int64:
        raise RuntimeError(
            f"elements in indices should be type int64 but got: {indices.dtype}"
        )
    if tuple(input.shape) != tuple(indices.shape):
        raise RuntimeError(
            f"Expected shape of indices to be: {list(input.shape)} but got: "
            f"{list(indices.shape)}"
        )
    lead = list(input.shape)[: input.dim() - spatial]
    plane = T.zeros([*lead, math.prod(sizes)], dtype=input.dtype)
    flat = plane.scatter(-1, indices.flatten(-spatial), input.flatten(-spatial))
    return flat.reshape([*lead, *sizes])


def max_unpool1d(
    input: Tensor, indices: Tensor, kernel_size: Any, stride: Any = None, padding: Any = 0,
    output_size: Any = None,
) -> Tensor:
    """Maxima back at the places that max_pool1d took them from, 0 elsewhere."""
    return _unpool(1, input, indices, kernel_size, stride, padding, output_size)


@listed
@recorded_as("MaxUnpool2DBackward0")
def max_unpool2d(
    input: Tensor, indices: Tensor, kernel_size: Any, stride: Any = None, padding: Any = 0,
    output_size: Any = None,
) -> Tensor:
    """Maxima back at the places that max_pool2d took them from, 0 elsewhere."""
    return _unpool(2, input, indices, kernel_size, stride, padding, output_size)


@listed
@recorded_as("MaxUnpool3DBackward0")
def max_unpool3d(
    input: Tensor, indices: Tensor, kernel_size: Any, stride: Any = None, padding: Any = 0,
    output_size: Any = None,
) -> Tensor:
    """Maxima back at the places that max_pool3d took them from, 0 elsewhere."""
    return _unpool(3, input, indices, kernel_size, stride, padding, output_size)


def _starts(sample: Tensor, size: int, count: int, window: int) -> Tensor:
    """First positions [N, C, count] of the windows of one dim, spaced at random."""
    if count == 1:
        return T.full([*sample.shape, 1], size - window, dtype=T.int64)
    spacing = T.tensor((size - window) / (count - 1), dtype=T.float64).to(sample.dtype)
    steps = T.arange(count - 1, dtype=sample.dtype)
    moved = ((steps + sample.unsqueeze(-1)) * spacing).long()
    first = moved - (sample.unsqueeze(-1) * spacing).long()
    last = T.full([*sample.shape, 1], size - window, dtype=T.int64)
    return T.cat([first, last], -1)


def _fractional(
    spatial: int, input: Tensor, kernel_size: Any, output_size: Any, output_ratio: Any,
    samples: Tensor | None,
) -> tuple[Tensor, Tensor]:
    name = f"fractional_max_pool{spatial}d"
    if output_size is None and output_ratio is None:
        raise ValueError(f"{name} requires specifying either an output_size or an output_ratio")
    window = tuple_of(kernel_size, spatial, "kernel_size")
    sizes = [int(s) for s in tuple(input.shape)[input.dim() - spatial :]]
    if output_size is None:
        ratios = output_ratio if isinstance(output_ratio, (tuple, list)) else (
            [output_ratio] * spatial)
        output_size = [int(s * r) for s, r in zip(sizes, ratios, strict=True)]
    counts = tuple_of(output_size, spatial, "output_size")
    for size, count, width in zip(sizes, counts, window, strict=True):
        if count + width - 1 > size:
            raise RuntimeError(
                f"{name}(): pool size {width} too large relative to input size {size} for "
                f"{count} outputs"
            )
    batched = input.dim() == spatial + 2
    x = input if batched else input.unsqueeze(0)
    batch, channels = x.shape[0], x.shape[1]
    if samples is None:
        samples = T.rand([batch, channels, spatial], dtype=input.dtype, device=input.device)
    samples = samples[:batch, :channels]
    # torch's order of the samples: W, H in the plane, but T, H, W in space
    order = (1, 0) if spatial == 2 else (0, 1, 2)
    flat: Any = T.zeros([1] * (2 + 2 * spatial), dtype=T.int64)
    for d in range(spatial):
        starts = _starts(samples[..., order[d]], sizes[d], counts[d], window[d])
        places = starts.unsqueeze(-1) + T.arange(window[d])
        shape = [batch, channels] + [1] * (2 * spatial)
        shape[2 + d], shape[2 + spatial + d] = counts[d], window[d]
        flat = flat * sizes[d] + places.reshape(shape)
    inside = math.prod(window)
    index = flat.reshape([batch, channels, math.prod(counts) * inside])
    values = x.reshape([batch, channels, math.prod(sizes)]).gather(2, index)
    values = values.reshape([batch, channels, *counts, inside])
    best = values.detach().argmax(-1, keepdim=True)
    picked = values.gather(-1, best).squeeze(-1)
    where = index.reshape([batch, channels, *counts, inside]).gather(-1, best).squeeze(-1)
    return (picked, where) if batched else (picked.squeeze(0), where.squeeze(0))


@owns_result
@functools.partial(listed, name="fractional_max_pool2d")
def fractional_max_pool2d_with_indices(
    input: Tensor, kernel_size: Any, output_size: Any = None, output_ratio: Any = None,
    return_indices: bool = False, _random_samples: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """fractional_max_pool2d with return_indices=True."""
    return _fractional(2, input, kernel_size, output_size, output_ratio, _random_samples)


@owns_result
@functools.partial(listed, name="fractional_max_pool3d")
def fractional_max_pool3d_with_indices(
    input: Tensor, kernel_size: Any, output_size: Any = None, output_ratio: Any = None,
    return_indices: bool = False, _random_samples: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """fractional_max_pool3d with return_indices=True."""
    return _fractional(3, input, kernel_size, output_size, output_ratio, _random_samples)


@listed
def fractional_max_pool2d(
    input: Tensor, kernel_size: Any, output_size: Any = None, output_ratio: Any = None,
    return_indices: bool = False, _random_samples: Tensor | None = None,
) -> Any:
    """Max pooling of windows spaced at random (Graham 2014)."""
    found = _fractional(2, input, kernel_size, output_size, output_ratio, _random_samples)
    return found if return_indices else found[0]


@listed
def fractional_max_pool3d(
    input: Tensor, kernel_size: Any, output_size: Any = None, output_ratio: Any = None,
    return_indices: bool = False, _random_samples: Tensor | None = None,
) -> Any:
    """Max pooling of windows spaced at random, in space."""
    found = _fractional(3, input, kernel_size, output_size, output_ratio, _random_samples)
    return found if return_indices else found[0]
