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
from dataclasses import dataclass, field

from ..dim import Size, product, unwrap
from ..graph import Node
from ..kernel import Carry, Kernel
from . import index_maps
from .index_maps import Digit
from .lower_body import Body, carrier
from .lower_loops import dims_of, linear_shapes, weight
from .lower_nest import (
    EXPENSIVE,
    SMALL,
    Axis,
    accesses,
    coordinates,
    cost,
    digits,
    hint,
    make_kernel,
    merge,
    open_blocks,
    open_outer,
    vector_axis,
)
from .lower_reduction import bind_result, carries_of, final_value, partial_names
from .lower_scope import Value, Writer
from .lower_values import At, Values

_TILE = 8192  # elements of a row that may be kept in a Local tile
_COLUMNS = 64  # kept lanes of one parallel iteration
_OUTSIDE = 64  # up to this many lanes the vector loop goes around the serial reduced loops
REDUCES = frozenset({"reduce", "arg_reduce"})


@dataclass
class Plan:
    """The iteration space of a group of reductions and its passes."""

    axes: list[Axis]
    reductions: list[list[Node]] = field(default_factory=list)  # by pass
    full: list[list[int]] = field(default_factory=list)  # outputs stored in each pass
    kept: list[int] = field(default_factory=list)  # outputs with one element per kept place
    tiles: dict[Node, int] = field(default_factory=dict)  # node -> the pass that computes it
    vector: int = 0

    @property
    def kept_axes(self) -> list[Axis]:
        return [a for a in self.axes if not a.reduced]

    @property
    def reduced_axes(self) -> list[Axis]:
        return [a for a in self.axes if a.reduced]


def lower_rows(body: Body) -> Kernel:
    """The kernel of a group of reductions."""
    from .lower_split import lower_split, needs_split

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


# --- planning -------------------------------------------------------------------------------------


def plan_reductions(body: Body) -> Plan:
    """Axes, passes and vector direction of a group."""
    axes = _axes(body)
    plan = Plan(axes)
    _passes(body, plan)
    found = accesses(axes, lambda w, a, r: _trial(body, plan, w, a, r))
    plan.axes = merge(axes, found)
    plan.vector = vector_axis(plan.axes, found)
    if plan.axes[plan.vector].reduced:
        plan.tiles = _tiles(body, plan)
    return plan


def _axes(body: Body) -> list[Axis]:
    """The axes of the group's space, from its first reduction."""
    first = next(n for n in body.graph.nodes if n.op.family in REDUCES)
    (source,) = first.inputs
    shape = body.shape(source)
    elements = product(shape)
    roots = (source, *(n for n in body.graph.outputs if product(body.shape(n)) == elements))
    sizes = index_maps.common_cuts(linear_shapes(body, roots))
    dims = reduced_dims(first)
    axes: list[Axis] = []
    pending = [(size, d in dims) for d, size in enumerate(shape) if size != 1]
    left: Size = 1
    reduced = False
    for size in sizes:
        if left == 1:
            left, reduced = pending.pop(0)
        rest = index_maps.quotient(left, size)
        if rest is None:
            raise ValueError(f"axes {sizes} do not refine {shape}")
        left = rest
        axes.append(Axis(size, reduced))
    return axes or [Axis(1, True)]


def reduced_dims(node: Node) -> tuple[int, ...]:
    """The dims that a reduction sums over."""
    if node.op.family == "arg_reduce":
        return (node.attrs["dim"],)
    dims: tuple[int, ...] = node.attrs["dims"]
    return dims


def _passes(body: Body, plan: Plan) -> None:
    """In which pass each reduction is made and each output stored."""
    level: dict[Node, int] = {}
    for node in body.graph.nodes:
        depth = max((level[x] for x in node.inputs), default=0)
        if node.op.family in REDUCES:
            while len(plan.reductions) <= depth:
                plan.reductions.append([])
            plan.reductions[depth].append(node)
            depth += 1
        level[node] = depth
    kept = unwrap(product(a.size for a in plan.kept_axes))
    whole = unwrap(product(a.size for a in plan.axes))
    plan.full = [[] for _ in plan.reductions]
    for i, node in enumerate(body.graph.outputs):
        elements = unwrap(product(body.shape(node)))
        if elements == kept and elements != whole:
            plan.kept.append(i)
        elif elements == whole:
            while len(plan.full) <= level[node]:
                plan.full.append([])
                plan.reductions.append([])
            plan.full[level[node]].append(i)
        else:
            raise ValueError(f"output {node} fits neither the kept axes nor the whole space")


def _trial(body: Body, plan: Plan, writer: Writer, axes: list[Axis], roots: list[Size]) -> None:
    """Touch all memory of the group at one place, with stand-ins for finished reductions."""
    values = Values(body, writer)
    place = digits(axes, roots)
    kept = [(a, r) for a, r in zip(axes, roots, strict=True) if not a.reduced]
    kept_place = digits([a for a, _ in kept], [r for _, r in kept])
    writer.levels["made"] = 0
    for level in plan.reductions:
        for node in level:
            (source,) = node.inputs
            values.value(source, values.at(coordinates(place, body.shape(source))))
            stand_in = writer.apply("cast", carrier(node.dtype), _made(node))
            values.bound[node] = lambda at, value=stand_in: value  # type: ignore[misc]
    for i, node in enumerate(body.graph.outputs):
        whole = any(i in stored for stored in plan.full)
        at = values.at(
            coordinates(place if whole else kept_place, body.shape(node))
        )
        values.value(node, at)
        writer.store(f"o{i}", values.flat(node, at), _made(node))


def _made(node: Node) -> Value:
    from ..kernel import Var

    return Var("made", node.dtype)


def _tiles(body: Body, plan: Plan) -> dict[Node, int]:
    """Costly values that later passes would compute again, with the pass that makes them."""
    row = unwrap(product(a.size for a in plan.reduced_axes))
    if not isinstance(row, int) or row > _TILE:
        return {}
    tiles: dict[Node, int] = {}
    elements = product(a.size for a in plan.axes)
    for node in reversed(body.graph.nodes):
        if cost(node) < EXPENSIVE or product(body.shape(node)) != elements:
            continue
        used = [i for i in range(len(plan.reductions)) if node in _cone(body, plan, i, tiles)]
        if len(used) > 1:
            tiles[node] = used[0]
    return tiles


def _cone(body: Body, plan: Plan, number: int, tiles: dict[Node, int]) -> set[Node]:
    """The nodes that pass `number` computes."""
    outputs = body.graph.outputs
    stack = [x for r in plan.reductions[number] for x in r.inputs]
    stack += [outputs[i] for i in plan.full[number]]
    seen: set[Node] = set()
    while stack:
        node = stack.pop()
        if node in seen or node.op.family in REDUCES:
            continue
        seen.add(node)
        if node not in body.buffers and tiles.get(node, number) == number:
            stack.extend(node.inputs)
    return seen


# --- writing --------------------------------------------------------------------------------------


def _rows(body: Body, plan: Plan, values: Values) -> None:
    """Kept axes outside, one pass after another over the row inside."""
    row = hint(body, unwrap(product(a.size for a in plan.reduced_axes)))
    heavy = weight(body) * max(1, len(plan.reductions))
    kept = open_outer(values.writer, body, plan.kept_axes, row, heavy)
    _all_passes(body, plan, values, kept)
    while len(values.writer.scopes) > 1:
        values.writer.close()


def _columns(body: Body, plan: Plan, values: Values) -> None:
    """Blocks of the contiguous kept axis outside; each lane goes over its own column."""
    inner = plan.axes[plan.vector]
    outer = [a for i, a in enumerate(plan.axes) if not a.reduced and i != plan.vector]
    column = hint(body, unwrap(product(a.size for a in plan.reduced_axes)))
    heavy = weight(body) * max(1, len(plan.reductions))
    roots, v = open_blocks(values.writer, body, outer, inner, _COLUMNS, column, heavy)
    before = sum(not a.reduced for a in plan.axes[: plan.vector])
    roots.insert(before, v)
    _all_passes(body, plan, values, roots)
    while len(values.writer.scopes) > 1:
        values.writer.close()


def _all_passes(body: Body, plan: Plan, values: Values, kept: list[Size]) -> None:
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


def _one_pass(body: Body, plan: Plan, values: Values, kept: list[Size], number: int) -> None:
    """One walk over the reduced axes: stores, tiles, and the reductions of this pass."""
    writer = values.writer
    order = _loop_order(plan)
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


def full_place(plan: Plan, kept: list[Size], reduced: dict[str, Size]) -> tuple[Digit, ...]:
    """The digits of a place in the whole space."""
    remaining = list(kept)
    roots = [reduced[a.var] if a.reduced else remaining.pop(0) for a in plan.axes]
    return digits(plan.axes, roots)


def _loop_order(plan: Plan) -> list[Axis]:
    """The reduced axes from the outermost loop to the innermost."""
    axes = plan.reduced_axes
    for i, axis in enumerate(axes):
        axis.var = f"r{i}"
    inner = plan.axes[plan.vector]
    if not inner.reduced:
        return axes
    inner.var = "v"
    rest = [a for a in axes if a is not inner]
    short = isinstance(inner.size, int) and inner.size <= _OUTSIDE
    return [inner, *rest] if short else [*rest, inner]


def _kind(plan: Plan, axis: Axis) -> str:
    return "vector" if axis is plan.axes[plan.vector] else "serial"


def close_with_carries(writer: Writer, loops: list[Axis], carries: list[Carry]) -> list[Value]:
    """Close the reduced loops, handing the carries outwards; returns the final values."""
    from ..kernel import Var

    if not loops:  # one element: its value is the result
        return [writer.let(c.next) for c in carries]
    for depth in range(len(loops)):
        writer.close(carries)
        outer = []
        if depth + 1 < len(loops):
            for c in carries:
                name = writer.fresh("c")
                writer.levels[name] = len(writer.scopes) - 1
                outer.append(Carry(name, c.dtype, c.init, c.combine, Var(c.name, c.dtype)))
            carries = outer
    return [Var(c.name, c.dtype) for c in carries]


def _store_outputs(
    body: Body, plan: Plan, values: Values, place: tuple[Digit, ...], number: int
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
    body: Body, plan: Plan, values: Values,
    places: tuple[tuple[Digit, ...], tuple[Digit, ...]], number: int,
) -> None:  # fmt: skip
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


__all__ = ["REDUCES", "SMALL", "Plan", "lower_rows", "plan_reductions", "reduced_dims"]
