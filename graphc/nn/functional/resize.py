"""Resizing of the spatial dims: interpolate and the old spellings of it."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

from ...frontend import functions as T
from ...frontend.autocast import listed
from ...frontend.context import local
from ...frontend.dispatch import fixed
from ...frontend.functions.arguments import named
from ...frontend.ownership import own, owns_result
from ...frontend.replayed import replayed
from ...frontend.result_layouts import as_suggested, suggests_last
from ...frontend.tensor import Tensor
from . import resize_free as free
from .conv import tuple_of
from .pooling import adaptive_avg_pool1d, adaptive_avg_pool2d, adaptive_avg_pool3d
from .resize_bytes import bicubic_weights, bilinear_weights, resize_bytes
from .resize_smooth import smooth_weights

_LINEAR = {"linear": 3, "bilinear": 4, "trilinear": 5}
_AREA = {3: adaptive_avg_pool1d, 4: adaptive_avg_pool2d, 5: adaptive_avg_pool3d}
_MODES = "nearest | linear | bilinear | bicubic | trilinear | lanczos | area | nearest-exact"


@replayed
@owns_result
def interpolate(
    input: Tensor, size: Any = None, scale_factor: Any = None, mode: str = "nearest",
    align_corners: bool | None = None, recompute_scale_factor: bool | None = None,
    antialias: bool = False,
) -> Tensor:
    """Resize the spatial dims of [N, C, *] to `size` or by `scale_factor`."""
    _check_mode(input, mode, align_corners, antialias)
    sizes, scales = _sizes(input, size, scale_factor, recompute_scale_factor)
    if mode == "area":
        return _AREA[input.dim()](input, sizes)
    _check_positive(input, sizes)
    result = as_suggested(
        _upsampled(input, sizes, scales, mode, align_corners, antialias), input
    )
    kind = {"nearest-exact": "NearestExact", **dict.fromkeys(_LINEAR, mode.capitalize())}
    smooth = "Aa" if antialias else ""
    return named(
        result, f"Upsample{kind.get(mode, mode.capitalize())}{input.dim() - 2}D{smooth}Backward0"
    )


def _upsample(
    input: Tensor, sizes: Any, scales: Any, mode: str, align_corners: bool | None, antialias: bool
) -> Tensor:
    if input.dtype in (T.float16, T.bfloat16) and not mode.startswith("nearest"):
        wide = _upsample(input.float(), sizes, scales, mode, align_corners, antialias)
        return wide.to(input.dtype)  # rounded once, not after each dim
    if not (input.dtype.is_floating_point or mode.startswith("nearest")):
        return _integers(input, sizes, scales, mode, bool(align_corners), antialias)
    # torch computes positions in the input's dtype, in float32 for narrower ones
    real: Any = np.float64 if input.dtype is T.float64 else np.float32
    align, result, first = bool(align_corners), input, 2
    turned = local.trace is None and suggests_last(input)
    if turned:  # lines of channels are moved as they lie
        result, first = input.movedim(1, -1), 1
    # the last dim first, as torch has it
    for i, (count, given) in reversed([*enumerate(zip(sizes, scales, strict=True))]):
        dim = first + i
        if mode in ("nearest", "nearest-exact"):
            result = _nearest(result, dim, count, given, mode == "nearest-exact", real)
        elif antialias:
            length = int(input.shape[2 + i])
            scale = _scale(length, int(count), given, align, real)
            matrix = smooth_weights(length, int(count), scale, mode, real)
            result = _along(result, dim, matrix)
        elif mode == "bicubic":
            result = _cubic(result, dim, count, given, align, real)
        else:
            result = _linear(result, dim, count, given, align, real)
    return own(result.movedim(-1, 1), ()) if turned else result


_upsampled = listed(_upsample, "upsample")


def _integers(
    input: Tensor, sizes: tuple[int, ...], scales: tuple[Any, ...], mode: str, align: bool,
    antialias: bool,
) -> Tensor:
    if input.dtype is not T.uint8 or input.dim() != 4:
        raise NotImplementedError(
            f"interpolate of mode {mode!r} is not implemented for {input.dtype} of "
            f"{input.dim()} dims; cast to a float first"
        )
    matrices = []
    for i, (count, given) in enumerate(zip(sizes, scales, strict=True)):
        size, cubic = int(input.shape[2 + i]), mode == "bicubic"
        scale = _scale(size, count, given, align, np.float64)
        if antialias:
            matrix = smooth_weights(size, count, scale, mode, np.float64)
        else:
            positions = _positions(count, scale, align, np.float64)
            matrix = bicubic_weights(size, positions, cubic_weights) if cubic else (
                bilinear_weights(size, np.maximum(positions, 0.0)))
        matrices.append(matrix)
    return resize_bytes(input, matrices[0], matrices[1])


def _positions(count: int, scale: Any, align: bool, real: Any) -> np.ndarray:
    """Where each output lies among the inputs."""
    steps = np.arange(count, dtype=real)
    found: np.ndarray = steps * scale if align else scale * (steps + real(0.5)) - real(0.5)
    return found


def _check_mode(input: Tensor, mode: str, align: bool | None, antialias: bool) -> None:
    if mode in ("nearest", "area", "nearest-exact"):
        if align is not None:
            raise ValueError(
                "align_corners option can only be set with the interpolating modes: linear | "
                "bilinear | bicubic | trilinear"
            )
    elif mode == "lanczos":
        if not antialias:
            raise ValueError("Lanczos mode requires antialias=True")
        if align:
            raise ValueError("Lanczos mode does not support align_corners=True")
    elif mode not in (*_LINEAR, "bicubic"):
        raise NotImplementedError(
            "Input Error: Only 3D, 4D and 5D input Tensors supported (got "
            f"{input.dim()}D) for the modes: {_MODES} (got {mode})"
        )
    rank = input.dim()
    if rank not in (3, 4, 5):
        raise NotImplementedError(
            "Input Error: Only 3D, 4D and 5D input Tensors supported (got "
            f"{rank}D) for the modes: {_MODES} (got {mode})"
        )
    if antialias and rank != 4:
        wanted = rank  # what is wrong is said below
    else:
        wanted = _LINEAR.get(mode, 4 if mode == "bicubic" else rank)
    if wanted != rank:
        raise NotImplementedError(f"Got {rank}D input, but {mode} mode needs {wanted}D input")
    if antialias and not (mode in ("bilinear", "bicubic", "lanczos") and rank == 4):
        raise ValueError(
            "Anti-alias option is restricted to bilinear, bicubic, and lanczos modes and requires "
            "a 4-D tensor as input"
        )


def _sizes(
    input: Tensor, size: Any, scale_factor: Any, recompute: bool | None
) -> tuple[tuple[int, ...], tuple[Any, ...]]:
    """The sizes wanted, and the factors that positions are computed from (None: from sizes)."""
    spatial = input.dim() - 2
    if size is not None and scale_factor is not None:
        raise ValueError("only one of size or scale_factor should be defined")
    if size is None and scale_factor is None:
        raise ValueError("either size or scale_factor should be defined")
    for name, given in (("size", size), ("scale_factor", scale_factor)):
        if isinstance(given, (list, tuple)) and len(given) != spatial:
            raise ValueError(
                f"Input and output must have the same number of spatial dimensions, but got "
                f"input with spatial dimensions of {list(input.shape)[2:]} and {name} of {given}."
            )
    if size is not None:
        if recompute:
            raise ValueError("recompute_scale_factor is not meaningful with an explicit size.")
        return tuple_of(size, spatial, "size"), (None,) * spatial
    scales = tuple(
        float(factor) for factor in (
            scale_factor if isinstance(scale_factor, (list, tuple)) else [scale_factor] * spatial
        )
    )
    sizes = tuple(map(free.resized_by, tuple(input.shape)[2:], scales))
    _check_positive(input, sizes)
    return sizes, (None,) * spatial if recompute else scales


def _check_positive(input: Tensor, sizes: tuple[int, ...]) -> None:
    had = list(input.shape)[2:]
    if any(count <= 0 for count in sizes) or any(type(s) is int and s == 0 for s in had):
        raise RuntimeError(
            "Input and output sizes should be greater than 0, but got input "
            f"{had} and output {list(sizes)}"
        )


def _scale(size: int, count: int, given: float | None, align: bool, real: Any) -> Any:
    """Input positions per output position."""
    if align:
        return real(size - 1) / real(count - 1) if count > 1 else real(0)
    return real(size) / real(count) if given is None or given <= 0 else real(1 / given)


def _nearest(
    input: Tensor, dim: int, count: int, given: float | None, exact: bool, real: Any
) -> Tensor:
    size = input.shape[dim]
    if free.is_free(size, count):
        scale = free.scale_of(size, count, given, False, real)
        return free.nearest(input, dim, size, count, scale, exact)
    scale = _scale(size, count, given, False, real)
    positions = (np.arange(count, dtype=real) + real(0.5 if exact else 0.0)) * scale
    index = np.minimum(positions.astype(np.int64), size - 1)
    return input.index_select(dim, fixed(index))


def _column(values: np.ndarray, like: Tensor, dim: int) -> Tensor:
    shape = [-1 if d == dim else 1 for d in range(like.dim())]
    return fixed(values.astype(like.dtype.numpy).reshape(shape))


def _linear(
    input: Tensor, dim: int, count: int, given: float | None, align: bool, real: Any
) -> Tensor:
    """Each output is a blend of the two inputs around its position."""
    size = input.shape[dim]
    if free.is_free(size, count):
        scale = free.scale_of(size, count, given, align, real)
        return free.linear(input, dim, size, count, scale, align)
    scale = _scale(size, count, given, align, real)
    position = np.maximum(_positions(count, scale, align, real), real(0))
    lower = np.minimum(position.astype(np.int64), size - 1)
    upper = np.minimum(lower + 1, size - 1)
    share = (position - lower).astype(input.dtype.numpy)
    keep, blend = _column(1 - share, input, dim), _column(share, input, dim)
    first = input.index_select(dim, fixed(lower))
    second = input.index_select(dim, fixed(upper))
    return _blended(first, keep, second, blend)


@replayed
def _blended(first: Tensor, keep: Tensor, second: Tensor, blend: Tensor) -> Any:
    return first * keep + second * blend


@replayed
def _added(result: Tensor, term: Tensor, weight: Tensor) -> Any:
    return result + term * weight


def cubic_weights(t: Any, a: float = -0.75) -> tuple[Any, ...]:
    """Keys' kernel at distances t+1, t, 1-t, 2-t; works on arrays and tensors."""
    u = 1 - t

    def far(x: Any) -> Any:
        return ((a * x - 5 * a) * x + 8 * a) * x - 4 * a

    def near(x: Any) -> Any:
        return ((a + 2) * x - (a + 3)) * x * x + 1

    return far(t + 1), near(t), near(u), far(u + 1)


def _cubic(
    input: Tensor, dim: int, count: int, given: float | None, align: bool, real: Any
) -> Tensor:
    size = input.shape[dim]
    if free.is_free(size, count):
        scale = free.scale_of(size, count, given, align, real)
        return free.cubic(input, dim, size, count, scale, align, cubic_weights)
    position = _positions(count, _scale(size, count, given, align, real), align, real)
    base = np.floor(position)
    result: Any = None
    for offset, weight in zip(range(-1, 3), cubic_weights(position - base), strict=True):
        index = np.clip(base.astype(np.int64) + offset, 0, size - 1)
        term, factor = input.index_select(dim, fixed(index)), _column(weight, input, dim)
        result = term * factor if result is None else _added(result, term, factor)
    return result


def _along(input: Tensor, dim: int, matrix: np.ndarray) -> Tensor:
    """A matrix applied to one dim."""
    weights = fixed(matrix.astype(input.dtype.numpy))
    return (input.transpose(dim, -1) @ weights.T).transpose(dim, -1)


def _old(name: str, cure: str) -> None:
    warnings.warn(
        f"`nn.functional.{name}` is deprecated. Use `nn.functional.{cure}` instead.",
        stacklevel=4,
    )


def upsample(
    input: Tensor, size: Any = None, scale_factor: Any = None, mode: str = "nearest",
    align_corners: bool | None = None,
) -> Tensor:
    """interpolate, by its old name."""
    _old("upsample", "interpolate")
    return interpolate(input, size, scale_factor, mode, align_corners)


def upsample_nearest(input: Tensor, size: Any = None, scale_factor: Any = None) -> Tensor:
    """interpolate to the nearest neighbour, by its old name."""
    _old("upsample_nearest", "interpolate")
    return interpolate(input, size, scale_factor, mode="nearest")


def upsample_bilinear(input: Tensor, size: Any = None, scale_factor: Any = None) -> Tensor:
    """Bilinear interpolate with aligned corners, by its old name."""
    _old("upsample_bilinear", "interpolate")
    return interpolate(input, size, scale_factor, mode="bilinear", align_corners=True)
