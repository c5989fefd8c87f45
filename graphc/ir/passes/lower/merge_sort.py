"""sort and topk: tiles are ranked by comparing every pair, then neighbouring runs are merged. Side
by side, each element finds by bisection how many of the other run come before it; one after
another, the two runs are walked along. Stable, for every dtype; NaN counts as the largest.
"""

from __future__ import annotations

from typing import NamedTuple

from ... import dtypes
from ...dim import Dim, Size, ceil_div, floordiv, maximum, minimum, mod, product, unwrap
from ...graph import Node
from ...kernel import Carry, Kernel, Literal, Stmt
from . import index_maps
from .body import Body, zero
from .index_maps import Coordinates, exact
from .loops import dims_of
from .nest import Axis, make_kernel, unravelled
from .scan import Scratch, carried, close_all
from .scope import Value, Writer, as_size
from .segments import LONGEST, bisect, open_updates
from .values import Values

_IN_TURN = 8  # a tile that is ranked where the rest is merged one after another


class Rows(NamedTuple):
    """What is sorted: `length` elements of each row along `dim`; `most` of them are wanted."""

    node: Node
    shape: tuple[Size, ...]
    dim: int
    most: Size
    descending: bool

    @property
    def length(self) -> Size:
        return self.shape[self.dim]

    @property
    def rows(self) -> Size:
        return unwrap(product(self.around))

    @property
    def around(self) -> tuple[Size, ...]:
        return (*self.shape[: self.dim], *self.shape[self.dim + 1 :])

    def place(self, row: Size, i: Size, size: Size) -> Coordinates:
        """An element in a tensor that is so long along the dim."""
        at = index_maps.unravel(row, self.around)
        return (*at[: self.dim], exact(i, size), *at[self.dim :])

    def read(self, values: Values, row: Size, i: Size) -> Value:
        """An element of what is sorted."""
        return values.value(self.node.inputs[0], values.at(self.place(row, i, self.length)))


class _Run(NamedTuple):
    """Values and the places they came from, [rows, length]."""

    values: str
    places: str


def rows_of(body: Body, node: Node) -> Rows:
    """What a sort or topk goes along."""
    shape, dim = body.shape(node.inputs[0]), node.attrs["dim"]
    top = node.op.name == "topk"
    return Rows(
        node, shape, dim, body.size(node.attrs["k"]) if top else shape[dim],
        node.attrs["largest" if top else "descending"],
    )


def lower_merges(body: Body, rows: Rows) -> Kernel:
    """The kernel of sort or topk, by merges."""
    x = rows.node.inputs[0]
    scratch = Scratch()
    numbers = body.machine.sorting
    width = _IN_TURN if numbers is None else numbers.ranked
    # of a symbolic length, as many as any array has
    steps = LONGEST - width.bit_length()
    known = isinstance(rows.length, int)
    if isinstance(rows.length, int):
        steps = (-(-rows.length // width) - 1).bit_length()
    total = unwrap(rows.rows * rows.length)
    pair = [
        _Run(scratch.new(x.dtype, total), scratch.new(dtypes.i64, total))
        for _ in range(min(steps, 2))
    ]
    stages = [_ranked(body, rows, width, pair[0] if steps else None)]
    if numbers is None and not known:
        stages += _walked_pairs(body, rows, width, steps, pair)
        return make_kernel(body, stages, dims_of(body), scratch.params)
    merged = _walked if numbers is None else _merged
    for step in range(steps):
        target = None if step == steps - 1 else pair[(step + 1) % 2]
        stages.append(merged(body, rows, width << step, pair[step % 2], target))
    return make_kernel(body, stages, dims_of(body), scratch.params)


def before(values: Values, rows: Rows, a: Value, b: Value) -> Value:
    """Whether `a` comes before `b` and is not equal to it."""
    writer = values.writer
    less = writer.apply("gt" if rows.descending else "lt", dtypes.bool_, a, b)
    if not a.dtype.is_float:
        return less
    number, nan = (a, b) if not rows.descending else (b, a)
    is_number = writer.apply("eq", dtypes.bool_, number, number)
    is_nan = writer.apply("isnan", dtypes.bool_, nan)
    return writer.apply("logical_or", dtypes.bool_, less, values.both(is_number, is_nan))


def comparable(values: Values, value: Value) -> Value:
    """A value in a dtype that is ordered."""
    if value.dtype is dtypes.bool_:
        return values.writer.apply("cast", dtypes.i32, value)
    return value


def put(
    values: Values, rows: Rows, target: _Run | None, row: Size, at: Value,
    found: tuple[Value, ...],
) -> None:
    """An element, with the place that it came from, at its place: in a run, or in the results."""
    writer, body = values.writer, values.body
    limit = rows.length if target is not None else rows.most
    inside = values.in_range(at, Literal(0, dtypes.i64), writer.index_value(limit))
    assert not isinstance(at, Literal)
    there = Dim.var(at.name)
    if target is not None:
        for buffer, value in zip(target, found, strict=True):
            writer.store(buffer, unwrap(row * rows.length + there), value, inside)
        return
    for number, output in enumerate(body.graph.outputs):
        value = found[output.attrs["index"]]
        flat = index_maps.linear_index(rows.place(row, there, rows.most), body.shape(output))
        writer.store(f"o{number}", flat, value, inside)


def _ranked(body: Body, rows: Rows, width: int, target: _Run | None) -> tuple[Stmt, ...]:
    """Each tile of `width` in order."""
    writer = Writer()
    values = Values(body, writer)
    dtype = rows.node.inputs[0].dtype
    row, i = open_updates(body, writer, rows.rows, rows.length)
    first = unwrap(floordiv(i, width) * width)
    value = rows.read(values, row, i)
    own = comparable(values, value)
    j = writer.open("serial", "j", minimum(width, unwrap(rows.length - first)))
    rank = carried(writer, dtypes.i64)
    index = unwrap(first + j)
    other = comparable(values, rows.read(values, row, index))
    earlier = writer.apply(
        "lt", dtypes.bool_, writer.index_value(index), writer.index_value(i)
    )
    after = writer.apply("logical_not", dtypes.bool_, before(values, rows, own, other))
    counts = writer.apply(
        "logical_or", dtypes.bool_, before(values, rows, other, own), values.both(earlier, after)
    )
    one = writer.apply("cast", dtypes.i64, counts)
    writer.close([Carry(rank.name, dtypes.i64, writer.index_value(first), "add", one)])
    found = values.stored(value, dtype), writer.index_value(i)
    put(values, rows, target, row, rank, found)
    return close_all(writer)


def _merged(
    body: Body, rows: Rows, width: int, source: _Run, target: _Run | None
) -> tuple[Stmt, ...]:
    """Neighbouring runs of `width` as one; the last may be shorter, or have no neighbour."""
    writer = Writer()
    values = Values(body, writer)
    dtype = rows.node.inputs[0].dtype
    row, i = open_updates(body, writer, rows.rows, rows.length)
    base = unwrap(row * rows.length)
    stored = writer.load(source.values, unwrap(base + i), dtype)
    place = writer.load(source.places, unwrap(base + i), dtypes.i64)
    own = comparable(values, values.widened(stored))
    run = floordiv(i, width)
    right = mod(run, 2)  # 1: the other run is in front of this one, and its equals come first
    is_right = writer.apply(
        "eq", dtypes.bool_, writer.index_value(right), Literal(1, dtypes.i64)
    )
    start = unwrap((run + 1 - 2 * right) * width)
    length = maximum(0, minimum(width, unwrap(rows.length - start)))

    def holds(there: Value) -> Value:
        other = comparable(values, values.widened(there))
        not_after = writer.apply("logical_not", dtypes.bool_, before(values, rows, own, other))
        return writer.apply(
            "where", dtypes.bool_, is_right, not_after, before(values, rows, other, own)
        )

    found = bisect(
        values, (source.values, dtype), unwrap(base + start), length, width.bit_length(), holds
    )
    begin = unwrap((run - right) * width + mod(i, width))
    at = writer.apply("add", dtypes.i64, found, writer.index_value(begin))
    put(values, rows, target, row, at, (stored, place))
    return close_all(writer)



def _walked(
    body: Body, rows: Rows, width: int, source: _Run, target: _Run | None, times: Size = 1
) -> tuple[Stmt, ...]:
    """What _merged does, one element of two runs after another, as far as any is wanted; `times`: 0
    where nothing is to be done."""
    writer = Writer()
    values = Values(body, writer)
    dtype = rows.node.inputs[0].dtype
    pairs = ceil_div(rows.length, 2 * width)
    root = writer.open("parallel", "p", unwrap(rows.rows * pairs * times))
    row, pair = unravelled(writer, root, [Axis(rows.rows), Axis(pairs)])
    begin = unwrap(pair * (2 * width))
    base = unwrap(row * rows.length + begin)
    most = unwrap(rows.length - begin)
    lengths = minimum(width, most), maximum(0, unwrap(minimum(2 * width, most) - width))
    steps = minimum(2 * width, most)
    if rows.node.op.name == "topk":  # what is behind was not written
        lengths = minimum(lengths[0], rows.most), minimum(lengths[1], rows.most)
        steps = minimum(steps, rows.most)
    j = writer.open("serial", "j", steps)
    left = carried(writer, dtypes.i64)
    right = writer.apply("sub", dtypes.i64, writer.index_value(j), left)

    def taken(of: Value, length: Size, start: Size) -> tuple[Value, Value]:
        """Whether there is one more of a run, and it."""
        there = writer.apply("lt", dtypes.bool_, of, writer.index_value(length))
        place = unwrap(start + as_size(of))
        stored = writer.load(source.values, place, dtype, there, zero(dtype))
        return there, comparable(values, values.widened(stored))

    is_left, one = taken(left, lengths[0], base)
    is_right, other = taken(right, lengths[1], unwrap(base + width))
    first = values.both(is_right, before(values, rows, other, one))
    is_one = values.both(is_left, writer.apply("logical_not", dtypes.bool_, first))
    there = writer.apply(
        "where", dtypes.i64, is_one, left,
        writer.apply("add", dtypes.i64, right, Literal(width, dtypes.i64)),
    )
    at = unwrap(base + as_size(there))
    inside = values.in_range(there, Literal(0, dtypes.i64), writer.index_value(most))
    found = tuple(
        writer.load(buffer, at, kind, inside, zero(kind))
        for buffer, kind in zip(source, (dtype, dtypes.i64), strict=True)
    )
    put(values, rows, target, row, writer.index_value(unwrap(begin + j)), found)
    more = writer.apply("cast", dtypes.i64, is_one)
    after = writer.apply("add", dtypes.i64, left, more)
    writer.close([Carry(left.name, dtypes.i64, Literal(0, dtypes.i64), "set", after)])
    return close_all(writer)


def _walked_pairs(
    body: Body, rows: Rows, width: int, steps: int, pair: list[_Run]
) -> list[tuple[Stmt, ...]]:
    """The merges of a length that is not known: there and back, and none where one run is all."""
    stages = []
    for step in range(0, steps, 2):
        times = minimum(1, floordiv(unwrap(rows.length - 1), width << step))
        for at, other in ((0, 1), (1, 0)):
            stages.append(
                _walked(body, rows, width << (step + at), pair[at], pair[other], times)
            )
    return [*stages, _given(body, rows, pair[0])]


def _given(body: Body, rows: Rows, source: _Run) -> tuple[Stmt, ...]:
    """The results, of what is in order."""
    writer = Writer()
    values = Values(body, writer)
    row, i = open_updates(body, writer, rows.rows, rows.most)
    at = unwrap(row * rows.length + i)
    dtype = rows.node.inputs[0].dtype
    found = writer.load(source.values, at, dtype), writer.load(source.places, at, dtypes.i64)
    put(values, rows, None, row, writer.index_value(i), found)
    return close_all(writer)
