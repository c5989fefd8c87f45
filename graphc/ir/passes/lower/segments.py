"""Writes at data-dependent positions, side by side: the positions are sorted, and the updates of
each place, a run of neighbours then, are combined in their order. A run that is longer than a piece
is cut, counted from its own start; partial results of pieces are combined in order. So what a place
gets depends on its own updates and on sizes, and a run of up to a piece has the bits of a serial
walk.

    stages     the positions sorted (radix.py)
    runs       where each run begins and ends, known to each of its updates
    pieces     one result for each piece: in its place if it is the run's only one
    combine    those of cut runs
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from ... import dtypes
from ...dim import Size, ceil_div, floordiv, minimum, mod, unwrap
from ...dtypes import DType
from ...kernel import Carry, Literal, Stmt, Var
from ...kernel import combine as combining
from .body import Body, carrier, zero
from .moves import Condition
from .nest import Axis, hint, unravelled
from .radix import Keys, Sorted, radix_stages
from .scan import Scratch, carried, close_all, how
from .scope import Value, Writer, as_size
from .values import Values

LONGEST = 40  # bits of a length that no array has


class Updates(NamedTuple):
    """`length` updates for each of `rows`: `key(values, row, i)` is the place in the row, below
    `places`, or `places` for an update that is left out. Each writes `columns` neighbours.
    Of several `batches` all have the positions of the one row; else there is one for each row.

    `value(values, batch, i, column, mask)` is what is combined, i a name and `mask` where it is in
    its row; `offset(batch, place, column)` is where in the result.
    """

    rows: Size
    batches: Size
    length: Size
    places: Size
    columns: Size
    combine: str
    dtype: DType  # of the result
    key: Callable[[Values, Size, Size], Value]
    value: Callable[[Values, Size, Size, Size, tuple[Condition, ...]], Value]
    offset: Callable[[Size, Size, Size], Size]

    def row(self, batch: Size) -> Size:
        return 0 if self.rows == 1 else batch


class _Runs(NamedTuple):
    """Scratch of i64[rows, length], of each update in order."""

    order: Sorted
    start: str
    stop: str


def segment_stages(body: Body, updates: Updates, scratch: Scratch) -> list[tuple[Stmt, ...]]:
    """The stages that update the result "o0", which is filled."""
    # keys go up to `places` itself
    bits = updates.places.bit_length() if isinstance(updates.places, int) else LONGEST
    keys = Keys(updates.rows, updates.length, bits, updates.key)
    stages, order = radix_stages(body, keys, scratch)
    total = unwrap(updates.rows * updates.length)
    runs = _Runs(order, scratch.new(dtypes.i64, total), scratch.new(dtypes.i64, total))
    stages.append(_find_runs(body, updates, runs))
    if not updates.combine:
        return [*stages, _last(body, updates, runs)]
    # a piece as long as a run of all updates has pieces, about
    piece = max(how(body).in_turn, 1 << (hint(body, updates.length).bit_length() + 1) // 2)
    slots = 2 * ceil_div(updates.length, piece)
    wide = carrier(updates.dtype)
    partials = scratch.new(wide, unwrap(updates.batches * slots * updates.columns))
    cut = _Cut(piece, slots, partials)
    return [*stages, _pieces(body, updates, runs, cut), _combine(body, updates, runs, cut)]


class _Cut(NamedTuple):
    """Runs longer than `piece` are cut. Of each `piece` updates in order, at most one begins a
    piece of a cut run that is not its first, and one that is: these are the two slots."""

    piece: int
    slots: Size
    partials: str  # [batches, slots, columns]


def _find_runs(body: Body, updates: Updates, runs: _Runs) -> tuple[Stmt, ...]:
    """Each update's run: how many keys are below its own, and how many not above it."""
    writer = Writer()
    values = Values(body, writer)
    row, k = open_updates(body, writer, updates.rows, updates.length)
    base = unwrap(row * updates.length)
    own = writer.load(runs.order.keys, unwrap(base + k), dtypes.i64)
    for buffer, comparison in ((runs.start, "lt"), (runs.stop, "le")):
        def holds(there: Value, comparison: str = comparison) -> Value:
            return writer.apply(comparison, dtypes.bool_, there, own)

        steps = updates.length.bit_length() if isinstance(updates.length, int) else LONGEST
        found = bisect(
            values, (runs.order.keys, dtypes.i64), base, updates.length, steps, holds
        )
        writer.store(buffer, unwrap(base + k), found)
    return close_all(writer)


def bisect(
    values: Values, source: tuple[str, DType], base: Size, length: Size, steps: int,
    holds: Callable[[Value], Value],
) -> Var:
    """Of how many of the `length` elements from `base` on something holds, which then does of all
    in front of them, too; `length` has `steps` bits at most."""
    writer = values.writer
    buffer, dtype = source
    writer.open("serial", "h", steps)
    low, high = (carried(writer, dtypes.i64) for _ in range(2))
    half = writer.apply(
        "shift_right", dtypes.i64, writer.apply("add", dtypes.i64, low, high),
        Literal(1, dtypes.i64),
    )
    searching = writer.apply("lt", dtypes.bool_, low, high)
    at = unwrap(base + as_size(half))
    there = writer.load(buffer, at, dtype, searching, zero(dtype))
    right = values.both(searching, holds(there))
    left = values.both(searching, writer.apply("logical_not", dtypes.bool_, right))
    after = writer.apply("add", dtypes.i64, half, Literal(1, dtypes.i64))
    writer.close([
        Carry(low.name, dtypes.i64, Literal(0, dtypes.i64), "set",
              writer.apply("where", dtypes.i64, right, after, low)),
        Carry(high.name, dtypes.i64, writer.index_value(length), "set",
              writer.apply("where", dtypes.i64, left, half, high)),
    ])
    return low


def open_updates(body: Body, writer: Writer, rows: Size, length: Size) -> tuple[Size, Size]:
    """Lanes over so many steps of all rows: the row, and the step."""
    block = body.machine.columns
    total = unwrap(rows * length)
    first = unwrap(writer.open("parallel", "p", ceil_div(total, block)) * block)
    flat = unwrap(first + writer.open("vector", "v", minimum(block, unwrap(total - first))))
    row, k = unravelled(writer, flat, [Axis(rows), Axis(length)])
    return row, k


def _open_steps(
    body: Body, writer: Writer, updates: Updates, steps: Size
) -> tuple[Size, Size, Size]:
    """Loops over (batch, step, block of columns); a single column has lanes over steps instead.
    The block's first column is the last of the three."""
    if updates.columns == 1:
        return (*open_updates(body, writer, updates.batches, steps), 0)
    most = body.machine.columns
    axes = [Axis(updates.batches), Axis(steps), Axis(ceil_div(updates.columns, most))]
    root = writer.open("parallel", "p", unwrap(axes[0].size * axes[1].size * axes[2].size))
    batch, k, block = unravelled(writer, root, axes)
    return batch, k, unwrap(block * most)


def _open_columns(body: Body, writer: Writer, updates: Updates, first: Size) -> Size:
    """The lanes of a block of columns; the column."""
    if updates.columns == 1:
        return 0
    extent = minimum(body.machine.columns, unwrap(updates.columns - first))
    return unwrap(first + writer.open("vector", "v", extent))


def _target(
    values: Values, updates: Updates, runs: _Runs, batch: Size, at: Size
) -> tuple[Size, Value]:
    """The place of an update in order, and whether it is one."""
    base = updates.row(batch) * updates.length
    key = values.writer.load(runs.order.keys, unwrap(base + at), dtypes.i64)
    limit = values.writer.index_value(updates.places)
    return as_size(key), values.in_range(key, Literal(0, dtypes.i64), limit)


def _update(
    values: Values, updates: Updates, runs: _Runs, batch: Size, at: Size, column: Size
) -> Value:
    """What the update in order is."""
    base = updates.row(batch) * updates.length
    i = as_size(values.writer.load(runs.order.places, unwrap(base + at), dtypes.i64))
    mask = (Condition(i, 0, updates.length),)  # always so, unless a Check failed
    return updates.value(values, batch, i, column, mask)


def _run(
    values: Values, updates: Updates, runs: _Runs, batch: Size, at: Size
) -> tuple[Size, Size]:
    """Where the run of an update begins and ends."""
    place = unwrap(updates.row(batch) * updates.length + at)
    start = values.writer.load(runs.start, place, dtypes.i64)
    return as_size(start), as_size(values.writer.load(runs.stop, place, dtypes.i64))


def _last(body: Body, updates: Updates, runs: _Runs) -> tuple[Stmt, ...]:
    """The last update of each run."""
    writer = Writer()
    values = Values(body, writer)
    batch, k, first = _open_steps(body, writer, updates, updates.length)
    _, stop = _run(values, updates, runs, batch, k)
    place, inside = _target(values, updates, runs, batch, k)
    last = _compared(values, "eq", unwrap(k + 1), stop)
    column = _open_columns(body, writer, updates, first)
    value = values.stored(_update(values, updates, runs, batch, k, column), updates.dtype)
    offset = updates.offset(batch, place, column)
    writer.store("o0", offset, value, values.both(inside, last))
    return close_all(writer)


def _compared(values: Values, op: str, a: Size, b: Size) -> Value:
    writer = values.writer
    return writer.apply(op, dtypes.bool_, writer.index_value(a), writer.index_value(b))


def _identity(combine: str, dtype: DType) -> Literal:
    """What leaves every number as it is: -0.0 where 0.0 would not."""
    number = combining.identity(combine, dtype)
    return Literal(-0.0 if combine == "add" and dtype.is_float else number, dtype)


def _pieces(body: Body, updates: Updates, runs: _Runs, cut: _Cut) -> tuple[Stmt, ...]:
    """The updates of each piece, in order; a run's first piece begins with what is there."""
    writer = Writer()
    values = Values(body, writer)
    batch, k, first_column = _open_steps(body, writer, updates, updates.length)
    start, stop = _run(values, updates, runs, batch, k)
    place, inside = _target(values, updates, runs, batch, k)
    first = _compared(values, "eq", k, start)
    begins = _compared(values, "eq", unwrap(mod(k - start, cut.piece)), 0)
    whole = _compared(values, "le", unwrap(stop - start), cut.piece)
    most = minimum(cut.piece, unwrap(updates.length - k))
    count = writer.apply(
        "where", dtypes.i64, begins, writer.index_value(minimum(most, unwrap(stop - k))),
        Literal(0, dtypes.i64),
    )
    column = _open_columns(body, writer, updates, first_column)
    offset = updates.offset(batch, place, column)
    wide = carrier(updates.dtype)
    other = _identity(updates.combine, updates.dtype)
    old = values.widened(
        writer.load("o0", offset, updates.dtype, values.both(inside, first), other)
    )
    # the bound again: nothing else is known of what was counted
    t = writer.open("serial", "t", minimum(as_size(count), most))
    total = carried(writer, wide)
    value = _update(values, updates, runs, batch, unwrap(k + t), column)
    writer.close([Carry(total.name, wide, old, updates.combine, value)])
    stored = values.stored(total, updates.dtype)
    writer.store("o0", offset, stored, values.both(values.both(inside, begins), whole))
    slot = unwrap(2 * floordiv(k, cut.piece) + as_size(writer.apply("cast", dtypes.i64, first)))
    partial = writer.apply("logical_not", dtypes.bool_, whole)
    writer.store(
        cut.partials, _partial(updates, cut, batch, slot, column), total,
        values.both(begins, partial),
    )
    return close_all(writer)


def _partial(updates: Updates, cut: _Cut, batch: Size, slot: Size, column: Size) -> Size:
    return unwrap((batch * cut.slots + slot) * updates.columns + column)


def _combine(body: Body, updates: Updates, runs: _Runs, cut: _Cut) -> tuple[Stmt, ...]:
    """The pieces of each cut run, in order, by where among the windows of a piece it begins: it is
    the run of the window's last update."""
    writer = Writer()
    values = Values(body, writer)
    windows = ceil_div(updates.length, cut.piece)
    batch, w, first_column = _open_steps(body, writer, updates, windows)
    last = minimum(unwrap(w * cut.piece + (cut.piece - 1)), unwrap(updates.length - 1))
    start, stop = _run(values, updates, runs, batch, last)
    place, inside = _target(values, updates, runs, batch, last)
    here = values.both(
        _compared(values, "ge", start, unwrap(w * cut.piece)),
        _compared(values, "gt", unwrap(stop - start), cut.piece),
    )
    more = writer.apply(
        "where", dtypes.i64, here,
        writer.index_value(unwrap(ceil_div(unwrap(stop - start), cut.piece) - 1)),
        Literal(0, dtypes.i64),
    )
    column = _open_columns(body, writer, updates, first_column)
    wide = carrier(updates.dtype)
    head = writer.load(
        cut.partials, _partial(updates, cut, batch, unwrap(2 * w + 1), column), wide, here,
        _identity(updates.combine, wide),
    )
    j = writer.open("serial", "j", minimum(as_size(more), unwrap(windows - 1 - w)))
    total = carried(writer, wide)
    slot = unwrap(2 * (w + 1 + j))
    value = writer.load(cut.partials, _partial(updates, cut, batch, slot, column), wide)
    writer.close([Carry(total.name, wide, head, updates.combine, value)])
    offset = updates.offset(batch, place, column)
    stored = values.stored(total, updates.dtype)
    writer.store("o0", offset, stored, values.both(inside, here))
    return close_all(writer)
