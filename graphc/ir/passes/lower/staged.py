"""Long reductions in stages: for each pass the partial results of pieces, then these combined, and
at the end what is computed from the results over the whole space.

A stage reads what those before it found, one value for each kept place, from scratch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ... import dtypes
from ...dim import Size, product, unwrap
from ...dtypes import DType
from ...graph import Node
from ...kernel import Carry, Kernel, Literal, Param, Stmt
from .body import Body, carrier
from .cuts import Cuts
from .index_maps import Digit
from .loops import dims_of, walk, weight
from .moments import Moments
from .nest import Axis, coordinates, digits, hint, make_kernel, open_blocks, open_outer, unravelled
from .reduction import bind_result, close_with_carries, combined, final_value, partial_names
from .rows_plan import ReductionPlan
from .scope import Value, Writer
from .values import At, Values
from .walks import (
    Walk,
    carries_of_pass,
    first_extents,
    flat_position,
    full_place,
    open_reduced,
    reduce,
    store_full,
    store_kept,
)

_SIDE_BY_SIDE = 64  # from so many pieces on, the lanes of a block combine those of one place


_FIRST = 8  # elements whose mean stands for a piece's, which is hundreds long


def lower_staged(body: Body, cuts: Cuts, moments: Moments | None) -> Kernel:
    """The kernel of a group whose reductions are done in pieces."""
    plan, staged = cuts.plan, _Staged(body, cuts)
    numbers = list(range(len(plan.reductions)))
    if moments is not None:
        staged.moments(moments)
        numbers = numbers[2:] if not plan.full[1] else numbers[1:]
    for number in numbers:
        if plan.reductions[number] and number not in staged.done:
            staged.combine(number, staged.partials(number))
        else:
            staged.apply(number)
    return make_kernel(body, staged.stages, dims_of(body), staged.scratch)


class _Staged:
    """The stages so far, their scratch, and where finished reductions lie."""

    def __init__(self, body: Body, cuts: Cuts) -> None:
        self.body, self.plan, self.cuts = body, cuts.plan, cuts
        self.kept = unwrap(product(a.size for a in self.plan.kept_axes))
        self.stages: list[tuple[Stmt, ...]] = []
        self.scratch: list[Param] = []
        self.finished: dict[Node, str] = {}
        self.done: set[int] = set()  # passes whose reductions are finished

    def values(self) -> Values:
        """Of a new stage, which reads finished reductions."""
        values = Values(self.body, Writer(self.body.machine.hoists))
        for node, buffer in self.finished.items():
            values.bound[node] = _reader(values, node, buffer)
        return values

    def close(self, values: Values) -> None:
        """The stage is written."""
        while len(values.writer.scopes) > 1:
            values.writer.close()
        self.stages.append(values.writer.finish())

    def reserve(self, dtype: DType, size: Size) -> str:
        """Scratch of its own."""
        name = f"s{len(self.scratch)}"
        self.scratch.append(Param(name, dtype, size, "scratch"))
        return name

    # --- pieces -----------------------------------------------------------------------------------

    def partials(self, number: int) -> list[str]:
        """A stage in which every piece of every kept place is reduced, and what has all elements
        is stored on the way: the buffers of the results, by piece and place."""
        values = self.values()
        pieces, kept = self._open_places(values)
        results, _ = self._walk(values, pieces, kept, number)
        names = self._store_partials(values, pieces, kept, results)
        self.close(values)
        return names

    def _walk(
        self, values: Values, pieces: list[Size], kept: list[Size], number: int,
        keep: Callable[[Values, Walk, At], None] | None = None, x: Node | None = None,
    ) -> tuple[list[Value], Walk]:
        body, plan = self.body, self.plan
        loops = open_reduced(body, self.cuts, values.writer, pieces)
        place = full_place(plan, kept, loops.roots)
        if keep is not None and x is not None:
            keep(values, loops, values.at(coordinates(place, body.shape(x))))
        store_full(body, plan, values, place, number)
        return reduce(body, plan, values, place, number, loops), loops

    def _open_places(self, values: Values) -> tuple[list[Size], list[Size]]:
        """Open the loops over pieces and kept places: which piece of each reduced axis, where
        along each kept one."""
        body, plan = self.body, self.plan
        vector = plan.axes[plan.vector]
        pieces = self.cuts.pieces()
        work = hint(body, self.cuts.elements())
        if vector.reduced:
            roots = open_outer(
                values.writer, body, [*pieces, *plan.kept_axes], work, weight(body)
            )
        else:
            outer = [a for a in plan.kept_axes if a is not vector]
            roots, v = open_blocks(
                values.writer, body, [*pieces, *outer], vector, body.machine.columns, work,
                weight(body),
            )
            roots.insert(len(pieces) + plan.kept_axes.index(vector), v)
        return roots[: len(pieces)], roots[len(pieces) :]

    def _store_partials(
        self, values: Values, pieces: list[Size], kept: list[Size], results: list[Value]
    ) -> list[str]:
        total = unwrap(self.cuts.count() * self.kept)
        index = unwrap(
            flat_position(self.cuts.pieces(), pieces) * self.kept
            + flat_position(self.plan.kept_axes, kept)
        )
        names = [self.reserve(value.dtype, total) for value in results]
        for name, value in zip(names, results, strict=True):
            values.writer.store(name, index, value)
        return names

    # --- all pieces -------------------------------------------------------------------------------

    def combine(self, number: int, parts: list[str]) -> None:
        """A stage in which the pieces' results become one for each kept place, and where there
        is no more to reduce, what has one element for each is stored."""
        values = self.values()
        flat, lanes = open_places(values, self.kept, self.cuts.count())
        self._bind(values, number, self._combined(values, number, parts, flat, lanes), flat)
        self._finish(values, number, flat)

    def _combined(
        self, values: Values, number: int, parts: list[str], flat: Size, lanes: bool
    ) -> list[Value]:
        kinds = _partial_dtypes(self.plan, number)

        def carries(piece: Size) -> list[Carry]:
            found, position = [], 0
            index = unwrap(piece * self.kept + flat)
            for node in self.plan.reductions[number]:
                width = len(partial_names(node))
                loaded = [
                    values.writer.load(parts[i], index, kinds[i])
                    for i in range(position, position + width)
                ]
                found += combined(values, node, loaded)
                position += width
            return found

        return over_pieces(values, self.cuts.count(), lanes, carries)

    def _bind(self, values: Values, number: int, results: list[Value], flat: Size) -> None:
        """Finished reductions: for the rest of this stage, and in scratch for those after it."""
        position = 0
        self.done.add(number)
        plan = self.plan
        later = any(plan.full[min(number + 1, 1) :]) or any(
            nodes for i, nodes in enumerate(plan.reductions) if i not in self.done
        )
        for node in self.plan.reductions[number]:
            width = len(partial_names(node))
            value = final_value(values, node, results[position : position + width])
            bind_result(values, node, value, digits([Axis(self.kept)], [flat]))
            if later:
                self.finished[node] = self.reserve(value.dtype, self.kept)
                values.writer.store(self.finished[node], flat, value)
            position += width

    def _finish(self, values: Values, number: int, flat: Size) -> None:
        if not any(self.plan.reductions[number + 1 :]):
            place = digits([Axis(self.kept)], [flat])
            store_kept(self.body, self.plan, values, place)
        self.close(values)

    def apply(self, number: int) -> None:
        """A stage over the whole space, where there is nothing more to reduce."""
        values = self.values()

        def store(places: Sequence[tuple[Digit, ...]]) -> None:
            for place in places:
                store_full(self.body, self.plan, values, place, number)

        walk(values, self.plan.axes, self.plan.vector, store)
        self.close(values)

    # --- moments ----------------------------------------------------------------------------------

    def moments(self, found: Moments) -> None:
        """Two passes in two stages: every piece is read once, for its sum and for the squares
        around a number near its mean."""
        values = self.values()
        pieces, kept = self._open_places(values)
        size = self.cuts.elements()
        along = self.plan.axes[self.plan.vector].reduced
        if along and isinstance(size, int) and size <= self.body.machine.tile:
            results = self._around_mean(values, found, pieces, kept, size)
        else:
            results = self._around_first(values, found, pieces, kept, 0 if along else _FIRST)
        parts = self._store_partials(values, pieces, kept, results)
        self.close(values)
        self._combine_moments(found, parts)

    def _around_mean(
        self, values: Values, found: Moments, pieces: list[Size], kept: list[Size], size: int
    ) -> list[Value]:
        """A piece that is kept: its sums, its mean, squares and rest around that."""
        writer, dtype = values.writer, found.total.dtype

        def keep(values: Values, loops: Walk, at: At) -> None:
            writer.local("tile", dtype, size)
            writer.store("tile", loops.inside, values.value(found.x, at))

        results, _ = self._walk(values, pieces, kept, 0, keep, found.x)
        number = self.plan.reductions[0].index(found.total)
        total = results[position_of(self.plan, number)]
        mean = writer.apply("div", dtype, total, self._elements(values, pieces, dtype))
        loops = open_reduced(self.body, self.cuts, writer, pieces)
        around = around_mean(writer, writer.load("tile", loops.inside, dtype), mean)
        return [*results, mean, *close_with_carries(writer, loops.loops, around)]

    def _around_first(
        self, values: Values, found: Moments, pieces: list[Size], kept: list[Size], first: int
    ) -> list[Value]:
        """A piece that is not kept: the same around the mean of its first elements. With n of m
        elements, rounding counts m / n times as much at worst."""
        body, plan, writer, dtype = self.body, self.plan, values.writer, found.total.dtype

        def x(loops: Walk) -> Value:
            place = full_place(plan, kept, loops.roots)
            return values.value(found.x, values.at(coordinates(place, body.shape(found.x))))

        loops = open_reduced(body, self.cuts, writer, pieces, first)
        (total,) = close_with_carries(writer, loops.loops, [sum_of(writer, x(loops))])
        mean = writer.apply("div", dtype, total, self._elements(values, pieces, dtype, first))
        loops = open_reduced(body, self.cuts, writer, pieces)
        place = full_place(plan, kept, loops.roots)
        store_full(body, plan, values, place, 0)
        carries = carries_of_pass(body, plan, values, place, 0)
        count = len(carries)
        results = close_with_carries(
            writer, loops.loops, [*carries, *around_mean(writer, x(loops), mean)]
        )
        return [*results[:count], mean, *results[count:]]

    def _combine_moments(self, found: Moments, parts: list[str]) -> None:
        values = self.values()
        writer, dtype = values.writer, found.total.dtype
        flat, lanes = open_places(values, self.kept, self.cuts.count())
        results = self._combined(values, 0, parts[:-3], flat, lanes)
        self._bind(values, 0, results, flat)
        position = position_of(self.plan, self.plan.reductions[0].index(found.total))
        everything = self._number(values, unwrap(
            product(a.size for a in self.plan.reduced_axes)
        ), dtype)
        mean = writer.apply("div", dtype, results[position], everything)

        def carries(piece: Size) -> list[Carry]:
            # sum (x - m)^2 = sum (x - own)^2 + (2 sum (x - own) + n (own - m)) (own - m)
            index = unwrap(piece * self.kept + flat)
            n = self._elements(values, unravelled(writer, piece, self.cuts.pieces()), dtype)
            own, squares, left = (writer.load(part, index, dtype) for part in parts[-3:])
            shift = writer.apply("sub", dtype, own, mean)
            twice = writer.apply("add", dtype, left, left)
            slope = writer.apply("add", dtype, twice, writer.apply("mul", dtype, n, shift))
            moved = writer.apply("mul", dtype, slope, shift)
            around = [sum_of(writer, writer.apply("add", dtype, squares, moved))]
            if found.left is None:
                return around
            whole = writer.apply("mul", dtype, n, shift)
            rest = sum_of(writer, writer.apply("add", dtype, left, whole))
            in_order = {found.squares: around[0], found.left: rest}
            return [in_order[node] for node in self.plan.reductions[1]]

        self._bind(values, 1, over_pieces(values, self.cuts.count(), lanes, carries), flat)
        self._finish(values, 1, flat)

    def _elements(
        self, values: Values, pieces: list[Size], dtype: DType, first: int = 0
    ) -> Value:
        """How many elements a piece has, or its first ones are."""
        extents = [self.cuts.stretch(i, piece)[1] for i, piece in enumerate(pieces)]
        if first:
            extents = first_extents(extents, first)
        return self._number(values, unwrap(product(extents)), dtype)

    def _number(self, values: Values, size: Size, dtype: DType) -> Value:
        if isinstance(size, int):
            return Literal(float(size), dtype)
        return values.writer.apply("cast", dtype, values.writer.index_value(size))


def open_places(values: Values, kept: Size, count: Size) -> tuple[Size, bool]:
    """Open the loops over places of which each has `count` partial results: a place, and whether
    the lanes are for its partial results."""
    body, pieces = values.body, hint(values.body, count)
    steps = body.machine.lane_steps
    if steps and pieces >= min(_SIDE_BY_SIDE, steps):
        (flat,) = open_outer(values.writer, body, [Axis(kept)], pieces, 1)
        return flat, True
    _, flat = open_blocks(
        values.writer, body, [], Axis(kept), body.machine.columns, pieces, 1
    )
    return flat, False


def over_pieces(
    values: Values, count: Size, lanes: bool, carries: Callable[[Size], list[Carry]]
) -> list[Value]:
    """What is carried over the partial results of a place, in the order of their numbers."""
    loops = [Axis(2)] if count != 1 else []
    kind = "vector" if lanes else "serial"
    piece = values.writer.open(kind, "c", count) if loops else 0
    return close_with_carries(values.writer, loops, carries(piece))


def around_mean(writer: Writer, x: Value, mean: Value) -> list[Carry]:
    """The sums of (x - mean)^2 and of x - mean."""
    left = writer.apply("sub", x.dtype, x, mean)
    return [sum_of(writer, writer.apply("mul", x.dtype, left, left)), sum_of(writer, left)]


def sum_of(writer: Writer, value: Value) -> Carry:
    name = writer.fresh("c")
    writer.levels[name] = len(writer.scopes) - 1
    return Carry(name, value.dtype, Literal(0.0, value.dtype), "add", value)


def _partial_dtypes(plan: ReductionPlan, number: int) -> list[DType]:
    """Of the carries of a pass."""
    result: list[DType] = []
    for node in plan.reductions[number]:
        result.append(carrier(node.inputs[0].dtype))
        if node.op.family == "arg_reduce":
            result.append(dtypes.i64)
    return result


def position_of(plan: ReductionPlan, number: int) -> int:
    """Of a reduction's value among the carries of the first pass."""
    return sum(len(partial_names(node)) for node in plan.reductions[0][:number])


def _reader(values: Values, node: Node, buffer: str) -> Callable[[At], Value | None]:
    dtype = dtypes.i64 if node.op.family == "arg_reduce" else carrier(node.dtype)
    return lambda at: values.writer.load(buffer, values.flat(node, at), dtype)
