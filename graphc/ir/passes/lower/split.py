"""Reductions to few results over much memory, in two stages: partial results of fixed chunks,
then the partial results in index order. Chunks are cut by shape, so the bits never depend on
the number of threads."""

from __future__ import annotations

from ... import dtypes
from ...dim import Size, ceil_div, minimum, product, unwrap
from ...dtypes import DType
from ...kernel import Carry, Kernel, Param, Stmt
from .body import Body, carrier
from .index_maps import Digit
from .loops import dims_of, weight
from .nest import Axis, coordinates, digits, hint, make_kernel, open_outer
from .reduction import (
    bind_result,
    carries_of,
    close_with_carries,
    combined,
    final_value,
    partial_names,
)
from .rows_plan import ReductionPlan
from .scope import Writer
from .values import Values
from .walks import open_stretch


def needs_split(body: Body, plan: ReductionPlan) -> bool:
    """Whether a group has too few kept places for its size, and only simple results."""
    if body.machine.lane_steps or any(plan.full) or len(plan.reductions) != 1:
        return False
    kept = hint(body, unwrap(product(a.size for a in plan.kept_axes)))
    row = hint(body, unwrap(product(a.size for a in plan.reduced_axes)))
    machine = body.machine
    if kept * row < machine.split_least:
        return False
    iterations = machine.iterations(kept, not plan.axes[plan.vector].reduced)
    return iterations < machine.parallelism and row >= machine.split_row


def lower_split(body: Body, plan: ReductionPlan) -> Kernel:
    """The kernel in two stages."""
    cut = _cut_axis(plan)
    piece = _piece(body, plan, cut)
    pieces = ceil_div(cut.size, piece)
    kept = unwrap(product(a.size for a in plan.kept_axes))
    scratch = [
        Param(f"s{i}", dtype, unwrap(pieces * kept), "scratch")
        for i, dtype in enumerate(_partials(plan))
    ]
    stages = [
        _first_stage(body, plan, cut, piece, pieces, kept),
        _second_stage(body, plan, pieces, kept),
    ]
    return make_kernel(body, stages, dims_of(body), scratch)


def _partials(plan: ReductionPlan) -> list[DType]:
    result: list[DType] = []
    for node in plan.reductions[0]:
        result.append(carrier(node.inputs[0].dtype))
        if node.op.family == "arg_reduce":
            result.append(dtypes.i64)
    return result


def _cut_axis(plan: ReductionPlan) -> Axis:
    """The outermost reduced axis that is worth cutting."""
    axes = [a for a in plan.reduced_axes if a.size != 1]
    return next((a for a in axes if not isinstance(a.size, int) or a.size >= 16), axes[0])


def _piece(body: Body, plan: ReductionPlan, cut: Axis) -> int:
    """How far along the cut axis one partial result goes."""
    kept = hint(body, unwrap(product(a.size for a in plan.kept_axes)))
    rest = hint(body, unwrap(product(a.size for a in plan.reduced_axes if a is not cut)))
    vector = plan.axes[plan.vector]
    per_step = rest * (1 if vector.reduced else min(kept, body.machine.columns))
    return max(1, body.machine.split_piece // per_step)


def _first_stage(
    body: Body, plan: ReductionPlan, cut: Axis, piece: int, pieces: Size, kept: Size
) -> tuple[Stmt, ...]:
    writer = Writer()
    values = Values(body, writer)
    vector = plan.axes[plan.vector]
    outer = [a for a in plan.kept_axes if a is not vector]
    work = piece * hint(body, unwrap(product(a.size for a in plan.reduced_axes if a is not cut)))
    roots = open_outer(
        writer, body, [Axis(pieces), *outer], max(work, body.machine.chunk_least), weight(body)
    )
    number = roots.pop(0)
    start = unwrap(number * piece)
    if not vector.reduced:
        roots.insert(
            plan.kept_axes.index(vector),
            writer.open("vector", "v", vector.size) if vector.size != 1 else 0,
        )
    even = isinstance(cut.size, int) and cut.size % piece == 0
    extent = piece if even else minimum(piece, unwrap(cut.size - start))
    loops, where = _open_reduced(writer, plan, cut, start, extent)
    remaining = list(roots)
    place = digits(
        plan.axes, [where[id(a)] if a.reduced else remaining.pop(0) for a in plan.axes]
    )
    _reduce_into_scratch(values, plan, place, loops, unwrap(number * kept), roots)
    while len(writer.scopes) > 1:
        writer.close()
    return writer.finish()


def _open_reduced(
    writer: Writer, plan: ReductionPlan, cut: Axis, start: Size, extent: Size
) -> tuple[list[Axis], dict[int, Size]]:
    """Open the reduced loops, the cut axis over its piece only; the vector one innermost."""
    vector = plan.axes[plan.vector]
    order = [a for a in plan.reduced_axes if a is not vector]
    if vector.reduced:
        order.append(vector)
    where: dict[int, Size] = {}
    opened: list[Axis] = []
    for i, axis in enumerate(order):
        size = extent if axis is cut else axis.size
        root: Size = 0
        if axis.size != 1:
            root = writer.open("vector" if axis is vector else "serial", f"r{i}", size)
            opened.append(axis)
        where[id(axis)] = unwrap(start + root) if axis is cut else root
    return opened, where


def _reduce_into_scratch(
    values: Values, plan: ReductionPlan, place: tuple[Digit, ...], loops: list[Axis], base: Size,
    kept: list[Size],
) -> None:
    body = values.body
    carries = []
    for node in plan.reductions[0]:
        (source,) = node.inputs
        carries += carries_of(values, node, values.at(coordinates(place, body.shape(source))))
    results = close_with_carries(values.writer, loops, carries)
    flat = base + _kept_flat(plan, kept)
    for i, value in enumerate(results):
        values.writer.store(f"s{i}", unwrap(flat), value)


def _kept_flat(plan: ReductionPlan, roots: list[Size]) -> Size:
    flat: Size = 0
    for axis, root in zip(plan.kept_axes, roots, strict=True):
        flat = flat * axis.size + root
    return unwrap(flat)


_PIECES = 64


def _whole(size: Size) -> tuple[Size, Size]:
    return 0, size


def _second_stage(body: Body, plan: ReductionPlan, pieces: Size, kept: Size) -> tuple[Stmt, ...]:
    """Combine the partial results of each kept place in index order, and finish."""
    writer = Writer()
    values = Values(body, writer)
    axes = plan.kept_axes
    roots: list[Size] = [
        0 if a.size == 1 else writer.open("serial", f"k{i}", a.size)
        for i, a in enumerate(axes[:-1])
    ]
    if axes:
        lanes = axes[-1].size != 1
        roots.append(writer.open("vector", "v", axes[-1].size) if lanes else 0)
    flat = _kept_flat(plan, roots)
    loops, (start, extent) = 1, _whole(pieces)
    if hint(body, pieces) > 2 * _PIECES:  # so that no sum is one of very many
        loops, (start, extent) = 2, open_stretch(writer, "cs", _PIECES, 0, pieces)
    c = unwrap(start + writer.open("serial", "c", extent))
    carries = []
    position = 0
    dtypes_ = _partials(plan)
    for node in plan.reductions[0]:
        width = len(partial_names(node))
        parts = [
            writer.load(f"s{position + i}", unwrap(c * kept + flat), dtypes_[position + i])
            for i in range(width)
        ]
        carries += combined(values, node, parts)
        position += width
    _finish(body, plan, values, carries, loops, digits(axes, roots))
    while len(writer.scopes) > 1:
        writer.close()
    return writer.finish()


def _finish(
    body: Body, plan: ReductionPlan, values: Values, carries: list[Carry], loops: int,
    place: tuple[Digit, ...],
) -> None:
    results = close_with_carries(values.writer, [Axis(2)] * loops, carries)
    position = 0
    for node in plan.reductions[0]:
        width = len(partial_names(node))
        value = final_value(values, node, results[position : position + width])
        bind_result(values, node, value, place)
        position += width
    stores = []
    for i in plan.kept:
        node = body.graph.outputs[i]
        at = values.at(coordinates(place, body.shape(node)))
        stores.append((i, values.flat(node, at), values.stored(values.value(node, at), node.dtype)))
    for i, index, value in stores:
        values.writer.store(f"o{i}", index, value)
