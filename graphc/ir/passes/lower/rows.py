"""Reductions with what is computed around them -> one kernel.

The space of a group has kept and reduced axes. Every reduction needs the results of those it
depends on, so the reduced axes are walked in passes (softmax: maximum, sum, quotient). What is
constant per kept place is computed between the passes. The vector runs along the axis that is
contiguous in memory: a reduced one ("rows": lanes are summed at the end of a pass) or a kept one
("columns": each lane has its own sums). Results that only have a few kept places over much
memory are made in two stages, from partial sums over chunks that are cut by shape.
"""

from __future__ import annotations

from collections.abc import Callable

from ...dim import Size, product, unwrap
from ...graph import Node
from ...kernel import Kernel
from . import index_maps
from .body import Body, carrier
from .index_maps import Digit
from .loops import dims_of, weight
from .nest import Axis, coordinates, digits, hint, make_kernel, open_blocks, open_outer
from .reduction import (
    bind_result,
    carries_of,
    close_with_carries,
    final_value,
    partial_names,
)
from .rows_plan import ReductionPlan, plan_reductions
from .scope import Value, Writer
from .split import lower_split, needs_split
from .values import At, Values


def lower_rows(body: Body) -> Kernel:
    """The kernel of a group of reductions."""
    plan = plan_reductions(body)
    if needs_split(body, plan):
        return lower_split(body, plan)
    writer = Writer()
    values = Values(body, writer)
    if plan.axes[plan.vector].reduced:
        _rows(body, plan, values)
    else:
        _columns(body, plan, values)
    return make_kernel(body, [writer.finish()], dims_of(body))


# --- writing --------------------------------------------------------------------------------------


def _rows(body: Body, plan: ReductionPlan, values: Values) -> None:
    """Kept axes outside, one pass after another over the row inside."""
    row = hint(body, unwrap(product(a.size for a in plan.reduced_axes)))
    heavy = weight(body) * max(1, len(plan.reductions))
    kept = open_outer(values.writer, body, plan.kept_axes, row, heavy)
    _all_passes(body, plan, values, kept)
    while len(values.writer.scopes) > 1:
        values.writer.close()


def _columns(body: Body, plan: ReductionPlan, values: Values) -> None:
    """Blocks of the contiguous kept axis outside; each lane goes over its own column."""
    inner = plan.axes[plan.vector]
    outer = [a for i, a in enumerate(plan.axes) if not a.reduced and i != plan.vector]
    column = hint(body, unwrap(product(a.size for a in plan.reduced_axes)))
    heavy = weight(body) * max(1, len(plan.reductions))
    roots, v = open_blocks(values.writer, body, outer, inner, body.machine.columns, column, heavy)
    before = sum(not a.reduced for a in plan.axes[: plan.vector])
    roots.insert(before, v)
    _all_passes(body, plan, values, roots)
    while len(values.writer.scopes) > 1:
        values.writer.close()


def _all_passes(body: Body, plan: ReductionPlan, values: Values, kept: list[Size]) -> None:
    """Every pass, then the outputs that have one element per kept place."""
    writer = values.writer
    for number in range(len(plan.reductions)):
        if plan.reductions[number] or plan.full[number]:
            _one_pass(body, plan, values, kept, number)
    place = digits(plan.kept_axes, kept)
    results = []
    for i in plan.kept:
        node = body.graph.outputs[i]
        at = values.at(coordinates(place, body.shape(node)))
        value = values.stored(values.value(node, at), node.dtype)
        results.append((i, values.flat(node, at), value))
    for i, index, value in results:
        writer.store(f"o{i}", index, value)


def _one_pass(
    body: Body, plan: ReductionPlan, values: Values, kept: list[Size], number: int
) -> None:
    """One walk over the reduced axes: stores, tiles, and the reductions of this pass."""
    writer = values.writer
    order = _loop_order(plan, body.machine.lanes_outside)
    roots: dict[str, Size] = {}
    for axis in order:
        roots[axis.var] = (
            0 if axis.size == 1 else writer.open(_kind(plan, axis), axis.var, axis.size)
        )
    place = full_place(plan, kept, roots)
    inside = digits(plan.reduced_axes, [roots[a.var] for a in plan.reduced_axes])
    _use_tiles(body, plan, values, (place, inside), number)
    _store_outputs(body, plan, values, place, number)
    carries = []
    for node in plan.reductions[number]:
        (source,) = node.inputs
        at = values.at(coordinates(place, body.shape(source)))
        carries += carries_of(values, node, at)
    names = close_with_carries(writer, [a for a in order if a.size != 1], carries)
    position = 0
    for node in plan.reductions[number]:
        width = len(partial_names(node))
        result = final_value(values, node, names[position : position + width])
        bind_result(values, node, result, digits(plan.kept_axes, kept))
        position += width


def full_place(
    plan: ReductionPlan, kept: list[Size], reduced: dict[str, Size]
) -> tuple[Digit, ...]:
    """The digits of a place in the whole space."""
    remaining = list(kept)
    roots = [reduced[a.var] if a.reduced else remaining.pop(0) for a in plan.axes]
    return digits(plan.axes, roots)


def _loop_order(plan: ReductionPlan, lanes_outside: int) -> list[Axis]:
    """The reduced axes from the outermost loop to the innermost."""
    axes = plan.reduced_axes
    for i, axis in enumerate(axes):
        axis.var = f"r{i}"
    inner = plan.axes[plan.vector]
    if not inner.reduced:
        return axes
    inner.var = "v"
    rest = [a for a in axes if a is not inner]
    short = isinstance(inner.size, int) and inner.size <= lanes_outside
    return [inner, *rest] if short else [*rest, inner]


def _kind(plan: ReductionPlan, axis: Axis) -> str:
    return "vector" if axis is plan.axes[plan.vector] else "serial"


def _store_outputs(
    body: Body, plan: ReductionPlan, values: Values, place: tuple[Digit, ...], number: int
) -> None:
    results = []
    for i in plan.full[number]:
        node = body.graph.outputs[i]
        at = values.at(coordinates(place, body.shape(node)))
        value = values.stored(values.value(node, at), node.dtype)
        results.append((i, values.flat(node, at), value))
    for i, index, value in results:
        values.writer.store(f"o{i}", index, value)


def _use_tiles(
    body: Body, plan: ReductionPlan, values: Values,
    places: tuple[tuple[Digit, ...], tuple[Digit, ...]], number: int,
) -> None:
    """Keep this pass's costly values in their tiles; read those of earlier passes."""
    row = unwrap(product(a.size for a in plan.reduced_axes))
    place, inside = places  # in the whole space, in the row
    index = index_maps.linear_index((inside,), (row,))
    for i, (node, made) in enumerate(plan.tiles.items()):
        name, dtype = f"tile{i}", carrier(node.dtype)
        at = values.at(coordinates(place, body.shape(node)))
        if made == number:
            assert isinstance(row, int)
            values.writer.local(name, dtype, row)
            values.writer.store(name, index, values.value(node, at))
        elif made < number:
            values.bound[node] = _tile_reader(values, node, name, index, values.flat(node, at))


def _tile_reader(
    values: Values, node: Node, name: str, index: Size, flat: Size
) -> Callable[[At], Value | None]:
    dtype = carrier(node.dtype)

    def read(at: At) -> Value | None:
        if values.flat(node, at) != flat:
            return None
        return values.writer.load(name, index, dtype)

    return read
