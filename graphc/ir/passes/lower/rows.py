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
from .body import Body, carrier
from .column_runs import goes_in_runs, lower_runs
from .columns import ColumnSums, add_columns
from .cuts import Cuts, cut, uncut
from .index_maps import Digit
from .loops import dims_of, weight
from .moments import find_moments
from .near_moments import NearMoments, fits_one_walk
from .nest import coordinates, digits, hint, make_kernel, open_blocks, open_outer
from .reduction import bind_result, final_value, partial_names
from .rows_plan import ReductionPlan, go_across, plan_reductions
from .scope import Value, Writer
from .split import lower_split, needs_split
from .staged import lower_staged
from .values import At, Values
from .walks import full_place, open_reduced, reduce, store_full, store_kept


def lower_rows(body: Body) -> Kernel:
    """The kernel of a group of reductions."""
    plan = plan_reductions(body)
    if any(plan.columns):
        return _rows_and_columns(body, plan)
    moments = find_moments(body, plan)
    if moments is None:  # else columns are read once
        go_across(body, plan)
    cuts = cut(body, plan, moments is not None)
    if not cuts.whole:
        return lower_staged(body, cuts, moments)
    if not plan.axes[plan.vector].reduced and goes_in_runs(body, plan):
        return lower_runs(body, plan)
    if needs_split(body, plan):
        return lower_split(body, plan)
    writer = Writer(body.machine.hoists)
    values = Values(body, writer)
    if plan.axes[plan.vector].reduced:
        _rows(body, cuts, values)
    else:
        _columns(body, cuts, values)
    return make_kernel(body, [writer.finish()], dims_of(body))


# --- writing --------------------------------------------------------------------------------------


def _rows(body: Body, cuts: Cuts, values: Values) -> None:
    """Kept axes outside, one pass after another over the row inside."""
    plan = cuts.plan
    row = hint(body, unwrap(product(a.size for a in plan.reduced_axes)))
    heavy = weight(body) * max(1, len(plan.reductions))
    kept = open_outer(values.writer, body, plan.kept_axes, row, heavy)
    _all_passes(body, cuts, values, kept)
    while len(values.writer.scopes) > 1:
        values.writer.close()


def _rows_and_columns(body: Body, plan: ReductionPlan) -> Kernel:
    """Rows one after another in each iteration, which adds up columns beside them."""
    cuts, values = uncut(body, plan), Values(body, Writer(body.machine.hoists))
    columns = ColumnSums(body, cuts)
    kept = columns.open_rows(values)
    _all_passes(body, cuts, values, kept)
    stages = [columns.close_rows(values), columns.combine()]
    return make_kernel(body, stages, dims_of(body), columns.scratch)


def _columns(body: Body, cuts: Cuts, values: Values) -> None:
    """Blocks of the contiguous kept axis outside; each lane goes over its own column."""
    plan = cuts.plan
    inner = plan.axes[plan.vector]
    outer = [a for i, a in enumerate(plan.axes) if not a.reduced and i != plan.vector]
    column = hint(body, unwrap(product(a.size for a in plan.reduced_axes)))
    heavy = weight(body) * max(1, len(plan.reductions))
    roots, v = open_blocks(values.writer, body, outer, inner, body.machine.columns, column, heavy)
    before = sum(not a.reduced for a in plan.axes[: plan.vector])
    roots.insert(before, v)
    _all_passes(body, cuts, values, roots)
    while len(values.writer.scopes) > 1:
        values.writer.close()


def _all_passes(body: Body, cuts: Cuts, values: Values, kept: list[Size]) -> None:
    """Every pass, then the outputs that have one element per kept place."""
    plan, moments = cuts.plan, find_moments(body, cuts.plan)
    numbers = list(range(len(plan.reductions)))
    if moments is not None and fits_one_walk(plan, moments):
        _one_pass(body, cuts, values, kept, 0, NearMoments(body, cuts, moments))
        numbers = numbers[2:]
    for number in numbers:
        if plan.reductions[number] or plan.full[number] or plan.columns[number]:
            _one_pass(body, cuts, values, kept, number)
    store_kept(body, plan, values, digits(plan.kept_axes, kept))


def _one_pass(
    body: Body, cuts: Cuts, values: Values, kept: list[Size], number: int,
    moments: NearMoments | None = None,
) -> None:
    """One walk over the reduced axes: stores, tiles, and the reductions of this pass; of the next
    one, too, for `moments`."""
    plan = cuts.plan
    near = None if moments is None else moments.near(values, kept)
    loops = open_reduced(body, cuts, values.writer, number=number)
    place = full_place(plan, kept, loops.roots)
    _use_tiles(body, plan, values, (place, loops.inside), number)
    store_full(body, plan, values, place, number)
    add_columns(values, plan, place, loops.inside, number)
    if moments is None or near is None:
        found = [reduce(body, plan, values, place, number, loops)]
    else:
        found = [*moments.results(values, place, loops, near)]
    for nodes, results in zip(plan.reductions[number:], found, strict=False):
        position = 0
        for node in nodes:
            width = len(partial_names(node))
            result = final_value(values, node, results[position : position + width])
            bind_result(values, node, result, digits(plan.kept_axes, kept))
            position += width


def _use_tiles(
    body: Body, plan: ReductionPlan, values: Values,
    places: tuple[tuple[Digit, ...], Size], number: int,
) -> None:
    """Keep this pass's costly values in their tiles; read those of earlier passes."""
    row = unwrap(product(a.size for a in plan.reduced_axes))
    place, index = places  # in the whole space, in the row
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
