"""Operators that move elements: views, copies, and updates of regions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from graphc.ir import dtypes
from graphc.ir.dim import Size, is_static, product
from graphc.ir.graph import Node
from graphc.ir.types import Shape

from .rules import rule
from .sizes import reshaped

if TYPE_CHECKING:
    from .writer import Writer

_FIRST = -(2**63)  # a bound of Slice that is before every element
_ALLOWS_ZERO = 14  # the opset from which on Reshape can be told so


def reshape(w: Writer, x: str, have: Shape, want: Shape) -> str:
    """x of shape `have` with shape `want`; itself where it has that."""
    if have == want:
        return x
    told = reshaped(have, want)
    if told is None and w.opset < _ALLOWS_ZERO and 0 in want:
        w.refuse(f"Reshape knows no size of 0 at opset {w.opset}", "ask for a higher opset_version")
    shape = w.shape(want) if told is None else w.ints(told)
    # a 0 in a computed shape is a size of 0
    allow = {"allowzero": 1} if told is None and w.opset >= _ALLOWS_ZERO else {}
    found: str = w.emit("Reshape", x, shape, **allow)
    return found


def transpose(w: Writer, x: str, dims: Sequence[int]) -> str:
    """x with its dims in that order; itself where they are."""
    order = list(dims)
    if order == sorted(order):
        return x
    found: str = w.emit("Transpose", x, perm=order)
    return found


def expand(w: Writer, x: str, have: Shape, want: Shape) -> str:
    """x of shape `have` repeated to `want`; itself where it has that."""
    if have == want:
        return x
    extra = len(want) - len(have)
    # a 1 keeps what is there
    told = [
        1 if d >= extra and have[d - extra] == size and not isinstance(size, int) else size
        for d, size in enumerate(want)
    ]
    found: str = w.emit("Expand", x, w.shape(told))
    return found


def part(w: Writer, x: str, rank: int, dim: int, start: Size, stop: Size) -> str:
    """x[start:stop] along one dim."""
    found: str = w.emit("Slice", x, w.shape((start,)), w.shape((stop,)), w.ints([dim]))
    return found


@rule("reshape")
def _reshape(w: Writer, node: Node, x: str) -> Any:
    return reshape(w, x, node.inputs[0].shape, node.shape)


@rule("permute")
def _permute(w: Writer, node: Node, x: str) -> Any:
    return transpose(w, x, node.attrs["dims"])


@rule("expand")
def _expand(w: Writer, node: Node, x: str) -> Any:
    return expand(w, x, node.inputs[0].shape, node.shape)


@rule("slice")
def _slice(w: Writer, node: Node, x: str) -> Any:
    attrs = node.attrs
    bounds = [
        (dim, start, stop, step) for dim, (size, start, stop, step) in enumerate(zip(
            node.inputs[0].shape, attrs["starts"], attrs["stops"], attrs["steps"], strict=True
        )) if (start, stop, step) != (0, size, 1)
    ]
    if not bounds:
        return x
    dims, starts, stops, steps = zip(*bounds, strict=True)
    return w.emit("Slice", x, w.shape(starts), w.shape(stops), w.ints(dims), w.ints(steps))


@rule("flip")
def _flip(w: Writer, node: Node, x: str) -> Any:
    dims = node.attrs["dims"]
    if not dims:
        return x
    each = len(dims)
    return w.emit(
        "Slice", x, w.ints([-1] * each), w.ints([_FIRST] * each), w.ints(dims), w.ints([-1] * each)
    )


@rule("concat")
def _concat(w: Writer, node: Node, *parts: str) -> Any:
    return parts[0] if len(parts) == 1 else w.emit("Concat", *parts, axis=node.attrs["dim"])


# --- padding -----------------------------------------------------------------------------------


@rule("pad")
def _pad(w: Writer, node: Node, x: str) -> Any:
    attrs = node.attrs
    return pad(
        w, x, node.inputs[0].shape, attrs["low"], attrs["high"], attrs["interior"], attrs["value"]
    )


def pad(
    w: Writer, x: str, shape: Shape, low: Shape, high: Shape, interior: Sequence[int], value: Any
) -> str:
    """x with `value` before, after and between its elements."""
    fill = w.like(value, x)
    for dim, between in enumerate(interior):
        if between and shape[dim] != 0:
            x = _spread(w, x, shape, dim, between, fill)
            size = shape[dim] + (shape[dim] - 1) * between
            shape = (*shape[:dim], size, *shape[dim + 1 :])
    if any(amount != 0 for amount in (*low, *high)):
        x = w.emit("Pad", x, w.shape((*low, *high)), fill)
    return x


def _spread(w: Writer, x: str, shape: Shape, dim: int, between: int, fill: str) -> str:
    """Elements apart along a dim: each with what follows it as a row, and the last row cut."""
    size, rank = shape[dim], len(shape)
    row = (*shape[: dim + 1], 1, *shape[dim + 1 :])
    x = reshape(w, x, shape, row)
    behind = [0] * (2 * (rank + 1))
    behind[rank + 1 + dim + 1] = between
    x = w.emit("Pad", x, w.ints(behind), fill)
    whole = size * (between + 1)
    wide = (*shape[: dim + 1], between + 1, *shape[dim + 1 :])
    x = reshape(w, x, wide, (*shape[:dim], whole, *shape[dim + 1 :]))
    return part(w, x, rank, dim, 0, whole - between)


# --- updates -----------------------------------------------------------------------------------


@rule("slice_update")
def _slice_update(w: Writer, node: Node, x: str, source: str) -> Any:
    shape, attrs = node.shape, node.attrs
    starts, stops, steps = attrs["starts"], attrs["stops"], attrs["steps"]
    cut = [
        d for d, bounds in enumerate(zip(starts, stops, steps, strict=True))
        if bounds != (0, shape[d], 1)
    ]
    if not cut:
        return source
    if len(cut) == 1 and steps[cut[0]] == 1:
        return _between(w, node, x, source, cut[0])
    taken = node.inputs[1].shape
    if any(size == 0 for size in taken):
        return x
    low = tuple(starts)
    spans = [1 + (n - 1) * step for n, step in zip(taken, steps, strict=True)]
    high = tuple(n - start - span for n, start, span in zip(shape, starts, spans, strict=True))
    apart = [step - 1 for step in steps]
    inside = w.emit("Expand", w.constant(True, dtypes.bool_), w.shape(taken))
    mask = pad(w, inside, taken, low, high, apart, False)
    spread = pad(w, source, taken, low, high, apart, 0)
    if node.dtype is dtypes.bool_:
        return w.emit("Or", spread, w.emit("And", w.emit("Not", mask), x))
    return w.emit("Where", mask, spread, x)


def _between(w: Writer, node: Node, x: str, source: str, dim: int) -> Any:
    """Of one dim: what is before, the source, and what is behind."""
    start, stop = node.attrs["starts"][dim], node.attrs["stops"][dim]
    size, rank = node.shape[dim], len(node.shape)
    parts = [source]
    if start != 0:
        parts.insert(0, part(w, x, rank, dim, 0, start))
    if stop != size:
        parts.append(part(w, x, rank, dim, stop, size))
    return w.emit("Concat", *parts, axis=dim)


# --- strided views -----------------------------------------------------------------------------


@rule("as_strided")
def _as_strided(w: Writer, node: Node, x: str) -> Any:
    flat = reshape(w, x, node.inputs[0].shape, (product(node.inputs[0].shape),))
    attrs = node.attrs
    return w.emit("Gather", flat, _places(w, attrs["size"], attrs["stride"], attrs["offset"]))


@rule("as_strided_update")
def _as_strided_update(w: Writer, node: Node, x: str, source: str) -> Any:
    size, stride, offset = (node.attrs[key] for key in ("size", "stride", "offset"))
    if not is_static((*size, *stride, offset)):
        w.refuse("it writes to a strided view of a free size", "write to a slice")
    places = _known_places(size, stride, offset)
    if np.unique(places).size != places.size:
        w.refuse("it writes more than once to an element", "write to a view without overlaps")
    count, taken = product(node.shape), product(size)
    flat = reshape(w, x, node.shape, (count,))
    written = w.emit(
        "ScatterElements", flat, w.ints(places.reshape(-1).tolist()),
        reshape(w, source, node.inputs[1].shape, (taken,)),
    )
    return reshape(w, written, (count,), node.shape)


def _known_places(size: Any, stride: Any, offset: Any) -> np.ndarray:
    """The flat position of each element of a strided view."""
    total = np.full(size, offset, np.int64)
    for dim, step in enumerate(stride):
        line = [-1 if d == dim else 1 for d in range(len(size))]
        total = total + np.arange(size[dim], dtype=np.int64).reshape(line) * step
    return total


def _places(w: Writer, size: Shape, stride: Shape, offset: Size) -> str:
    if is_static((*size, *stride, offset)):
        return w.constant(_known_places(size, stride, offset), dtypes.i64)
    total = w.emit("Expand", w.size(offset), w.shape(size))
    for dim, step in enumerate(stride):
        line = w.emit("Mul", counted(w, size[dim]), w.size(step))
        total = w.emit("Add", total, along(w, line, len(size), dim))
    found: str = total
    return found


def counted(w: Writer, size: Size) -> str:
    """0, 1, ... as an int64 vector of that size."""
    if isinstance(size, int):
        return w.constant(np.arange(size, dtype=np.int64), dtypes.i64)
    found: str = w.emit("Range", w.size(0), w.size(size), w.size(1))
    return found


def along(w: Writer, vector: str, rank: int, dim: int) -> str:
    """A vector laid along one dim of several."""
    others = [d for d in range(rank) if d != dim]
    found: str = w.emit("Unsqueeze", vector, w.ints(others)) if others else vector
    return found
