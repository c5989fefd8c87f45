"""Resize, Upsample, GridSample and AffineGrid.

Along each axis an output reads a few inputs with weights that sizes alone decide, so they are
constants: taps that are gathered, or a matrix where antialiasing reads many.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from .....frontend import functions as T
from .....frontend.dispatch import constant
from .....frontend.tensor import Tensor
from .....nn import functional as F
from ..numbers import Numbers
from ..table import Node, operator
from .limits import check_count
from .movement import dims_of

_PLACES = (
    "half_pixel", "half_pixel_symmetric", "pytorch_half_pixel", "align_corners", "asymmetric",
    "tf_half_pixel_for_nn", "tf_crop_and_resize",
)
_NEAREST = ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil")


class _Axis(NamedTuple):
    """One dim: of `size` inputs; `scale` as the file has it."""

    dim: int
    size: int
    outputs: int
    scale: float
    crop: tuple[float, float]


class _Way(NamedTuple):
    """How an input is read."""

    mode: str
    places: str
    nearest: str
    cubic: float
    outside: bool  # weights outside of the input are left out
    value: float
    smooth: bool


def _positions(axis: _Axis, places: str) -> np.ndarray:
    """Where each output lies among the inputs."""
    line = np.arange(axis.outputs, dtype=np.float64)
    width = axis.scale * axis.size
    if places == "align_corners":
        return line * ((axis.size - 1) / (width - 1)) if width != 1 else line * 0
    if places == "asymmetric":
        return line / axis.scale
    if places == "tf_half_pixel_for_nn":
        return (line + 0.5) / axis.scale
    if places == "tf_crop_and_resize":
        low, high = axis.crop
        if width == 1:
            return np.full(axis.outputs, (low + high) * (axis.size - 1) / 2)
        return low * (axis.size - 1) + line * (high - low) * (axis.size - 1) / (width - 1)
    if places == "pytorch_half_pixel" and width == 1:
        return line * 0 - 0.5
    shift = 0.0
    if places == "half_pixel_symmetric":
        shift = axis.size / 2 * (1 - axis.outputs / width)
    return shift + (line + 0.5) / axis.scale - 0.5


def _read_nearest(positions: np.ndarray, mode: str) -> np.ndarray:
    if mode == "round_prefer_floor":
        return np.ceil(positions - 0.5)
    if mode == "round_prefer_ceil":
        return np.floor(positions + 0.5)
    return np.floor(positions) if mode == "floor" else np.ceil(positions)


def _kernel(mode: str, a: float, distance: np.ndarray) -> np.ndarray:
    """The weight of an input this far from the position."""
    d = np.abs(distance)
    if mode == "linear":
        return np.maximum(1 - d, 0)
    near = ((a + 2) * d - (a + 3)) * d * d + 1
    far = ((a * d - 5 * a) * d + 8 * a) * d - 4 * a
    return np.where(d <= 1, near, np.where(d < 2, far, 0))


def _taps(axis: _Axis, way: _Way, positions: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The inputs that each output reads, not yet cut to the input's size, and their weights."""
    reach = 1 if way.mode == "linear" else 2
    shrink = min(axis.scale, 1.0) if way.smooth else 1.0
    taps = math.ceil(reach / shrink)
    first = np.floor(positions).astype(np.int64)
    index = first[:, None] + np.arange(1 - taps, taps + 1)
    weights = _kernel(way.mode, way.cubic, (index - positions[:, None]) * shrink)
    if way.outside:
        weights = np.where((index < 0) | (index >= axis.size), 0.0, weights)
    if way.outside or way.smooth:
        weights = weights / weights.sum(1, keepdims=True)
    return index, weights


def _blended(x: Tensor, axis: _Axis, way: _Way, positions: np.ndarray) -> Tensor:
    index, weights = _taps(axis, way, positions)
    index = np.clip(index, 0, axis.size - 1)
    if way.smooth:
        matrix = np.zeros((axis.outputs, axis.size))
        np.add.at(matrix, (np.arange(axis.outputs)[:, None], index), weights)
        rows = constant(matrix).to(x.dtype)
        return T.matmul(x.transpose(axis.dim, -1), rows.t()).transpose(axis.dim, -1)
    shape = [-1 if dim == axis.dim else 1 for dim in range(x.dim())]
    total: Any = None
    for tap in range(index.shape[1]):
        if not weights[:, tap].any():
            continue
        factor = constant(np.ascontiguousarray(weights[:, tap])).to(x.dtype).reshape(shape)
        part = x.index_select(axis.dim, constant(np.ascontiguousarray(index[:, tap]))) * factor
        total = part if total is None else total + part
    return total


def _resized(x: Tensor, axes: list[_Axis], way: _Way) -> Tensor:
    inside: Any = None
    for axis in axes:
        positions = _positions(axis, way.places)
        if way.mode == "nearest":
            index = np.clip(_read_nearest(positions, way.nearest), 0, axis.size - 1)
            x = x.index_select(axis.dim, constant(index.astype(np.int64)))
        elif axis.outputs != axis.size or axis.scale != 1 or way.places == "tf_crop_and_resize":
            x = _blended(x, axis, way, positions)
        if way.places == "tf_crop_and_resize":
            within = constant((positions >= 0) & (positions <= axis.size - 1)).reshape(
                [-1 if dim == axis.dim else 1 for dim in range(x.dim())]
            )
            inside = within if inside is None else inside & within
    return x if inside is None else T.where(inside, x, way.value)


def _resize(node: Node, x: Tensor, axes: list[_Axis], way: _Way) -> Tensor:
    check_count(node, [
        next((axis.outputs for axis in axes if axis.dim == dim), size)
        for dim, size in enumerate(x.shape)
    ])
    if any(axis.size == 0 and axis.outputs for axis in axes):
        node.refuse(f"its input {list(x.shape)} is empty", "give it one that is not")
    if way.mode == "nearest" or x.dtype in (T.float32, T.float64):
        return _resized(x, axes, way)
    found = _resized(x.float(), axes, way)
    if x.dtype.is_floating_point:
        return found.to(x.dtype)
    info = T.iinfo(x.dtype)
    return T.clamp(found, info.min, info.max).to(x.dtype)


def _from_scales(x: Tensor, scales: list[float], dims: list[int], crops: Any) -> list[_Axis]:
    return [
        _Axis(dim, int(x.shape[dim]), math.floor(int(x.shape[dim]) * scale), scale, crop)
        for dim, scale, crop in zip(dims, scales, crops, strict=True)
        if scale != 1 or crop != (0.0, 1.0)
    ]


def _from_sizes(
    node: Node, x: Tensor, sizes: list[int], dims: list[int], crops: Any
) -> list[_Axis]:
    policy = node.one_of(
        "keep_aspect_ratio_policy", "stretch", ("stretch", "not_larger", "not_smaller")
    )
    have = [int(x.shape[dim]) for dim in dims]
    scales = [size / max(length, 1) for size, length in zip(sizes, have, strict=True)]
    if policy != "stretch":
        scale = (min if policy == "not_larger" else max)(scales)
        sizes = [math.floor(scale * length + 0.5) for length in have]
        scales = [scale] * len(dims)
    return [
        _Axis(dim, length, size, scale, crop)
        for dim, length, size, scale, crop in zip(dims, have, sizes, scales, crops, strict=True)
        if size != length or crop != (0.0, 1.0) or scale != 1
    ]


def _checked_scales(node: Node, scales: list[Any], dims: list[int]) -> list[float]:
    found = [float(scale) for scale in scales]
    if len(found) != len(dims) or any(not 0 < s < math.inf for s in found):
        node.refuse(f"its scales are {found} for {len(dims)} dims", "give a positive one for each")
    return found


_PLAIN = _Way("nearest", "asymmetric", "floor", -0.75, False, 0.0, False)
_ONE = (0.0, 1.0)


def _simple(node: Node, x: Tensor, scales: list[Any]) -> Tensor:
    """As of operator sets before 11."""
    mode = node.one_of("mode", "nearest", ("nearest", "linear", "bilinear"))
    dims = list(range(x.dim()))
    factors = _checked_scales(node, scales, dims)
    way = _PLAIN._replace(mode="nearest" if mode == "nearest" else "linear")
    return _resize(node, x, _from_scales(x, factors, dims, [_ONE] * len(dims)), way)


@operator("Upsample", 7)
def upsample_by_attribute(node: Node, x: Tensor) -> Any:
    return _simple(node, x, list(node.get("scales", ())))


@operator("Upsample", 9, numbers=(1,))
@operator("Resize", 10, numbers=(1,))
def upsample(node: Node, x: Tensor, scales: Numbers) -> Any:
    return _simple(node, x, list(scales.array().reshape(-1)))


@operator("Resize", 11, numbers=(1, 2, 3))
def resize(
    node: Node, x: Tensor, roi: Numbers | None = None, scales: Numbers | None = None,
    sizes: Numbers | None = None,
) -> Any:
    way = _Way(
        node.one_of("mode", "nearest", ("nearest", "linear", "cubic")),
        node.one_of("coordinate_transformation_mode", "half_pixel", _PLACES),
        node.one_of("nearest_mode", "round_prefer_floor", _NEAREST),
        node.get("cubic_coeff_a", -0.75), bool(node.get("exclude_outside", 0)),
        node.get("extrapolation_value", 0.0), bool(node.get("antialias", 0)),
    )
    axes = node.get("axes")
    dims = list(range(x.dim())) if axes is None else dims_of(axes, x.dim())
    crops = [_ONE] * len(dims)
    if way.places == "tf_crop_and_resize":
        if roi is None or len(roi.items) != 2 * len(dims):
            node.refuse("it has no roi for each dim", "give it")
        else:
            edges = roi.array().astype(np.float64).tolist()
            crops = list(zip(edges[: len(dims)], edges[len(dims):], strict=True))
    if scales is not None and scales.items:
        factors = _checked_scales(node, list(scales.array().reshape(-1)), dims)
        return _resize(node, x, _from_scales(x, factors, dims, crops), way)
    if sizes is None or len(sizes.items) != len(dims):
        return node.refuse("it has neither scales nor sizes for each dim", "give one of them")
    wanted = [int(size) for size in sizes.items]
    return _resize(node, x, _from_sizes(node, x, wanted, dims, crops), way)


@operator("AffineGrid", 20, numbers=(1,))
def affine_grid(node: Node, theta: Tensor, size: Numbers) -> Any:
    check_count(node, size.integers())
    return F.affine_grid(theta, size.integers(), bool(node.get("align_corners", 0)))


@operator("GridSample", 16)
def grid_sample(node: Node, x: Tensor, grid: Tensor) -> Any:
    """Modes have two spellings, by operator set."""
    mode = node.one_of(
        "mode", "bilinear", ("bilinear", "nearest", "bicubic", "linear", "cubic")
    )
    mode = {"linear": "bilinear", "cubic": "bicubic"}.get(mode, mode)
    padding = node.one_of("padding_mode", "zeros", ("zeros", "border", "reflection"))
    if x.dim() not in (4, 5) or (mode == "bicubic" and x.dim() != 4):
        node.refuse(
            f"it samples {list(x.shape)} in the mode {mode!r}",
            "graphc samples 2 or 3 spatial dims, and 2 by cubic kernels",
        )
    return F.grid_sample(x, grid, mode, padding, bool(node.get("align_corners", 0)))
