"""What a scatter, an index_put or a max_pool_grad writes, and where: its positions, and, for
segments.py, its updates as rows of which each has its order."""

from __future__ import annotations

from ... import dtypes
from ...dim import Dim, Size, product, unwrap
from ...graph import Node
from ...kernel import Literal
from . import index_maps
from .body import Body
from .index_maps import Coordinates, coordinate_value, exact
from .limits import NOTHING, Limits, inside, limits
from .moves import Condition
from .scan import worthwhile
from .scope import Value
from .segments import Updates
from .values import At, Values


def position(
    values: Values, index: Value, size: Size, dim: int, wrap: bool, checked: bool, known: Limits
) -> tuple[Size, Value | None]:
    """A position along a dim of `size`, and the mask of stores there (None: always); `known`: what
    it is at least and at most."""
    # that a position cannot be negative saves no time here: LLVM makes one comparison of both
    held = known if isinstance(size, int) and inside(known, size) else NOTHING
    if checked or held is not NOTHING:
        found = values.checked_index(index, size, dim, values.at(()), wrap, known=held)
        return (int(found.value) if isinstance(found, Literal) else Dim.var(found.name)), None
    limit = values.writer.index_value(size)
    if wrap:
        index = values.wrapped(index, limit)
    mask = values.in_range(index, Literal(0, dtypes.i64), limit)
    if isinstance(index, Literal):
        return int(index.value), mask
    return Dim.var(index.name), mask


def broadcast_shape(shapes: tuple[tuple[Size, ...], ...]) -> tuple[Size, ...]:
    """The shape that indices broadcast to."""
    rank = max(len(s) for s in shapes)
    result: list[Size] = [1] * rank
    for shape in shapes:
        for i, size in enumerate(shape, rank - len(shape)):
            if size != 1:
                result[i] = size
    return tuple(result)


def index_place(
    values: Values, node: Node, where: Coordinates, lead: Size, checked: bool
) -> tuple[Size, Value | None]:
    """index_put's position in [lead, indexed dims] for a place of its indices, and its mask."""
    _, _, *indices = node.inputs
    shape, dim = values.body.shape(node), node.attrs["dim"]
    flat: Size = lead
    mask: Value | None = None
    for number, index_node in enumerate(indices):
        at = values.at(index_maps.broadcast(where, values.body.shape(index_node)))
        index = values.value(index_node, at)
        size = shape[dim + number]
        place, there = position(
            values, index, size, dim + number, True, checked, limits(index_node)
        )
        flat = flat * size + place
        if there is not None:
            mask = there if mask is None else values.both(mask, there)
    return flat, mask


def sorted_updates(body: Body, node: Node, combine: str, checked: bool) -> Updates | None:
    """The updates of a node, where they are to be sorted."""
    found = _UPDATES[node.op.name](body, node, combine, checked)
    beside = unwrap(found.batches * found.columns)
    return found if worthwhile(body, found.length, beside) else None


def _key(values: Values, flat: Size, mask: Value | None, places: Size) -> Value:
    """A position as a key: `places` where it is left out."""
    writer = values.writer
    key = writer.index_value(flat)
    if mask is None:
        return key
    return writer.apply("where", dtypes.i64, mask, key, writer.index_value(places))


def _index_put(body: Body, node: Node, combine: str, checked: bool) -> Updates:
    _, source, *indices = node.inputs
    shape, dim = body.shape(node), node.attrs["dim"]
    k = len(indices)
    spots = broadcast_shape(tuple(body.shape(i) for i in indices))
    lead, suffix = shape[:dim], shape[dim + k :]
    places = unwrap(product(shape[dim : dim + k]))
    columns = unwrap(product(suffix))

    def key(values: Values, row: Size, i: Size) -> Value:
        where = index_maps.unravel(i, spots)
        return _key(values, *index_place(values, node, where, 0, checked), places)

    def value(
        values: Values, batch: Size, i: Size, column: Size, mask: tuple[Condition, ...]
    ) -> Value:
        coordinates = (
            *index_maps.unravel(batch, lead), *index_maps.unravel(i, spots),
            *index_maps.unravel(column, suffix),
        )
        at = index_maps.broadcast(coordinates, body.shape(source))
        return values.value(source, values.at(at, mask))

    def offset(batch: Size, place: Size, column: Size) -> Size:
        return unwrap((batch * places + place) * columns + column)

    batches, length = unwrap(product(lead)), unwrap(product(spots))
    return Updates(
        1, batches, length, places, columns, combine, node.dtype, key, value, offset
    )


def _scatter(body: Body, node: Node, combine: str, checked: bool) -> Updates:
    _, index_node, source = node.inputs
    dim: int = node.attrs["dim"]
    shape, spots = body.shape(node), body.shape(index_node)
    beside = (*spots[:dim], *spots[dim + 1 :])

    def place(row: Size, i: Size) -> Coordinates:
        around = index_maps.unravel(row, beside)
        return (*around[:dim], exact(i, spots[dim]), *around[dim:])

    def key(values: Values, row: Size, i: Size) -> Value:
        index = values.value(index_node, values.at(place(row, i)))
        found = position(
            values, index, shape[dim], dim, False, checked, limits(index_node)
        )
        return _key(values, *found, shape[dim])

    def value(
        values: Values, batch: Size, i: Size, column: Size, mask: tuple[Condition, ...]
    ) -> Value:
        return values.value(source, values.at(place(batch, i), mask))

    def offset(batch: Size, at: Size, column: Size) -> Size:
        found = [
            exact(coordinate_value(c), size)
            for c, size in zip(place(batch, 0), shape, strict=True)
        ]
        found[dim] = exact(at, shape[dim])
        return index_maps.linear_index(tuple(found), shape)

    rows = unwrap(product(beside))
    return Updates(
        rows, rows, spots[dim], shape[dim], 1, combine, node.dtype, key, value, offset
    )


def _unpool(body: Body, node: Node, combine: str, checked: bool) -> Updates:
    g, index_node = node.inputs
    shape = body.shape(g)
    spatial = len(node.attrs["plane_shape"])
    lead, pooled = shape[: len(shape) - spatial], shape[len(shape) - spatial :]
    plane = unwrap(product(body.sizes(node.attrs["plane_shape"])))

    def at(values: Values, row: Size, i: Size, mask: tuple[Condition, ...] = ()) -> At:
        coordinates = (*index_maps.unravel(row, lead), *index_maps.unravel(i, pooled))
        return values.at(coordinates, mask)

    def key(values: Values, row: Size, i: Size) -> Value:
        index = values.value(index_node, at(values, row, i))
        found = position(
            values, index, plane, len(shape) - 1, False, checked, limits(index_node)
        )
        return _key(values, *found, plane)

    def value(
        values: Values, batch: Size, i: Size, column: Size, mask: tuple[Condition, ...]
    ) -> Value:
        return values.value(g, at(values, batch, i, mask))

    def offset(batch: Size, place: Size, column: Size) -> Size:
        return unwrap(batch * plane + place)

    planes, count = unwrap(product(lead)), unwrap(product(pooled))
    return Updates(
        planes, planes, count, plane, 1, combine, node.dtype, key, value, offset
    )


_UPDATES = {"index_put": _index_put, "scatter": _scatter, "max_pool_grad": _unpool}
