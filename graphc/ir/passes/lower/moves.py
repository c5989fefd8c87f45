"""Movement operators as index arithmetic: where in the input an element of the result lies."""

from __future__ import annotations

from typing import NamedTuple

from ...dim import Size, floordiv, unwrap
from ...graph import Node
from . import index_maps
from .body import Body
from .index_maps import Coordinates, coordinate_value, exact


class Condition(NamedTuple):
    """low <= position < high, and `position % step == phase` where step is not 1."""

    position: Size
    low: Size
    high: Size
    step: int = 1
    phase: Size = 0


def move(body: Body, node: Node, coordinates: Coordinates) -> Coordinates:
    """Coordinates in the input of a pure movement operator."""
    (x,) = node.inputs
    name, shape = node.op.name, body.shape(x)
    if name == "reshape":
        return index_maps.reshape(coordinates, shape)
    if name == "permute":
        return index_maps.permute(coordinates, node.attrs["dims"])
    if name == "expand":
        return index_maps.broadcast(coordinates, shape)
    if name == "slice":
        return index_maps.slice_(
            coordinates, shape, body.sizes(node.attrs["starts"]), body.sizes(node.attrs["stops"]),
            node.attrs["steps"],
        )
    if name == "flip":
        return index_maps.flip(coordinates, shape, node.attrs["dims"])
    if name == "as_strided":
        flat = body.size(node.attrs["offset"])
        for coordinate, stride in zip(coordinates, node.attrs["stride"], strict=True):
            flat = flat + coordinate_value(coordinate) * body.size(stride)
        return index_maps.unravel(unwrap(flat), shape)
    raise ValueError(f"{name} does not just move elements")


MOVES = frozenset({"reshape", "permute", "expand", "slice", "flip", "as_strided"})


def padded(
    body: Body, node: Node, coordinates: Coordinates
) -> tuple[Coordinates, tuple[Condition, ...]]:
    """Coordinates in a pad's input, and when a place is not padding."""
    shape = body.shape(node.inputs[0])
    low, high = body.sizes(node.attrs["low"]), body.sizes(node.attrs["high"])
    result, conditions = [], []
    for coordinate, size, before, after, gap in zip(
        coordinates, shape, low, high, node.attrs["interior"], strict=True
    ):
        if before == 0 and after == 0 and gap == 0:
            result.append(coordinate)
            continue
        position = unwrap(coordinate_value(coordinate) - before)
        span = size if gap == 0 else (size - 1) * (gap + 1) + 1
        conditions.append(Condition(position, 0, unwrap(span), gap + 1))
        result.append(exact(unwrap(floordiv(position, gap + 1)), size))
    return tuple(result), tuple(conditions)


def updated_region(
    body: Body, node: Node, coordinates: Coordinates
) -> tuple[Coordinates, tuple[Condition, ...]]:
    """Coordinates in slice_update's source, and when a place is in the updated region."""
    shape, source = body.shape(node), body.shape(node.inputs[1])
    starts, stops = body.sizes(node.attrs["starts"]), body.sizes(node.attrs["stops"])
    result, conditions = [], []
    for coordinate, size, count, start, stop, step in zip(
        coordinates, shape, source, starts, stops, node.attrs["steps"], strict=True
    ):
        if start == 0 and step == 1 and stop == size:
            result.append(coordinate)
            continue
        position = coordinate_value(coordinate)
        conditions.append(Condition(position, start, stop, step, start))
        where = unwrap(floordiv(unwrap(position - start), step))
        result.append(exact(where, count))
    return tuple(result), tuple(conditions)
