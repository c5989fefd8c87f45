"""Pooling."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ...frontend import functions as T
from ...frontend import promote
from ...frontend.autocast import listed
from ...frontend.dispatch import apply, fixed
from ...frontend.functions.arguments import named, recorded_as
from ...frontend.numbers import is_traced_number
from ...frontend.ownership import owns_result
from ...frontend.replayed import replayed
from ...frontend.result_layouts import as_suggested, in_rows
from ...frontend.tensor import Tensor
from ...ir import dtypes, ops
from .conv import tuple_of


def _geometry(
    spatial: int, input: Tensor, kernel_size: Any, stride: Any, padding: Any, dilation: Any,
    ceil_mode: bool, name: str,
) -> dict[str, Any]:
    if input.dim() not in (spatial + 1, spatial + 2):
        if spatial == 2 and name.startswith("max"):
            raise RuntimeError(
                "non-empty 3D or 4D (batch mode) tensor expected for input, but got "
                f"{input.dim()}D"
            )
        raise RuntimeError(
            f"{name}: Expected {spatial + 1}D or {spatial + 2}D input, got {input.dim()}D"
        )
    window = tuple_of(kernel_size, spatial, "kernel_size")
    steps = window if stride is None or stride in ([], ()) else tuple_of(stride, spatial, "stride")
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


def _not_empty(spatial: int, input: Tensor, name: str) -> None:
    """Raise RuntimeError where any dim but a batch of size 0 is empty."""
    batched = input.dim() == spatial + 2
    sizes = tuple(input.shape)
    if not (batched or input.dim() == spatial + 1):
        return
    for dim in range(int(batched), len(sizes)):
        if sizes[dim] != 0:
            continue
        if spatial == 3:
            raise RuntimeError(
                f"{name}(): Expected input's non-batch dimensions to have positive length, but "
                f"input has a shape of {list(sizes)} and non-batch dimension {dim} has length zero!"
            )
        title = "max_pool1d: " if name == "max_pool1d" else ""
        raise RuntimeError(
            f"{title}Expected {spatial + 1}D or {spatial + 2}D "
            f"(batch mode) tensor with optional 0 dim batch size for input, but got:{list(sizes)}"
        )


def _max_pool(
    spatial: int, input: Tensor, kernel_size: Any, stride: Any, padding: Any, dilation: Any,
    ceil_mode: bool, return_indices: bool,
) -> Any:
    name = f"max_pool{spatial}d"
    _not_empty(spatial, input, name)
    geometry = _geometry(
        spatial, input, kernel_size, stride, padding, dilation, ceil_mode, name
    )
    values, indices = apply(ops.max_pool, input, **geometry)
    return (values, indices) if return_indices else values


@replayed
@recorded_as("SqueezeBackward1")
def max_pool1d(
    input: Tensor, kernel_size: Any, stride: Any = None, padding: Any = 0, dilation: Any = 1,
    ceil_mode: bool = False, return_indices: bool = False,
) -> Any:
    """The maximum of each window of [N, C, L]."""
    return _max_pool(
        1, input, kernel_size, stride, padding, dilation, ceil_mode, return_indices
    )


@replayed
def max_pool2d(
    input: Tensor, kernel_size: Any, stride: Any = None, padding: Any = 0, dilation: Any = 1,
    ceil_mode: bool = False, return_indices: bool = False,
) -> Any:
    """The maximum of each window of [N, C, H, W]."""
    return _max_pool(
        2, input, kernel_size, stride, padding, dilation, ceil_mode, return_indices
    )


@listed
@replayed
@recorded_as("MaxPool3DWithIndicesBackward0")
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
    if not input.dtype.is_floating_point:  # integers, cut to integers at the end
        rest = kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override
        return _avg_pool(spatial, input.double(), *rest).trunc().to(input.dtype)
    geometry = _geometry(
        spatial, input, kernel_size, stride, padding, 1, ceil_mode, f"avg_pool{spatial}d"
    )
    if spatial == 3:
        _check_image(input, geometry)
    total = apply(ops.window_sum, input, **geometry)
    if divisor_override is not None:
        if divisor_override == 0:
            raise RuntimeError("divisor must be not zero")
        return total / divisor_override
    padded = any(geometry["pad_low"]) or any(geometry["pad_high"])
    if not padded or (count_include_pad and geometry["pad_low"] == geometry["pad_high"]):
        return total / math.prod(geometry["window"])
    return total / _window_counts(input, geometry, count_include_pad)


def _check_image(input: Tensor, geometry: dict[str, Any]) -> None:
    """Windows of avg_pool3d fit into the padded input, in ceil_mode too."""
    image, window = list(input.shape)[-3:], geometry["window"]
    padded = [s + 2 * p for s, p in zip(image, geometry["pad_low"], strict=True)]
    if any(s < k for s, k in zip(padded, window, strict=True)):
        had = " ".join(f"{c}: {s}" for c, s in zip("THW", image, strict=True))
        wanted = " ".join(f"k{c}: {k}" for c, k in zip("THW", window, strict=True))
        raise RuntimeError(f"input image ({had}) smaller than kernel size ({wanted})")


@replayed
@recorded_as("SqueezeBackward1")
def avg_pool1d(
    input: Tensor, kernel_size: Any, stride: Any = None, padding: Any = 0,
    ceil_mode: bool = False, count_include_pad: bool = True,
) -> Tensor:
    """The mean of each window of [N, C, L]."""
    _not_empty(1, input, "avg_pool1d")
    return _avg_pool(1, input, kernel_size, stride, padding, ceil_mode, count_include_pad, None)


@replayed
@recorded_as("AvgPool2DBackward0")
def avg_pool2d(
    input: Tensor, kernel_size: Any, stride: Any = None, padding: Any = 0,
    ceil_mode: bool = False, count_include_pad: bool = True, divisor_override: int | None = None,
) -> Tensor:
    """The mean of each window of [N, C, H, W]."""
    _not_empty(2, input, "avg_pool2d")
    return _avg_pool(
        2, input, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override
    )


@listed
@replayed
@recorded_as("AvgPool3DBackward0")
def avg_pool3d(
    input: Tensor, kernel_size: Any, stride: Any = None, padding: Any = 0,
    ceil_mode: bool = False, count_include_pad: bool = True, divisor_override: int | None = None,
) -> Tensor:
    """The mean of each window of [N, C, D, H, W]."""
    _not_empty(3, input, "avg_pool3d")
    return _avg_pool(
        3, input, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override
    )


def _adaptive_sizes(
    input: Tensor, output_size: Any, spatial: int, kind: str
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The sizes asked for (None keeps one) and those of the input."""
    several = isinstance(output_size, (tuple, list))
    if spatial > 1 and several and input.dim() <= len(output_size):
        raise ValueError(f"Input dimension should be at least {len(output_size) + 1}")
    if input.dim() not in (spatial + 1, spatial + 2):
        raise RuntimeError(
            f"adaptive_{kind}_pool{spatial}d(): Expected {spatial + 1}D or {spatial + 2}D tensor, "
            f"but got: {list(input.shape)}"
        )
    given = output_size if several else (output_size,) * spatial
    if len(given) != spatial:
        raise RuntimeError(
            f"adaptive_{kind}_pool{spatial}d: output_size must be {spatial} sizes, got "
            f"{output_size}"
        )
    if any(o is not None and o < 0 for o in given):
        numbers = ", ".join(str(o) for o in given)
        raise RuntimeError(
            f"adaptive_avg_pool{spatial}d: elements of output_size must be greater than or equal "
            f"to 0 but received {{{numbers}}}" if kind == "avg" else
            f"Trying to create tensor with negative dimension {min(o for o in given if o)}: "
            f"[{numbers}]"
        )
    sizes = tuple(input.shape)[input.dim() - spatial :]
    return tuple(s if o is None else o for o, s in zip(given, sizes, strict=True)), sizes


def _check_adaptive(input: Tensor, spatial: int, kind: str, first: int) -> None:
    """Raise where the dtype has no such pool, or a dim from `first` on is empty."""
    name = f"adaptive_{kind}_pool{spatial}d"
    if not input.dtype.is_floating_point:
        kernel = name + "_cpu" if spatial == 3 else f"adaptive_{kind}_pool2d"
        raise NotImplementedError(
            f"\"{kernel}\" not implemented for '{promote._name(input.dtype)}'"
        )
    for dim in range(first, input.dim()):
        size = input.shape[dim]
        if not is_traced_number(size) and size == 0:
            raise RuntimeError(
                f"{name}(): Expected input to have non-zero size for non-batch dimensions, but "
                f"input has sizes {list(input.shape)} with dimension {dim} being empty"
            )


def _is_global(outputs: tuple[Any, ...]) -> bool:
    """One window over everything: a reduction."""
    return all(type(o) is int and o == 1 for o in outputs)


def _plain(sizes: tuple[Any, ...]) -> tuple[int, ...]:
    return tuple(int(size) for size in sizes)


def _bounds(size: int, outputs: int) -> list[tuple[int, int]]:
    return [(i * size // outputs, -(-(i + 1) * size // outputs)) for i in range(outputs)]


_FEW_WINDOWS = 16  # along a dim of a free size, each an operator of its own
_LONG_WINDOW = 8  # elements, from which on such windows are read one by one, as slices


def _adaptive_avg(spatial: int, input: Tensor, output_size: Any) -> Tensor:
    """Windows that divide evenly go to the plain pool; others one dim at a time."""
    outputs, sizes = _adaptive_sizes(input, output_size, spatial, "avg")
    if _is_global(outputs):
        return input.mean(tuple(range(-spatial, 0)), keepdim=True)
    _check_adaptive(input, spatial, "avg", 1 if spatial == 3 else input.dim() - spatial)
    free = [
        is_traced_number(s) and type(o) is int and 0 < o <= _FEW_WINDOWS
        for s, o in zip(sizes, outputs, strict=True)
    ]
    if not any(free) and all(o and s % o == 0 for s, o in zip(sizes, outputs, strict=True)):
        window = _plain(tuple(s // o for s, o in zip(sizes, outputs, strict=True)))
        return _avg_pool(spatial, input, window, window, 0, False, True, None)
    # float16 and bfloat16 are rounded once, as torch's, not after each dim
    result = input.float() if input.dtype in (dtypes.f16, dtypes.bf16) else input
    for i in range(spatial):
        dim = input.dim() - spatial + i
        if free[i]:
            result = _averages_one_by_one(result, dim, sizes[i], outputs[i])
        elif outputs[i] is not sizes[i] and outputs[i] != sizes[i]:
            result = _averages_along(result, dim, int(sizes[i]), int(outputs[i]))
    return result.to(input.dtype)


def _averages_one_by_one(x: Tensor, dim: int, size: Any, outputs: int) -> Tensor:
    """The same windows, one by one: also of a size that is a run-time input."""
    begins = [0, *(i * size // outputs for i in range(1, outputs))]
    ends = [*((i * size + outputs - 1) // outputs for i in range(1, outputs)), size]
    windows = [
        x[(slice(None),) * dim + (slice(begin, end),)].mean(dim, keepdim=True)
        for begin, end in zip(begins, ends, strict=True)
    ]
    return T.cat(windows, dim)


def _averages_along(x: Tensor, dim: int, size: int, outputs: int) -> Tensor:
    """The means of windows [i * size / outputs, (i + 1) * size / outputs), ends rounded outwards,
    along one dim."""
    if outputs == 0:
        return x.narrow(dim, 0, 0)
    if size == 0 or size % outputs == 0:
        return x.unflatten(dim, (outputs, size // outputs)).mean(dim + 1)
    if outputs % size == 0:  # each window is one element
        return x.repeat_interleave(outputs // size, dim)
    begin, end = np.array(_bounds(size, outputs), np.int64).T
    longest = int((end - begin).max())
    if 2 * outputs <= _FEW_WINDOWS and longest >= _LONG_WINDOW:
        return _averages_one_by_one(x, dim, size, outputs)
    # neighbouring windows side by side, as the results are
    steps = np.arange(longest)[:, None]
    windows = x[(slice(None),) * dim + (fixed(np.minimum(begin + steps, size - 1)),)]
    after = (1,) * (x.dim() - dim - 1)
    inside = fixed((begin + steps < end).reshape(longest, outputs, *after))
    total = T.where(inside, windows, T.zeros((), dtype=x.dtype)).sum(dim)
    return total / fixed((end - begin).reshape(outputs, *after)).to(x.dtype)


@owns_result
def _adaptive_max(spatial: int, input: Tensor, output_size: Any, return_indices: bool) -> Any:
    """Windows that divide evenly go to the plain pool; others to a gather of all windows."""
    outputs, sizes = _adaptive_sizes(input, output_size, spatial, "max")
    _check_adaptive(input, spatial, "max", 1)
    if _is_global(outputs):
        flat = input.flatten(-spatial)
        found = flat.max(-1)
        shape = (*found.values.shape, *outputs)
        values = found.values.reshape(shape)
        if not return_indices:
            return values
        return values, _last_of_nans(flat, *found).reshape(shape)
    outputs, sizes = _plain(outputs), _plain(sizes)
    if all(o and s % o == 0 for s, o in zip(sizes, outputs, strict=True)):
        window = tuple(s // o for s, o in zip(sizes, outputs, strict=True))
        return _max_pool(spatial, input, window, window, 0, 1, False, return_indices)
    flat = input.flatten(-spatial)
    found = _greatest_of_windows(flat.detach(), sizes, outputs).flatten(-spatial)
    whole = [*flat.shape[:-1], *outputs]
    values = flat.gather(-1, found).reshape(whole)
    return (values, found.reshape(whole)) if return_indices else values


def _greatest_of_windows(
    flat: Tensor, sizes: tuple[int, ...], outputs: tuple[int, ...]
) -> Tensor:
    """Where the greatest elements are: [*, *outputs], in the plane [*, plane]."""
    dim = flat.dim() - 1
    bounds = _bounds(sizes[0], outputs[0])
    few = len(sizes) == 1 and 0 < 2 * outputs[0] <= _FEW_WINDOWS
    if few and sizes[0] > outputs[0] * _LONG_WINDOW:
        each = [flat[..., begin:end] for begin, end in bounds]
        return T.stack([
            _last_of_nans(window, *window.max(dim)) + begin
            for window, (begin, _) in zip(each, bounds, strict=True)
        ], dim)
    # neighbouring windows side by side, as the results are
    plane = _window_positions(sizes, outputs).movedim(-1, 0)
    windows = flat[(..., plane)]
    values, which = windows.max(dim)
    which = _last_of_nans(windows, values, which, dim)
    return plane.expand(windows.shape).gather(dim, which.unsqueeze(dim)).squeeze(dim)


def _last_of_nans(windows: Tensor, values: Tensor, which: Tensor, dim: int = -1) -> Tensor:
    """Where the maxima are: the first of equals, but the last NaN, as torch's loops leave it."""
    if not windows.dtype.is_floating_point:
        return which
    from_behind = windows.isnan().flip(dim).to(T.uint8).argmax(dim)
    return T.where(values.isnan(), windows.shape[dim] - 1 - from_behind, which)


def _window_positions(sizes: tuple[int, ...], outputs: tuple[int, ...]) -> Tensor:
    """Flat positions of each window's elements, [*outputs, window]; windows shorter than the
    longest repeat their last element, which the first maximum never is."""
    grids = []
    step = 1
    for i in reversed(range(len(sizes))):
        bounds = _bounds(sizes[i], outputs[i])
        longest = max((end - begin for begin, end in bounds), default=1)
        rows = np.array(
            [[min(begin + k, end - 1) for k in range(longest)] for begin, end in bounds],
            np.int64,
        ).reshape(len(bounds), longest)
        grids.append(rows * step)
        step *= sizes[i]
    total = np.zeros((), np.int64)
    count = len(sizes)
    for i, rows in enumerate(reversed(grids)):
        shape = [1] * (2 * count)
        shape[i], shape[count + i] = rows.shape
        total = total + rows.reshape(shape)
    return fixed(total.reshape(*outputs, math.prod(rows.shape[1] for rows in grids)))


def _averaged(result: Tensor, rank: int) -> str:
    """What torch calls adaptive mean pooling: a mean, where all is one window."""
    whole = all(n == 1 for n in result.shape[-rank:])
    return "MeanBackward1" if whole else f"AdaptiveAvgPool{rank}DBackward0"


@replayed
def adaptive_avg_pool1d(input: Tensor, output_size: Any) -> Tensor:
    """Mean pooling to a given output length."""
    return named(_adaptive_avg(1, input, output_size), "SqueezeBackward1")


@replayed
def adaptive_avg_pool2d(input: Tensor, output_size: Any) -> Tensor:
    """Mean pooling to a given output height and width."""
    result = as_suggested(_adaptive_avg(2, input, output_size), input)
    return named(result, _averaged(result, 2))


@listed
@replayed
def adaptive_avg_pool3d(input: Tensor, output_size: Any) -> Tensor:
    """Mean pooling to a given output size."""
    result = _adaptive_avg(3, input, output_size)
    kind = _averaged(result, 3)
    whole = kind == "MeanBackward1"
    return named(as_suggested(result, input) if whole else in_rows(result), kind)


def _laid_out(found: Any, like: Tensor | None) -> Any:
    """One result or two, laid out as torch's; without `like` row-major."""
    several = isinstance(found, tuple)
    parts = [
        in_rows(part) if like is None else as_suggested(part, like)
        for part in (found if several else (found,))
    ]
    return tuple(parts) if several else parts[0]


@replayed
@recorded_as("SqueezeBackward1")
def adaptive_max_pool1d(
    input: Tensor, output_size: Any, return_indices: bool = False
) -> Any:
    """Max pooling to a given output length."""
    return _adaptive_max(1, input, output_size, return_indices)


@replayed
@recorded_as("AdaptiveMaxPool2DBackward0")
def adaptive_max_pool2d(
    input: Tensor, output_size: Any, return_indices: bool = False
) -> Any:
    """Max pooling to a given output height and width."""
    return _laid_out(_adaptive_max(2, input, output_size, return_indices), input)


@listed
@replayed
@recorded_as("AdaptiveMaxPool3DBackward0")
def adaptive_max_pool3d(
    input: Tensor, output_size: Any, return_indices: bool = False
) -> Any:
    """Max pooling to a given output size."""
    return _laid_out(_adaptive_max(3, input, output_size, return_indices), None)
