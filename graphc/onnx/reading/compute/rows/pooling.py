"""Pools: the largest, the mean or a norm of each window."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

from .....frontend import functions as T
from .....frontend.dispatch import apply
from .....frontend.tensor import Tensor
from .....ir import ops
from .....nn import functional as F
from .....vision_operators.boxes import roi_pool
from ..numbers import Numbers
from ..table import Node, operator
from .windows import Windows, positive, windows_of


def _geometry(node: Node, x: Tensor) -> tuple[Windows, tuple[Any, ...]]:
    """The windows, and the padding behind that ceil_mode adds to theirs."""
    sizes = tuple(x.shape)[2:]
    if not sizes:
        node.refuse(f"its input is {list(x.shape)}", "give it spatial dims")
    windows = windows_of(node, sizes, None)
    if not node.get("ceil_mode", 0) or node.get("auto_pad", "NOTSET") != "NOTSET":
        return windows, (0,) * windows.rank
    more = []
    for size, s, low, high, span in zip(
        sizes, windows.stride, windows.low, windows.high, windows.spans, strict=True
    ):
        padded = size + low + high
        outputs = -(-(padded - span) // s) + 1
        if (outputs - 1) * s >= size + low:  # the last window begins inside
            outputs -= 1
        more.append(max(0, (outputs - 1) * s + span - padded))
    return windows, tuple(more)


def _arguments(windows: Windows, more: tuple[Any, ...]) -> dict[str, Any]:
    return {
        "window": windows.kernel, "stride": windows.stride, "pad_low": windows.low,
        "pad_high": tuple(a + b for a, b in zip(windows.high, more, strict=True)),
        "dilation": windows.dilation,
    }


@operator("MaxPool", 1)
def max_pool(node: Node, x: Tensor) -> Any:
    """The largest of each window, and its position in the whole tensor."""
    windows, more = _geometry(node, x)
    if any(2 * low > span for low, span in zip(windows.low, windows.spans, strict=True)):
        return _max_of_padded(node, x, windows, more)
    values, places = apply(ops.max_pool, x, **_arguments(windows, more))
    if not node.wants(1):
        return values
    sizes = tuple(x.shape)[2:]
    if node.get("storage_order", 0):
        places = _by_columns(places, sizes)
    plane = math.prod(sizes)
    start = T.arange(x.shape[0] * x.shape[1]) * plane
    return values, places + start.reshape(*x.shape[:2], *[1] * windows.rank)


def _max_of_padded(node: Node, x: Tensor, windows: Windows, more: tuple[Any, ...]) -> Tensor:
    """Where paddings are wider than half a window, which torch's pools do not take."""
    if node.wants(1) or not x.dtype.is_floating_point:
        node.refuse(f"its pads are {list(windows.low)}", "give it at most half a window")
    around = zip(windows.low[::-1], windows.high[::-1], more[::-1], strict=True)
    pads = [n for low, high, extra in around for n in (low, high + extra)]
    none = (0,) * windows.rank
    moved = replace(windows, low=none, high=none)
    return apply(ops.max_pool, F.pad(x, pads, value=-math.inf), **_arguments(moved, none))[0]


def _by_columns(places: Tensor, sizes: tuple[Any, ...]) -> Tensor:
    """Positions in a plane as if its first dim changed fastest."""
    parts, rest = [], places
    for size in sizes[::-1]:
        parts.append(rest % size)
        rest = rest // size
    found, factor = T.zeros_like(places), 1
    for part, size in zip(parts[::-1], sizes, strict=True):
        found = found + part * factor
        factor = factor * size
    return found


def _counts(windows: Windows, more: tuple[Any, ...], x: Tensor, padded: bool) -> Any:
    """How many elements each window has: of the input, or of its padding, too."""
    if not any((*windows.low, *windows.high, *more)) or (padded and not any(more)):
        return math.prod(windows.kernel)
    sizes = list(x.shape)[2:]
    arguments = _arguments(windows, more)
    if padded:
        sizes = [s + a + b for s, a, b in zip(sizes, windows.low, windows.high, strict=True)]
        arguments |= {"pad_low": (0,) * windows.rank, "pad_high": more}
    return apply(ops.window_sum, T.ones(1, 1, *sizes, dtype=x.dtype), **arguments)


@operator("AveragePool", 1)
def average_pool(node: Node, x: Tensor) -> Any:
    windows, more = _geometry(node, x)
    total = apply(ops.window_sum, x, **_arguments(windows, more))
    return total / _counts(windows, more, x, bool(node.get("count_include_pad", 0)))


@operator("LpPool", 2)
def power_pool(node: Node, x: Tensor) -> Any:
    p = node.get("p", 2)
    windows, more = _geometry(node, x)
    powers = x * x if p == 2 else x.abs() ** p
    return apply(ops.window_sum, powers, **_arguments(windows, more)) ** (1.0 / p)


@operator("MaxUnpool", 9, numbers=(2,))
def max_unpool(node: Node, x: Tensor, places: Tensor, shape: Numbers | None = None) -> Any:
    """Zeros, with x at the places that MaxPool has told."""
    rank = x.dim() - 2
    kernel = tuple(node.get("kernel_shape", ()))
    stride, pads = positive(node, "strides", rank), positive(node, "pads", 2 * rank, 0)
    sizes = [
        (size - 1) * s + k - pads[i] - pads[rank + i]
        for i, (size, s, k) in enumerate(zip(x.shape[2:], stride, kernel, strict=True))
    ]
    own = [*x.shape[:2], *sizes]
    flat = T.zeros(math.prod(own), dtype=x.dtype)
    found = flat.scatter(0, places.reshape(-1), x.reshape(-1))
    if shape is None:
        return found.reshape(own)
    # the places count in the smaller tensor; what is added lies behind
    wanted = shape.integers()
    found = found.reshape(own)
    for i, (have, want) in enumerate(zip(own, wanted, strict=True)):
        if want > have:
            more = [*found.shape]
            more[i] = want - have
            found = T.cat([found, T.zeros(more, dtype=x.dtype)], i)
    return found


@operator("MaxRoiPool", 1)
def max_roi_pool(node: Node, x: Tensor, rois: Tensor) -> Any:
    height, width = node.get("pooled_shape")
    return roi_pool(x, rois, node.get("spatial_scale", 1.0), height, width)[0]
