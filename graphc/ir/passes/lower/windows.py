"""Pooling windows -> kernels: one lane per result, a serial loop over the window's taps."""

from __future__ import annotations

from ... import dtypes
from ...dim import Size, floordiv, maximum, product, unwrap
from ...graph import Node
from ...kernel import Carry, Kernel, Var
from ...types import TupleType
from . import index_maps
from .body import Body, carrier
from .index_maps import Coordinates, coordinate_value, exact
from .loops import dims_of
from .moves import Condition
from .nest import Axis, hint, make_kernel, open_blocks, open_outer, unravelled
from .reduction import identity
from .scope import Value, Writer
from .values import Values


def lower_window(body: Body, node: Node) -> Kernel:
    """The kernel of max_pool or window_sum."""
    shape = _result_shape(body, node)
    writer = Writer()
    values = Values(body, writer)
    place = _open_lanes(body, node, writer, shape)
    if place is None:
        place = _open_rows(body, node, writer, shape)
    results = _taps(values, node, place)
    flat = index_maps.linear_index(place, shape)
    for i, output in enumerate(body.graph.outputs):
        index = output.attrs["index"] if output.op.name == "get" else 0
        writer.store(f"o{i}", flat, values.stored(results[index], output.dtype))
    while len(writer.scopes) > 1:
        writer.close()
    return make_kernel(body, [writer.finish()], dims_of(body))


def _open_rows(
    body: Body, node: Node, writer: Writer, shape: tuple[Size, ...]
) -> Coordinates:
    """A plane for each worker, which goes along it row by row; of few planes, so many rows of one
    axis, or of several, that there are enough."""
    lead = len(shape) - len(node.attrs["window"])
    planes = unwrap(product(shape[:lead]))
    window = int(product(node.attrs["window"]))  # type: ignore[arg-type]
    outer = [Axis(planes), *(Axis(s) for s in shape[lead:-1])]
    shared = 1
    while shared < len(outer) and (
        hint(body, unwrap(product(a.size for a in outer[:shared]))) < body.machine.parallelism
    ):
        shared += 1
    alone = [*(a.size for a in outer[shared:]), shape[-1]]
    roots = open_outer(
        writer, body, outer[:shared], hint(body, unwrap(product(alone))) * window, 1
    )
    roots += [
        0 if a.size == 1 else writer.open("serial", f"y{i}", a.size)
        for i, a in enumerate(outer[shared:])
    ]
    roots.append(writer.open("vector", "v", shape[-1]))
    return (
        *index_maps.unravel(roots[0], shape[:lead]),
        *(exact(r, s) for r, s in zip(roots[1:], shape[lead:], strict=True)),
    )


def _open_lanes(
    body: Body, node: Node, writer: Writer, shape: tuple[Size, ...]
) -> Coordinates | None:
    """Lanes over all results, where a machine wants nothing in series; None where it does."""
    if not body.machine.lane_steps:
        return None
    window = int(product(node.attrs["window"]))  # type: ignore[arg-type]
    _, flat = open_blocks(
        writer, body, [], Axis(unwrap(product(shape))), body.machine.block, window, 1
    )
    roots = unravelled(writer, flat, [Axis(size) for size in shape])
    return tuple(exact(root, size) for root, size in zip(roots, shape, strict=True))


def _result_shape(body: Body, node: Node) -> tuple[Size, ...]:
    if node.op.name == "window_sum":
        return body.shape(node)
    assert isinstance(node.type, TupleType)
    return body.sizes(node.type.elements[0].shape)


def _taps(values: Values, node: Node, place: Coordinates) -> list[Value]:
    """Loop over the window at one result; the maximum, its flat index if it is read, or the sum."""
    writer, body = values.writer, values.body
    (x,) = node.inputs
    shape = body.shape(x)
    window = node.attrs["window"]
    lead = len(shape) - len(window)
    first = None
    if node.op.name == "max_pool" and _finds_places(body):
        first = _first_tap(values, node, place[lead:], shape[lead:])
    tap = writer.open("serial", "k", int(product(window)))  # type: ignore[arg-type]
    positions, conditions = _positions(node, tap, place[lead:], shape[lead:])
    at = values.at((*place[:lead], *positions), conditions)
    inside = values.mask(conditions)
    value = values.value(x, at)
    dtype = carrier(x.dtype)
    combine = "add"
    if node.op.name == "max_pool":
        combine = "max" if first is None else "argmax_last"
    start = identity(combine, dtype)
    if inside is not None:
        value = writer.apply("where", dtype, inside, value, start)
    carries = [_carry(writer, dtype, start, combine, value)]
    if first is not None:
        where = index_maps.linear_index(positions, shape[lead:])
        carries.append(_carry(writer, dtypes.i64, first, "index", writer.index_value(where)))
    writer.close(carries)
    results: list[Value] = [Var(c.name, c.dtype) for c in carries]
    results[0] = values.rounded(results[0], x.dtype)
    return results


def _finds_places(body: Body) -> bool:
    """Whether somebody reads where the maxima are: that costs more than the maxima."""
    return any(output.attrs.get("index") == 1 for output in body.graph.outputs)


def _first_tap(values: Values, node: Node, place: Coordinates, plane: tuple[Size, ...]) -> Value:
    """The index of the first tap inside the plane: what a window of nothing but -inf gives."""
    positions: list[index_maps.Coordinate] = []
    for i, (at, size) in enumerate(zip(place, plane, strict=True)):
        stride, low, step = (node.attrs[k][i] for k in ("stride", "pad_low", "dilation"))
        start = unwrap(coordinate_value(at) * stride - low)
        if low:
            before = maximum(unwrap(0 - start), 0)
            start = unwrap(start + floordiv(before + (step - 1), step) * step)
        positions.append(exact(start, size))
    return values.writer.index_value(index_maps.linear_index(tuple(positions), plane))


def _carry(writer: Writer, dtype: dtypes.DType, init: Value, combine: str, value: Value) -> Carry:
    name = writer.fresh("c")
    writer.levels[name] = len(writer.scopes) - 1
    return Carry(name, dtype, init, combine, value)


def _positions(
    node: Node, tap: Size, place: Coordinates, plane: tuple[Size, ...]
) -> tuple[Coordinates, tuple[Condition, ...]]:
    """Where a tap reads in the plane, and when that is inside."""
    window = node.attrs["window"]
    positions: list[index_maps.Coordinate] = []
    conditions: list[Condition] = []
    taps = index_maps.unravel(tap, window)
    for i, (at, size) in enumerate(zip(place, plane, strict=True)):
        stride, low = node.attrs["stride"][i], node.attrs["pad_low"][i]
        dilation, high = node.attrs["dilation"][i], node.attrs["pad_high"][i]
        index = coordinate_value(at) * stride + coordinate_value(taps[i]) * dilation
        index = unwrap(index - low)
        if low or high:
            conditions.append(Condition(index, 0, size))
        positions.append(exact(index, size))
    return tuple(positions), tuple(conditions)
