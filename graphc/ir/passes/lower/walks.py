"""One walk over the reduced axes of a group: its loops, what it stores, what it reduces."""

from __future__ import annotations

from ...dim import Size, ceil_div, minimum, product, unwrap
from ...kernel import Carry
from ...record import record
from .body import Body
from .cuts import Cuts
from .index_maps import Digit
from .nest import Axis, coordinates, digits, hint, unravelled
from .reduction import carries_of, close_with_carries
from .rows_plan import ReductionPlan
from .scope import Value, Writer
from .values import Values


@record(frozen=False)
class Walk:
    """Open loops over the reduced axes, or over one piece of each. `roots`: the position along
    every axis, by its variable; `inside`: the position in the piece, as one number."""

    roots: dict[str, Size]
    inside: Size
    loops: list[Axis]


def open_reduced(
    body: Body, cuts: Cuts, writer: Writer, pieces: list[Size] | None = None, first: int = 0,
    number: int | None = None,
) -> Walk:
    """Open the loops of a walk; over the `first` places of a piece only, unless that is 0. Of the
    pass `number`, a long sum has sums of stretches."""
    plan = cuts.plan
    order = _loop_order(plan, body.machine.lanes_outside)
    starts: dict[str, Size] = {}
    extents: dict[str, Size] = {axis.var: axis.size for axis in order}
    for i, axis in enumerate(plan.reduced_axes if pieces else ()):
        assert pieces is not None
        starts[axis.var], extents[axis.var] = cuts.stretch(i, pieces[i])
    if first:
        extents = dict(zip(extents, first_extents(list(extents.values()), first), strict=True))
    roots: dict[str, Size] = {}
    if cuts.joined:
        axes = [Axis(extents[axis.var]) for axis in plan.reduced_axes]
        inside = writer.open("vector", "v", unwrap(product(a.size for a in axes)))
        along = unravelled(writer, inside, axes)
        roots = {a.var: at for a, at in zip(plan.reduced_axes, along, strict=True)}
        loops = [Axis(2)]
    else:
        loops = [a for a in order if a.size != 1]
        for axis in order:
            start: Size = 0
            extent = extents[axis.var]
            for most in [] if number is None else _stretches(body, plan, axis, number):
                loops.append(axis)
                start, extent = open_stretch(writer, f"{axis.var}s{most}", most, start, extent)
            root = 0 if axis.size == 1 else writer.open(_kind(plan, axis), axis.var, extent)
            roots[axis.var] = unwrap(start + root)
        inside = flat_position(plan.reduced_axes, [roots[a.var] for a in plan.reduced_axes])
    absolute = {var: unwrap(starts.get(var, 0) + root) for var, root in roots.items()}
    return Walk(absolute, inside, loops)


def _stretches(body: Body, plan: ReductionPlan, axis: Axis, number: int) -> list[int]:
    """How far along an axis the sums of a pass go before they are added to those of
    what was before, longest first: a sum of n numbers one by one may be off by n roundings."""
    sums = any(n.op.name == "sum" and n.dtype.is_float for n in plan.reductions[number])
    if not sums or body.machine.lane_steps:
        return []
    short = _ALONG if axis is plan.axes[plan.vector] else _ACROSS
    size = hint(body, axis.size)
    return [most for most in (short * _AGAIN, short) if size > 2 * most]


_ALONG, _ACROSS = 4096, 256  # elements of all lanes together, and of one
_AGAIN = 64


def open_stretch(
    writer: Writer, name: str, most: int, start: Size, extent: Size
) -> tuple[Size, Size]:
    """Open a loop over stretches of a stretch: where one begins, and how far it goes."""
    number = writer.open("serial", name, ceil_div(extent, most))
    even = isinstance(extent, int) and extent % most == 0
    left = unwrap(extent - number * most)
    return unwrap(start + number * most), most if even else minimum(most, left)


def first_extents(extents: list[Size], first: int) -> list[Size]:
    """How far the first places of a piece go along each axis: of the outermost alone, that is."""
    result: list[Size] = []
    for extent in extents:
        alone = extent == 1 or any(e != 1 for e in result)
        result.append(1 if alone else minimum(first, extent))
    return result


def flat_position(axes: list[Axis], roots: list[Size]) -> Size:
    """A place in a space as one number, row-major."""
    flat: Size = 0
    for axis, root in zip(axes, roots, strict=True):
        flat = flat * axis.size + root
    return unwrap(flat)


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
    short = isinstance(inner.size, int) and inner.size <= lanes_outside and not plan.in_order
    return [inner, *rest] if short else [*rest, inner]


def _kind(plan: ReductionPlan, axis: Axis) -> str:
    return "vector" if axis is plan.axes[plan.vector] else "serial"


def store_full(
    body: Body, plan: ReductionPlan, values: Values, place: tuple[Digit, ...], number: int
) -> None:
    """Store the outputs of a pass that have all elements."""
    results = []
    for i in plan.full[number]:
        node = body.graph.outputs[i]
        at = values.at(coordinates(place, body.shape(node)))
        value = values.stored(values.value(node, at), node.dtype)
        results.append((i, values.flat(node, at), value))
    for i, index, value in results:
        values.writer.store(f"o{i}", index, value)


def store_kept(
    body: Body, plan: ReductionPlan, values: Values, place: tuple[Digit, ...]
) -> None:
    """Store the outputs that have one element per kept place."""
    results = []
    for i in plan.kept:
        node = body.graph.outputs[i]
        at = values.at(coordinates(place, body.shape(node)))
        value = values.stored(values.value(node, at), node.dtype)
        results.append((i, values.flat(node, at), value))
    for i, index, value in results:
        values.writer.store(f"o{i}", index, value)


def reduce(
    body: Body, plan: ReductionPlan, values: Values, place: tuple[Digit, ...], number: int,
    walk: Walk,
) -> list[Value]:
    """The carries of a pass, its loops closed: the carried values, in order."""
    carries = carries_of_pass(body, plan, values, place, number)
    return close_with_carries(values.writer, walk.loops, carries)


def carries_of_pass(
    body: Body, plan: ReductionPlan, values: Values, place: tuple[Digit, ...], number: int
) -> list[Carry]:
    """Of all its reductions, in order."""
    carries: list[Carry] = []
    for node in plan.reductions[number]:
        (source,) = node.inputs
        at = values.at(coordinates(place, body.shape(source)))
        carries += carries_of(values, node, at)
    return carries
