"""Pooling windows -> kernels: one lane per result, a serial loop over the window's taps."""

from __future__ import annotations

from ...dim import Dim, Size, floordiv, maximum, minimum, product, unwrap
from ...graph import Node
from ...kernel import Carry, Kernel, Var
from ...record import record
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
    lanes = len(node.attrs["window"])
    place = _open_lanes(body, node, writer, shape)
    if place is None:
        place, lanes = _open_rows(body, node, writer, shape), 1
    results = _taps(values, node, place, lanes)
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


def _taps(values: Values, node: Node, place: Coordinates, lanes: int) -> list[Value]:
    """Loops over the window at one result; the maximum, its flat index if it is read, or the sum.
    Along all axes of the window but the last `lanes`, all lanes are at one place."""
    writer, body = values.writer, values.body
    (x,) = node.inputs
    shape = body.shape(x)
    lead = len(shape) - len(node.attrs["window"])
    dtype = carrier(x.dtype)
    places = node.op.name == "max_pool" and _finds_places(body)
    combine = "add" if node.op.name == "window_sum" else "argmax_last" if places else "max"
    start = identity(combine, dtype)
    starts: dict[str, Value] = {combine: start}
    if places:
        starts["index"] = _first_tap(values, node, place[lead:], shape[lead:])
    axes = _axes(node, place[lead:], shape[lead:], lanes)
    around, positions = _open_window(writer, axes, lanes, starts)
    conditions = tuple(
        Condition(position, 0, axis.size)
        for axis, position in zip(axes, positions, strict=True) if axis.leaves
    )
    inner = tuple(exact(at, axis.size) for axis, at in zip(axes, positions, strict=True))
    at = values.at((*place[:lead], *inner), conditions)
    inside = values.mask(conditions)
    value = values.value(x, at)
    if inside is not None:
        value = writer.apply("where", dtype, inside, value, start)
    found = [value]
    if places:
        found.append(writer.index_value(index_maps.linear_index(inner, shape[lead:])))
    results = _close_window(writer, starts, around, found)
    return [values.rounded(results[0], x.dtype), *results[1:]]


@record
class _Along:
    """An axis of a window at one result: its `count` taps read at `start`, `start + step`, ... in
    a plane of `size`, and may be outside of it where it `leaves` that."""

    start: Size
    step: int
    count: Size
    size: Size
    leaves: bool


def _axes(node: Node, place: Coordinates, plane: tuple[Size, ...], lanes: int) -> list[_Along]:
    """The axes of the window at a place. Where all lanes have the same taps inside of the plane,
    which are neighbours, there are no others."""
    found = []
    alone = len(plane) - lanes
    for i, (at, size) in enumerate(zip(place, plane, strict=True)):
        window, stride, low, high, step = (
            node.attrs[k][i] for k in ("window", "stride", "pad_low", "pad_high", "dilation")
        )
        start = unwrap(coordinate_value(at) * stride - low)
        leaves = bool(low or high)
        if leaves and i < alone and step == 1:
            end = minimum(unwrap(start + window), size)
            start = maximum(start, 0) if low else start
            found.append(_Along(start, step, unwrap(end - start), size, False))
        else:
            found.append(_Along(start, step, window, size, leaves))
    return found


def _open_window(
    writer: Writer, axes: list[_Along], lanes: int, starts: dict[str, Value]
) -> tuple[list[list[Var]], list[Size]]:
    """Opens a loop along each axis but the last `lanes`, and one over all of these. Returns what
    each loop carries, which starts from what the one around it does, and where a tap reads."""
    alone = len(axes) - lanes
    loops = [(f"k{i}", axis.count) for i, axis in enumerate(axes[:alone]) if axis.count != 1]
    over = tuple(axis.count for axis in axes[alone:])
    count = unwrap(product(over))
    if count != 1 or not loops:
        loops.append(("k", count))
    carried: list[list[Var]] = []
    for name, extent in loops:
        carried.append([])
        for start in starts.values():
            variable = Var(writer.fresh("c"), start.dtype)
            writer.levels[variable.name] = len(writer.scopes)
            carried[-1].append(variable)
        writer.open("serial", name, extent)
    taps = [0 if axis.count == 1 else Dim.var(f"k{i}") for i, axis in enumerate(axes[:alone])]
    last: Size = Dim.var("k") if count != 1 else 0
    taps += [coordinate_value(tap) for tap in index_maps.unravel(last, over)]
    return carried, [
        unwrap(axis.start + tap * axis.step) for axis, tap in zip(axes, taps, strict=True)
    ]


def _close_window(
    writer: Writer, starts: dict[str, Value], loops: list[list[Var]], values: list[Value]
) -> list[Value]:
    """Closes the loops over a window, the innermost of which combines values."""
    for depth in range(len(loops) - 1, -1, -1):
        inits = loops[depth - 1] if depth else list(starts.values())
        inner = depth == len(loops) - 1
        writer.close([
            Carry(name.name, name.dtype, init, combine if inner else "set", value)
            for name, init, combine, value in zip(
                loops[depth], inits, starts, values, strict=True
            )
        ])
        values = list(loops[depth])
    return values


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
