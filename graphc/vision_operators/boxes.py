"""Features of boxes: RoIAlign (arXiv:1703.06870), RoIPool (arXiv:1504.08083), and both where each
bin has channels of its own (arXiv:1605.06409).

Boxes are rows (image, left, top, right, bottom) in the coordinates of the original images, which
`spatial_scale` takes to those of the features [N, C, H, W]. They get no gradient, as in
torchvision. An empty grid of samples gives 0.
"""

from __future__ import annotations

from typing import NamedTuple

from ..frontend import functions as T
from ..frontend.context import local
from ..frontend.dispatch import apply
from ..frontend.errors import located
from ..frontend.placement import beside
from ..frontend.tensor import Tensor
from ..ir import ops

_NARROW = (T.float16, T.bfloat16)


class _Taps(NamedTuple):
    """The positions that the bins of boxes read along one axis, and their weights [K, bins, n]."""

    places: Tensor
    weights: Tensor


def _checked(name: str, input: Tensor, rois: Tensor, height: int, width: int) -> None:
    if input.dim() != 4:
        raise RuntimeError(located(f"{name}: input is [N, C, H, W], got {list(input.shape)}"))
    if rois.dim() != 2 or rois.shape[1] != 5:
        raise RuntimeError(located(
            f"{name}: rois must have shape as Tensor[K, 5], got {list(rois.shape)}"
        ))
    if input.dtype is not rois.dtype and local.autocast is None:
        raise RuntimeError(located(
            f"{name}: Expected tensor for input to have the same type as tensor for rois; but type "
            f"{input.dtype} does not equal {rois.dtype}"
        ))
    if height < 1 or width < 1:
        raise RuntimeError(located(f"{name}: the bins are {height} x {width}"))


def _divisible(name: str, input: Tensor, height: int, width: int) -> int:
    """The channels of a result whose bins have channels of their own."""
    channels = int(input.shape[1])
    if channels % (height * width):
        raise RuntimeError(located(
            f"{name}: input channels must be a multiple of pooling height * pooling width, got "
            f"{channels} and {height} * {width}"
        ))
    return channels // (height * width)


def _wide(input: Tensor, rois: Tensor) -> tuple[Tensor, Tensor]:
    """Both in the dtype that is computed in; the boxes without a history."""
    wide = input.float() if input.dtype in _NARROW else input
    return wide, rois.detach().to(wide.dtype)


def _line(count: int, like: Tensor) -> Tensor:
    return T.arange(count, dtype=like.dtype)


# --- samples -------------------------------------------------------------------------------------


def _samples(start: Tensor, extent: Tensor, bins: int, ratio: int, size: int) -> _Taps:
    """Bilinear samples of an axis: `ratio` evenly spaced ones in each bin, or, where that is not
    positive, as many as pixels. Beyond a pixel outside, a sample is 0."""
    step = extent / bins
    if ratio > 0:
        most, counts = ratio, T.full_like(extent, ratio)
    else:
        counts = T.ceil(step)
        most = max(int(counts.max()), 1) if int(counts.shape[0]) else 1
    total = counts.clamp(min=1).reshape(-1, 1, 1)
    number = _line(most, start).reshape(1, 1, -1)
    step = step.reshape(-1, 1, 1)
    corner = start.reshape(-1, 1, 1) + _line(bins, start).reshape(1, -1, 1) * step
    place = corner + (T.minimum(number, total - 1) + 0.5) * step / total
    taken = (place >= -1) & (place <= size) & (number < counts.reshape(-1, 1, 1))
    place = T.where(taken, place, 0.0).clamp(0, size - 1)
    low = place.floor()
    part = place - low
    share = T.where(taken, 1 / total, 0.0)
    high = (low + 1).clamp(max=size - 1)
    return _Taps(
        T.cat([low, high], 2).long(), T.cat([share * (1 - part), share * part], 2)
    )


def _aligned(
    name: str, input: Tensor, rois: Tensor, scale: float, bins: tuple[int, int], ratio: int,
    aligned: bool, sensitive: bool,
) -> Tensor:
    _checked(name, input, rois, *bins)
    if 0 in tuple(input.shape)[2:]:
        raise RuntimeError(located(f"{name}: the images {list(input.shape)} are empty"))
    features, boxes = _wide(input, rois)
    edges = boxes[:, 1:] * scale - (0.5 if aligned else 0.0)
    taps: list[Tensor] = []
    for axis, (count, size) in enumerate(zip(bins, tuple(input.shape)[2:], strict=True)):
        start, extent = edges[:, 1 - axis], edges[:, 3 - axis] - edges[:, 1 - axis]
        extent = extent if aligned else extent.clamp(min=1)
        taps += _samples(start, extent, count, ratio, int(size))
    result: Tensor = apply(
        ops.box_pool, features, boxes[:, 0].long(), *taps, sensitive=sensitive
    )
    return result.to(input.dtype)


@beside
def roi_align(
    input: Tensor, rois: Tensor, spatial_scale: float, pooled_height: int, pooled_width: int,
    sampling_ratio: int, aligned: bool,
) -> Tensor:
    """The mean of bilinear samples in each bin of boxes, [K, C, pooled_height, pooled_width].

    `aligned`: pixels are squares around whole coordinates plus a half; where not, a box is at least
    1 x 1. `sampling_ratio` samples per axis of a bin; not positive: as many as pixels.
    """
    bins = int(pooled_height), int(pooled_width)
    return _aligned(
        "roi_align", input, rois, spatial_scale, bins, int(sampling_ratio), aligned, False
    )


@beside
def ps_roi_align(
    input: Tensor, rois: Tensor, spatial_scale: float, pooled_height: int, pooled_width: int,
    sampling_ratio: int,
) -> tuple[Tensor, Tensor]:
    """roi_align() (aligned) where bin (p, q) of channel c reads channel (c * height + p) * width +
    q; and these numbers, int32."""
    bins = int(pooled_height), int(pooled_width)
    _checked("ps_roi_align", input, rois, *bins)
    channels = _divisible("ps_roi_align", input, *bins)
    result = _aligned(
        "ps_roi_align", input, rois, spatial_scale, bins, int(sampling_ratio), True, True
    )
    return result, _channels_read(rois, channels, bins)


def _channels_read(rois: Tensor, channels: int, bins: tuple[int, int]) -> Tensor:
    numbers = T.arange(channels * bins[0] * bins[1], dtype=T.int32)
    return numbers.reshape(1, channels, *bins).repeat(rois.shape[0], 1, 1, 1)


# --- whole pixels --------------------------------------------------------------------------------


def _rounded(x: Tensor) -> Tensor:
    """To the nearest whole number, halves away from 0."""
    whole = x.trunc()
    return whole + T.where((x - whole).abs() >= 0.5, x.sign(), 0.0)


def _edges(
    start: Tensor, end: Tensor, bins: int, least: int, most: int
) -> tuple[Tensor, Tensor]:
    """The first pixel of each bin of boxes [K, bins], and the one behind its last; both within
    0 .. most. A box has as many pixels as its ends are apart, and `least` more; at least one."""
    start, end = _rounded(start), _rounded(end)
    step = ((end - start + least).clamp(min=1) / bins).reshape(-1, 1)
    number = _line(bins, start)
    first = (number * step).floor() + start.reshape(-1, 1)
    behind = ((number + 1) * step).ceil() + start.reshape(-1, 1)
    return first.clamp(0, most).long(), behind.clamp(0, most).long()


@beside
def roi_pool(
    input: Tensor, rois: Tensor, spatial_scale: float, pooled_height: int, pooled_width: int
) -> tuple[Tensor, Tensor]:
    """The largest pixel in each bin of boxes [K, C, pooled_height, pooled_width], 0 where a bin
    has none; and its position in the plane, int32, or -1. NaN counts as the largest."""
    _checked("roi_pool", input, rois, int(pooled_height), int(pooled_width))
    features, boxes = _wide(input, rois)
    count, channels, height, width = tuple(features.shape)
    edges = boxes[:, 1:] * spatial_scale
    rows = _edges(edges[:, 1], edges[:, 3], int(pooled_height), 1, int(height))
    columns = _edges(edges[:, 0], edges[:, 2], int(pooled_width), 1, int(width))
    image = boxes[:, 0].long()
    where: Tensor = apply(ops.box_argmax, features.detach(), image, *rows, *columns)
    if 0 in (int(height), int(width)):
        return features.new_zeros(where.shape).to(input.dtype), where.to(T.int32)
    taken = apply(
        ops.index, features.reshape(count, channels, height * width), image.reshape(-1, 1, 1, 1),
        T.arange(channels).reshape(1, -1, 1, 1), where.clamp(min=0), dim=0,
    )
    result = T.where(where < 0, 0.0, taken)
    return result.to(input.dtype), where.to(T.int32)


@beside
def ps_roi_pool(
    input: Tensor, rois: Tensor, spatial_scale: float, pooled_height: int, pooled_width: int
) -> tuple[Tensor, Tensor]:
    """The mean of the pixels in each bin of boxes, 0 where there is none, where bin (p, q) of
    channel c reads channel (c * height + p) * width + q; and these numbers, int32.

    As in torchvision, the last row and column of the features belong to no bin. The gradient is
    that of this function (torchvision's counts them in).
    """
    bins = int(pooled_height), int(pooled_width)
    _checked("ps_roi_pool", input, rois, *bins)
    channels = _divisible("ps_roi_pool", input, *bins)
    features, boxes = _wide(input, rois)
    if 0 in tuple(input.shape)[2:]:
        raise RuntimeError(located(f"ps_roi_pool: the images {list(input.shape)} are empty"))
    edges = boxes[:, 1:] * spatial_scale
    taps: list[Tensor] = []
    for axis, (count, size) in enumerate(zip(bins, tuple(features.shape)[2:], strict=True)):
        first, behind = _edges(edges[:, 1 - axis], edges[:, 3 - axis], count, 0, int(size) - 1)
        taps += _means(first, behind, features)
    result: Tensor = apply(ops.box_pool, features, boxes[:, 0].long(), *taps, sensitive=True)
    return result.to(input.dtype), _channels_read(rois, channels, bins)


def _means(first: Tensor, behind: Tensor, like: Tensor) -> _Taps:
    """Taps of all pixels of each bin, with equal weights."""
    pixels = (behind - first).clamp(min=0)
    most = max(int(pixels.max()), 1) if int(pixels.shape[0]) else 1
    number = T.arange(most).reshape(1, 1, -1)
    pixels = pixels.unsqueeze(2)
    share = 1 / pixels.clamp(min=1).to(like.dtype)
    last = (pixels - 1).clamp(min=0)
    return _Taps(
        first.unsqueeze(2) + T.minimum(number, last), T.where(number < pixels, share, 0.0)
    )
