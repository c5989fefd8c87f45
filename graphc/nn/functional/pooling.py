"""Pooling."""

from __future__ import annotations

import math
from typing import Any

from ...frontend import functions as T
from ...frontend.dispatch import apply
from ...frontend.tensor import Tensor
from ...ir import ops
from .conv import tuple_of


def _geometry(
    spatial: int, input: Tensor, kernel_size: Any, stride: Any, padding: Any, dilation: Any,
    ceil_mode: bool, name: str,
) -> dict[str, Any]:
    if input.dim() not in (spatial + 1, spatial + 2):
        raise RuntimeError(
            f"{name}: Expected {spatial + 1}D or {spatial + 2}D input, got {input.dim()}D"
        )
    window = tuple_of(kernel_size, spatial, "kernel_size")
    steps = window if stride is None or stride == [] else tuple_of(stride, spatial, "stride")
    low = tuple_of(padding, spatial, "padding")
    dilation = tuple_of(dilation, spatial, "dilation")
    high = []
    for i in range(spatial):
        if low[i] > window[i] // 2:
            raise RuntimeError(
                f"pad should be at most half of effective kernel size, but got pad={low[i]}, "
                f"kernel_size={window[i]} and dilation={dilation[i]}"
            )
        size = input.shape[input.dim() - spatial + i]
        span = dilation[i] * (window[i] - 1) + 1
        extra = 0
        if ceil_mode:
            outputs = math.ceil((size + 2 * low[i] - span) / steps[i]) + 1
            # the last window must start inside the input or its left padding
            if (outputs - 1) * steps[i] >= size + low[i]:
                outputs -= 1
            extra = max(0, (outputs - 1) * steps[i] + span - (size + 2 * low[i]))
        high.append(low[i] + extra)
    return {
        "window": window, "stride": steps, "pad_low": low, "pad_high": tuple(high),
        "dilation": dilation,
    }


def _max_pool(
    spatial: int, input: Tensor, kernel_size: Any, stride: Any, padding: Any, dilation: Any,
    ceil_mode: bool, return_indices: bool,
) -> Any:
    name = f"max_pool{spatial}d"
    geometry = _geometry(
        spatial, input, kernel_size, stride, padding, dilation, ceil_mode, name
    )
    values, indices = apply(ops.max_pool, input, **geometry)
    return (values, indices) if return_indices else values


def max_pool1d(
    input: Tensor, kernel_size: Any, stride: Any = None, padding: Any = 0, dilation: Any = 1,
    ceil_mode: bool = False, return_indices: bool = False,
) -> Any:
    """The maximum of each window of [N, C, L]."""
    return _max_pool(
        1, input, kernel_size, stride, padding, dilation, ceil_mode, return_indices
    )


def max_pool2d(
    input: Tensor, kernel_size: Any, stride: Any = None, padding: Any = 0, dilation: Any = 1,
    ceil_mode: bool = False, return_indices: bool = False,
) -> Any:
    """The maximum of each window of [N, C, H, W]."""
    return _max_pool(
        2, input, kernel_size, stride, padding, dilation, ceil_mode, return_indices
    )


def max_pool3d(
    input: Tensor, kernel_size: Any, stride: Any = None, padding: Any = 0, dilation: Any = 1,
    ceil_mode: bool = False, return_indices: bool = False,
) -> Any:
    """The maximum of each window of [N, C, D, H, W]."""
    return _max_pool(
        3, input, kernel_size, stride, padding, dilation, ceil_mode, return_indices
    )


def _window_counts(input: Tensor, geometry: dict[str, Any], include_pad: bool) -> Tensor:
    """How many elements each window averages, as a tensor of the pooled trailing shape."""
    spatial = len(geometry["window"])
    sizes = tuple(input.shape)[input.dim() - spatial :]
    ones = T.ones(sizes, dtype=input.dtype)
    counted = dict(geometry)
    if include_pad:
        # explicit padding counts, what ceil_mode adds beyond it does not
        low = geometry["pad_low"]
        ones = T.ones(tuple(s + 2 * p for s, p in zip(sizes, low, strict=True)), dtype=input.dtype)
        counted["pad_high"] = tuple(
            h - p for h, p in zip(geometry["pad_high"], low, strict=True)
        )
        counted["pad_low"] = (0,) * spatial
    return apply(ops.window_sum, ones, **counted)


def _avg_pool(
    spatial: int, input: Tensor, kernel_size: Any, stride: Any, padding: Any, ceil_mode: bool,
    count_include_pad: bool, divisor_override: int | None,
) -> Tensor:
    geometry = _geometry(
        spatial, input, kernel_size, stride, padding, 1, ceil_mode, f"avg_pool{spatial}d"
    )
    total = apply(ops.window_sum, input, **geometry)
    if divisor_override is not None:
        if divisor_override == 0:
            raise RuntimeError("divisor must be not zero")
        return total / divisor_override
    padded = any(geometry["pad_low"]) or any(geometry["pad_high"])
    if not padded or (count_include_pad and geometry["pad_low"] == geometry["pad_high"]):
        return total / math.prod(geometry["window"])
    return total / _window_counts(input, geometry, count_include_pad)


def avg_pool1d(
    input: Tensor, kernel_size: Any, stride: Any = None, padding: Any = 0,
    ceil_mode: bool = False, count_include_pad: bool = True,
) -> Tensor:
    """The mean of each window of [N, C, L]."""
    return _avg_pool(1, input, kernel_size, stride, padding, ceil_mode, count_include_pad, None)


def avg_pool2d(
    input: Tensor, kernel_size: Any, stride: Any = None, padding: Any = 0,
    ceil_mode: bool = False, count_include_pad: bool = True, divisor_override: int | None = None,
) -> Tensor:
    """The mean of each window of [N, C, H, W]."""
    return _avg_pool(
        2, input, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override
    )


def avg_pool3d(
    input: Tensor, kernel_size: Any, stride: Any = None, padding: Any = 0,
    ceil_mode: bool = False, count_include_pad: bool = True, divisor_override: int | None = None,
) -> Tensor:
    """The mean of each window of [N, C, D, H, W]."""
    return _avg_pool(
        3, input, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override
    )


def _adaptive_sizes(input: Tensor, output_size: Any, spatial: int) -> tuple[int, ...]:
    given = output_size if isinstance(output_size, (tuple, list)) else (output_size,) * spatial
    sizes = tuple(input.shape)[input.dim() - spatial :]
    return tuple(s if o is None else o for o, s in zip(given, sizes, strict=True))


def _bounds(size: int, outputs: int) -> list[tuple[int, int]]:
    return [(i * size // outputs, -(-(i + 1) * size // outputs)) for i in range(outputs)]


def _adaptive(spatial: int, input: Tensor, output_size: Any, kind: str) -> Any:
    """Windows that divide evenly go to the plain pool; others one dim at a time."""
    outputs = _adaptive_sizes(input, output_size, spatial)
    sizes = tuple(input.shape)[input.dim() - spatial :]
    if all(o and s % o == 0 for s, o in zip(sizes, outputs, strict=True)):
        window = tuple(s // o for s, o in zip(sizes, outputs, strict=True))
        if kind == "avg":
            return _avg_pool(spatial, input, window, window, 0, False, True, None)
        return _max_pool(spatial, input, window, window, 0, 1, False, False)
    result = input
    for i in range(spatial):
        dim = input.dim() - spatial + i
        parts = []
        for begin, end in _bounds(sizes[i], outputs[i]):
            part = result.narrow(dim, begin, end - begin)
            parts.append(
                part.mean(dim, keepdim=True) if kind == "avg" else part.amax(dim, keepdim=True)
            )
        result = T.cat(parts, dim)
    return result


def adaptive_avg_pool1d(input: Tensor, output_size: Any) -> Tensor:
    """Mean pooling to a given output length."""
    result: Tensor = _adaptive(1, input, output_size, "avg")
    return result


def adaptive_avg_pool2d(input: Tensor, output_size: Any) -> Tensor:
    """Mean pooling to a given output height and width."""
    result: Tensor = _adaptive(2, input, output_size, "avg")
    return result


def adaptive_avg_pool3d(input: Tensor, output_size: Any) -> Tensor:
    """Mean pooling to a given output size."""
    result: Tensor = _adaptive(3, input, output_size, "avg")
    return result


def adaptive_max_pool1d(input: Tensor, output_size: Any) -> Tensor:
    """Max pooling to a given output length."""
    result: Tensor = _adaptive(1, input, output_size, "max")
    return result


def adaptive_max_pool2d(input: Tensor, output_size: Any) -> Tensor:
    """Max pooling to a given output height and width."""
    result: Tensor = _adaptive(2, input, output_size, "max")
    return result
