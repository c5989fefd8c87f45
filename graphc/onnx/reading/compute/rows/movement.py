"""Operators that move elements: shapes, slices, concatenations, paddings."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from .....frontend import functions as T
from .....frontend.numbers import is_traced_number
from .....frontend.tensor import Tensor
from .....nn import functional as F
from ..numbers import MOST, Numbers, joined, sizes_of
from ..table import Node, operator
from .limits import check_count


def dims_of(axes: Sequence[Any], rank: int) -> list[int]:
    """Axes as dims that count from the front."""
    return [int(axis) + rank if int(axis) < 0 else int(axis) for axis in axes]


# --- shapes ------------------------------------------------------------------------------------


def _fold_shape(node: Node, sizes: Numbers) -> Numbers:
    items = sizes.items[node.get("start", 0):node.get("end")]
    return sizes_of(items)


@operator("Shape", 1, folded=_fold_shape, shapes=True)
def shape(node: Node, sizes: Tensor) -> Any:
    raise AssertionError("shapes are Numbers")


def _fold_size(node: Node, sizes: Numbers) -> Numbers:
    return Numbers([math.prod(sizes.items)], (), sizes.kind)


@operator("Size", 1, folded=_fold_size, shapes=True)
def size(node: Node, sizes: Tensor) -> Any:
    raise AssertionError("sizes are Numbers")


@operator("Identity", 1, raw=True)
def identity(node: Node, x: Any) -> Any:
    return x


def _wanted(node: Node, given: Sequence[Any], shape: Sequence[Any]) -> list[Any]:
    """Sizes of which 0 stands for the input's, and -1 for what is left."""
    keep = node.get("allowzero", 0)
    sizes: list[Any] = []
    for i, each in enumerate(given):
        if is_traced_number(each) or each != 0 or keep:
            sizes.append(each)
        elif i < len(shape):
            sizes.append(shape[i])
        else:
            node.refuse(f"size {i} of {list(given)} is 0 for an input of {list(shape)}", "give it")
    if sum(not is_traced_number(each) and each == -1 for each in sizes) > 1:
        node.refuse(f"the shape {list(given)} has more than one -1", "give all sizes but one")
    return sizes


def _fold_reshape(node: Node, x: Numbers, shape: Numbers) -> Numbers | None:
    if shape.traced:
        return None
    sizes = _wanted(node, shape.integers(), x.shape)
    return x.moved(lambda places: places.reshape(sizes))


@operator("Reshape", 5, numbers=(1,), folded=_fold_reshape)
def reshape(node: Node, x: Tensor, shape: Numbers) -> Any:
    return x.reshape(_wanted(node, shape.integers(), x.shape))


def _fold_flatten(node: Node, x: Numbers) -> Numbers | None:
    axis = node.get("axis", 1)
    axis += x.rank if axis < 0 else 0
    return x.moved(lambda places: places.reshape(math.prod(x.shape[:axis]), -1))


@operator("Flatten", 1, folded=_fold_flatten)
def flatten(node: Node, x: Tensor) -> Any:
    """A matrix, of the dims before `axis` and those from it on."""
    axis = node.get("axis", 1)
    axis += x.dim() if axis < 0 else 0
    if not 0 <= axis <= x.dim():
        node.refuse(f"axis is {axis} for an input of {x.dim()} dims", "give one of them")
    rows = math.prod(tuple(x.shape)[:axis])
    columns = math.prod(tuple(x.shape)[axis:])
    return x.reshape(rows, columns)


def _axes(node: Node, given: Numbers | None) -> list[int] | None:
    """Axes: an input since operator set 13, an attribute before."""
    if given is None:
        found = node.get("axes")
        return None if found is None else list(found)
    return [int(axis) for axis in given.integers()]


def _fold_squeeze(node: Node, x: Numbers, axes: Numbers | None = None) -> Numbers | None:
    dims = _axes(node, axes)
    return x.moved(lambda places: places.squeeze(None if dims is None else tuple(dims)))


@operator("Squeeze", 1, numbers=(1,), folded=_fold_squeeze)
def squeeze(node: Node, x: Tensor, axes: Numbers | None = None) -> Any:
    dims = _axes(node, axes)
    if dims is None:
        return x.squeeze()
    dims = dims_of(dims, x.dim())
    for dim in dims:
        if not 0 <= dim < x.dim() or x.shape[dim] != 1:
            node.refuse(f"dim {dim} of {list(x.shape)} is not 1", "squeeze a dim of size 1")
    return x.reshape([n for i, n in enumerate(x.shape) if i not in dims])


def _spread(rank: int, axes: list[int]) -> list[int]:
    return sorted(dims_of(axes, rank + len(axes)))


def _fold_unsqueeze(node: Node, x: Numbers, axes: Numbers | None = None) -> Numbers | None:
    dims = _spread(x.rank, _axes(node, axes) or [])
    return x.moved(lambda places: np.expand_dims(places, tuple(dims)))


@operator("Unsqueeze", 1, numbers=(1,), folded=_fold_unsqueeze)
def unsqueeze(node: Node, x: Tensor, axes: Numbers | None = None) -> Any:
    dims = _spread(x.dim(), _axes(node, axes) or [])
    if len(set(dims)) != len(dims):
        node.refuse(f"its axes {dims} are not different", "give each once")
    for dim in dims:
        x = x.unsqueeze(dim)
    return x


def _fold_transpose(node: Node, x: Numbers) -> Numbers | None:
    return x.moved(lambda places: places.transpose(node.get("perm")))


@operator("Transpose", 1, folded=_fold_transpose)
def transpose(node: Node, x: Tensor) -> Any:
    order = node.get("perm", list(range(x.dim()))[::-1])
    return x.permute(order)


def _fold_expand(node: Node, x: Numbers, shape: Numbers) -> Numbers | None:
    if shape.traced:
        return None
    sizes = shape.integers()
    if math.prod(sizes) > MOST:
        return None
    return x.moved(lambda places: np.broadcast_to(
        places, np.broadcast_shapes(places.shape, tuple(sizes))
    ))


@operator("Expand", 8, numbers=(1,), folded=_fold_expand)
def expand(node: Node, x: Tensor, shape: Numbers) -> Any:
    """Each of the two shapes broadcasts to the other."""
    wanted, have = shape.integers(), list(x.shape)
    rank = max(len(wanted), len(have))
    wanted, have = [1] * (rank - len(wanted)) + wanted, [1] * (rank - len(have)) + have
    sizes = [b if a is b or _is_one(a) else a for a, b in zip(wanted, have, strict=True)]
    check_count(node, sizes)
    return x.expand(sizes)


def _is_one(size: Any) -> bool:
    return bool(size == 1)


# --- slices and concatenations -----------------------------------------------------------------


def _bounds(start: Any, stop: Any, step: int, length: Any) -> tuple[Any, Any]:
    """Where a slice begins and ends, both of the range that its step allows."""
    if not is_traced_number(start) and start < 0:
        start = start + length
    if not is_traced_number(stop) and stop < 0:
        stop = stop + length
    low, high = (0, length) if step > 0 else (-1, length - 1)
    return _within(start, low, high), _within(stop, low, high)


_FAR = 1 << 31  # larger than any size


def _within(place: Any, low: int, high: Any) -> Any:
    if not is_traced_number(place) and place >= _FAR:
        return high  # without asking how large a free size is
    if place is high:
        return high
    if place < low:
        return low
    return high if place > high else place


def _ranges(
    node: Node, rank: int, starts: list[Any], ends: list[Any], axes: list[int] | None,
    steps: list[int] | None,
) -> list[tuple[int, Any, Any, int]]:
    axes = list(range(len(starts))) if axes is None else dims_of(axes, rank)
    steps = [1] * len(starts) if steps is None else steps
    if not len(starts) == len(ends) == len(axes) == len(steps) or 0 in steps:
        node.refuse(
            f"it has {len(starts)} starts, {len(ends)} ends, {len(axes)} axes, steps {steps}",
            "give as many of each, and no step of 0",
        )
    if any(not 0 <= axis < rank for axis in axes):
        node.refuse(f"its axes are {axes} for an input of {rank} dims", "give dims of the input")
    return list(zip(axes, starts, ends, steps, strict=True))


def _sliced(x: Tensor, ranges: list[tuple[int, Any, Any, int]]) -> Tensor:
    for dim, start, stop, step in ranges:
        length = x.shape[dim]
        start, stop = _bounds(start, stop, step, length)
        if step > 0:
            index = slice(start, stop, step)
            x = x[(slice(None),) * dim + (index,)]
        else:  # the same elements from the other end
            count = max(0, -((stop - start) // -step))
            last = start + (count - 1) * step
            piece = slice(last, start + 1, -step) if count else slice(0, 0)
            x = x[(slice(None),) * dim + (piece,)].flip(dim)
    return x


@operator("Slice", 1)
def slice_by_attributes(node: Node, x: Tensor) -> Any:
    axes = node.get("axes")
    return _sliced(x, _ranges(
        node, x.dim(), list(node.get("starts", ())), list(node.get("ends", ())), axes, None
    ))


def _fold_slice(
    node: Node, x: Numbers, starts: Numbers, ends: Numbers, axes: Numbers | None = None,
    steps: Numbers | None = None,
) -> Numbers | None:
    if starts.traced or ends.traced:
        return None
    ranges = _ranges(
        node, x.rank, starts.integers(), ends.integers(), None if axes is None else axes.integers(),
        None if steps is None else steps.integers(),
    )

    def move(places: np.ndarray) -> np.ndarray:
        for dim, start, stop, step in ranges:
            length = places.shape[dim]
            start, stop = _bounds(start, stop, step, length)
            index = np.arange(start, stop, step)
            places = places.take(index, dim)
        return places

    return x.moved(move)


@operator("Slice", 10, numbers=(1, 2, 3, 4), folded=_fold_slice)
def slice_(
    node: Node, x: Tensor, starts: Numbers, ends: Numbers, axes: Numbers | None = None,
    steps: Numbers | None = None,
) -> Any:
    return _sliced(x, _ranges(
        node, x.dim(), starts.integers(), ends.integers(),
        None if axes is None else axes.integers(), None if steps is None else steps.integers(),
    ))


def _fold_concat(node: Node, *parts: Numbers) -> Numbers | None:
    return joined(parts, node.get("axis", 1))


@operator("Concat", 4, folded=_fold_concat)
def concat(node: Node, *parts: Tensor) -> Any:
    if not parts:
        node.refuse("it has no inputs", "give it one")
    return T.cat(parts, node.get("axis", 1))


def _pieces(node: Node, length: Any, given: list[Any] | None) -> list[Any]:
    """The sizes of the parts of a Split."""
    if given is not None:
        return given
    count = node.get("num_outputs") or len(node.wanted)
    each = -(-length // count)
    return [each] * (count - 1) + [length - each * (count - 1)]


def _fold_split(node: Node, x: Numbers, split: Numbers | None = None) -> Any:
    axis = node.get("axis", 0)
    given = node.get("split") if split is None else split.integers()
    ends = np.cumsum(_pieces(node, x.shape[axis], given))
    parts = [
        x.moved(lambda places, i=i: np.split(places, ends[:-1], axis)[i])  # type: ignore[misc]
        for i in range(len(ends))
    ]
    return None if any(part is None for part in parts) else parts


@operator("Split", 2, numbers=(1,), folded=_fold_split)
def split(node: Node, x: Tensor, split: Numbers | None = None) -> Any:
    axis = node.get("axis", 0)
    given = node.get("split") if split is None else split.integers()
    sizes = _pieces(node, x.shape[axis], None if given is None else list(given))
    parts, start = [], 0
    for count in sizes:
        parts.append(x.narrow(axis, start, count))
        start = start + count
    if (not given and start != x.shape[axis]) or (given and sum(given) != x.shape[axis]):
        node.refuse(f"its parts {sizes} are not {x.shape[axis]} together", "give others")
    return tuple(parts)


@operator("Tile", 6, numbers=(1,), settings=(1,))
def tile(node: Node, x: Tensor, repeats: Numbers) -> Any:
    counts = repeats.integers()
    if len(counts) != x.dim():
        node.refuse(f"it repeats {counts} an input of {x.dim()} dims", "give a count for each")
    check_count(node, [a * b for a, b in zip(counts, x.shape, strict=True)])
    return x.repeat(*counts) if counts else x


@operator("DepthToSpace", 1)
def depth_to_space(node: Node, x: Tensor) -> Any:
    mode, block = node.one_of("mode", "DCR", ("DCR", "CRD")), node.get("blocksize", 1)
    batch, channels, height, width = x.shape
    if mode == "CRD":
        return F.pixel_shuffle(x, block)
    parts = x.reshape(batch, block, block, channels // (block * block), height, width)
    return parts.permute(0, 3, 4, 1, 5, 2).reshape(
        batch, channels // (block * block), height * block, width * block
    )


@operator("SpaceToDepth", 1)
def space_to_depth(node: Node, x: Tensor) -> Any:
    block = node.get("blocksize", 1)
    mode = node.one_of("mode", "DCR", ("DCR", "CRD"))
    batch, channels, height, width = x.shape
    parts = x.reshape(batch, channels, height // block, block, width // block, block)
    order = (0, 3, 5, 1, 2, 4) if mode == "DCR" else (0, 1, 3, 5, 2, 4)
    return parts.permute(order).reshape(
        batch, channels * block * block, height // block, width // block
    )


# --- paddings ----------------------------------------------------------------------------------


def _taken(x: Tensor, dim: int, low: int, high: int, mode: str) -> Tensor:
    """Padding by elements of x: its edge, what it mirrors, or its other side."""
    modes = {"edge": "edge", "reflect": "reflect", "wrap": "wrap"}
    positions = np.pad(np.arange(int(x.shape[dim])), (low, high), modes[mode])  # type: ignore
    return x.index_select(dim, T.from_numpy(positions.astype(np.int64)))


def _padded(node: Node, x: Tensor, pads: list[Any], dims: list[int], value: Any) -> Tensor:
    mode = node.one_of("mode", "constant", ("constant", "reflect", "edge", "wrap"))
    if len(pads) != 2 * len(dims):
        node.refuse(f"it has {len(pads)} pads for {len(dims)} dims", "give two for each")
    pairs = list(zip(dims, pads[: len(dims)], pads[len(dims):], strict=True))
    for dim, low, high in pairs:  # negative pads take away
        if low < 0 or high < 0:
            length = x.shape[dim]
            start = -low if low < 0 else 0
            x = x.narrow(dim, start, length - start + (high if high < 0 else 0))
    pairs = [(dim, max(low, 0), max(high, 0)) for dim, low, high in pairs]
    check_count(node, [
        size + sum(low + high for dim, low, high in pairs if dim == i)
        for i, size in enumerate(x.shape)
    ])
    if mode != "constant":
        for dim, low, high in pairs:
            if low or high:
                x = _taken(x, dim, low, high, mode)
        return x
    flat = [0] * (2 * x.dim())
    for dim, low, high in pairs:
        at = 2 * (x.dim() - 1 - dim)
        flat[at], flat[at + 1] = low, high
    return F.pad(x, flat, value=value) if any(flat) else x


@operator("Pad", 2)
def pad_by_attributes(node: Node, x: Tensor) -> Any:
    return _padded(node, x, list(node.get("pads", ())), list(range(x.dim())), node.get("value", 0))


@operator("Pad", 11, numbers=(1, 2, 3))
def pad(
    node: Node, x: Tensor, pads: Numbers, value: Numbers | None = None,
    axes: Numbers | None = None,
) -> Any:
    dims = list(range(x.dim())) if axes is None else dims_of(axes.integers(), x.dim())
    filled = value.items[0] if value is not None and value.items else 0
    return _padded(node, x, pads.integers(), dims, filled)


@operator("CenterCropPad", 18, numbers=(1,))
def center_crop_pad(node: Node, x: Tensor, shape: Numbers) -> Any:
    """The middle of x, or x in the middle of zeros, dim by dim."""
    axes = node.get("axes")
    dims = list(range(x.dim())) if axes is None else dims_of(axes, x.dim())
    for dim, wanted in zip(dims, shape.integers(), strict=True):
        have = x.shape[dim]
        check_count(node, [wanted])
        if wanted < have:
            x = x.narrow(dim, (have - wanted) // 2, wanted)
        elif wanted > have:
            low = (wanted - have) // 2
            pads = [0] * (2 * x.dim())
            at = 2 * (x.dim() - 1 - dim)
            pads[at], pads[at + 1] = low, wanted - have - low
            x = F.pad(x, pads)
    return x
