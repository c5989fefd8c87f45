"""The iteration space of a group of reductions: axes, passes, vector direction, tiles."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeVar

from ...dim import Size, product, unwrap
from ...graph import Node
from ...kernel import Var
from . import index_maps
from .body import Body, carrier
from .loops import linear_shapes
from .nest import Axis, accesses, coordinates, cost, digits, hint, merge, vector_axis
from .scope import Value, Writer
from .values import Values

T = TypeVar("T")

REDUCES = frozenset({"reduce", "arg_reduce"})


@dataclass
class ReductionPlan:
    """The iteration space of a group of reductions and its passes."""

    axes: list[Axis]
    reductions: list[list[Node]] = field(default_factory=list)  # by pass
    full: list[list[int]] = field(default_factory=list)  # outputs stored in each pass
    kept: list[int] = field(default_factory=list)  # outputs with one element per kept place
    tiles: dict[Node, int] = field(default_factory=dict)  # node -> the pass that computes it
    columns: list[list[Node]] = field(default_factory=list)  # sums over rows, by pass
    column_results: list[int] = field(default_factory=list)  # outputs made of these
    vector: int = 0

    @property
    def in_order(self) -> bool:
        """Whether the first of equals has to be met first."""
        return any(node.op.family == "arg_reduce" for nodes in self.reductions for node in nodes)

    @property
    def kept_axes(self) -> list[Axis]:
        return [a for a in self.axes if not a.reduced]

    @property
    def reduced_axes(self) -> list[Axis]:
        return [a for a in self.axes if a.reduced]


def plan_reductions(body: Body) -> ReductionPlan:
    """Axes, passes and vector direction of a group."""
    axes = _axes(body)
    plan = ReductionPlan(axes)
    _passes(body, plan)
    found = accesses(axes, lambda w, a, r: _trial(body, plan, w, a, r))
    plan.axes = merge(axes, found)
    plan.vector = vector_axis(plan.axes, found)
    if any(plan.columns):  # rows are kept in the lanes, and so are the sums
        plan.vector = _last(plan)
    if plan.axes[plan.vector].reduced and plan.in_order:
        plan.vector = _last(plan)
    if plan.axes[plan.vector].reduced:
        plan.tiles = _tiles(body, plan)
    return plan


def _last(plan: ReductionPlan) -> int:
    """The last reduced axis."""
    return max(i for i, axis in enumerate(plan.axes) if axis.reduced)


def go_across(body: Body, plan: ReductionPlan) -> None:
    """Let lanes share out the rows of few columns, rather than have one each to go along."""
    machine = body.machine
    if [axis.reduced for axis in plan.axes] != [True, False] or any(plan.full):
        return
    rows, columns = (hint(body, axis.size) for axis in plan.axes)
    if rows >= machine.piece_steps and rows * columns <= machine.across:
        plan.vector = 0
        plan.tiles = _tiles(body, plan)


def _axes(body: Body) -> list[Axis]:
    """The axes of the group's space, from its first reduction."""
    beside = column_sums(body)
    first = next(n for n in body.graph.nodes if n.op.family in REDUCES and n not in beside)
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


def column_sums(body: Body) -> set[Node]:
    """The reductions of a group that do not go along its rows, where others do."""
    reductions = [n for n in body.graph.nodes if n.op.family in REDUCES]
    along = {n for n in reductions if _last_reduced(body, n)}
    return set(reductions) - along if along else set()


def _last_reduced(body: Body, node: Node) -> bool:
    dims = [d for d, size in enumerate(body.shape(node.inputs[0])) if size != 1]
    return bool(dims) and dims[-1] in reduced_dims(node)


def reduced_dims(node: Node) -> tuple[int, ...]:
    """The dims that a reduction sums over."""
    if node.op.family == "arg_reduce":
        return (node.attrs["dim"],)
    dims: tuple[int, ...] = node.attrs["dims"]
    return dims


def _passes(body: Body, plan: ReductionPlan) -> None:
    """In which pass each reduction is made and each output stored."""
    level: dict[Node, int] = {}
    beside = column_sums(body)
    below = set(beside)  # what is made of sums over rows
    for node in body.graph.nodes:
        depth = max((level[x] for x in node.inputs), default=0)
        if not below.isdisjoint(node.inputs):
            below.add(node)
        if node in beside:
            _at(plan.columns, depth).append(node)
        elif node.op.family in REDUCES:
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
        if node in below:
            plan.column_results.append(i)
        elif elements == kept and elements != whole:
            plan.kept.append(i)
        elif elements == whole:
            while len(plan.full) <= level[node]:
                plan.full.append([])
                plan.reductions.append([])
            plan.full[level[node]].append(i)
        else:
            raise ValueError(f"output {node} fits neither the kept axes nor the whole space")
    passes = max(len(plan.reductions), len(plan.columns))
    _at(plan.reductions, passes - 1)
    _at(plan.full, passes - 1)
    _at(plan.columns, passes - 1)


def _at(table: list[list[T]], number: int) -> list[T]:
    """A list's list, which grows as needed."""
    while len(table) <= number:
        table.append([])
    return table[number]


def _trial(
    body: Body, plan: ReductionPlan, writer: Writer, axes: list[Axis], roots: list[Size]
) -> None:
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
    for source in (node.inputs[0] for nodes in plan.columns for node in nodes):
        values.value(source, values.at(coordinates(place, body.shape(source))))
    for i, node in enumerate(body.graph.outputs):
        if i in plan.column_results:
            continue
        whole = any(i in stored for stored in plan.full)
        at = values.at(
            coordinates(place if whole else kept_place, body.shape(node))
        )
        values.value(node, at)
        writer.store(f"o{i}", values.flat(node, at), _made(node))


def _made(node: Node) -> Value:
    return Var("made", node.dtype)


def _tiles(body: Body, plan: ReductionPlan) -> dict[Node, int]:
    """Values that later passes would compute or read again, with the pass that makes them."""
    row = unwrap(product(a.size for a in plan.reduced_axes))
    if not isinstance(row, int) or row > body.machine.tile:
        return {}
    tiles: dict[Node, int] = {}
    sums = sum(map(len, plan.columns))
    elements = product(a.size for a in plan.axes)
    for node in reversed(body.graph.nodes):
        if product(body.shape(node)) != elements or node.op.family in REDUCES:
            continue
        dear = cost(node) >= body.machine.dear
        if not dear and row * (len(tiles) + 1 + sums) > body.machine.rereads:
            continue
        used = [i for i in range(len(plan.reductions)) if node in _cone(body, plan, i, tiles)]
        if len(used) > 1 and (dear or _reads_first(body, plan, node, used[0], tiles)):
            tiles[node] = used[0]
    return tiles


def _reads_first(
    body: Body, plan: ReductionPlan, node: Node, number: int, tiles: dict[Node, int]
) -> bool:
    """Whether all memory of the space that a value is made of is read for the first time in the
    pass that makes it: then keeping the value saves all other reads."""
    earlier: set[Node] = set()
    for i in range(number):
        earlier |= _cone(body, plan, i, tiles)
    elements = product(a.size for a in plan.axes)
    loads, stack, seen = 0, [node], {node}
    while stack:
        x = stack.pop()
        if x.op.name in ("gather", "index") or (
            x in body.buffers and product(body.shape(x)) == elements
        ):
            loads += 1
            if x in earlier:
                return False
        if x in body.buffers or x.op.family in REDUCES or x in tiles:
            continue
        stack += [y for y in x.inputs if y not in seen]
        seen.update(x.inputs)
    return loads > 0


def _cone(body: Body, plan: ReductionPlan, number: int, tiles: dict[Node, int]) -> set[Node]:
    """The nodes that pass `number` computes."""
    outputs = body.graph.outputs
    stack = [x for r in plan.reductions[number] for x in r.inputs]
    stack += [outputs[i] for i in plan.full[number]]
    stack += [node.inputs[0] for node in plan.columns[number]]
    seen: set[Node] = set()
    while stack:
        node = stack.pop()
        if node in seen or node.op.family in REDUCES:
            continue
        seen.add(node)
        if node not in body.buffers and tiles.get(node, number) == number:
            stack.extend(node.inputs)
    return seen
