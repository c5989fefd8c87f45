"""sort and topk side by side: tiles are ranked by comparing every pair, then neighbouring runs are
merged, each element finding by bisection how many of the other run come before it. Stable, for
every dtype; NaN counts as the largest.
"""

from __future__ import annotations

from typing import NamedTuple

from ... import dtypes
from ...dim import Dim, Size, floordiv, maximum, minimum, mod, product, unwrap
from ...graph import Node
from ...kernel import Carry, Kernel, Literal, Stmt
from . import index_maps
from .body import Body
from .index_maps import Coordinates, exact
from .loops import dims_of
from .nest import make_kernel
from .scan import Scratch, carried, close_all, how
from .scope import Value, Writer
from .segments import LONGEST, bisect, open_updates
from .values import Values


class _Rows(NamedTuple):
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


def lower_sort(body: Body, node: Node) -> Kernel:
    """The kernel of sort or topk."""
    (x,) = node.inputs
    shape, dim = body.shape(x), node.attrs["dim"]
    top = node.op.name == "topk"
    rows = _Rows(
        node, shape, dim, body.size(node.attrs["k"]) if top else shape[dim],
        node.attrs["largest" if top else "descending"],
    )
    scratch = Scratch()
    width = how(body).ranked
    # of a symbolic length, as many as any array has
    steps = LONGEST - width.bit_length()
    if isinstance(rows.length, int):
        steps = (-(-rows.length // width) - 1).bit_length()
    total = unwrap(rows.rows * rows.length)
    pair = [
        _Run(scratch.new(x.dtype, total), scratch.new(dtypes.i64, total))
        for _ in range(min(steps, 2))
    ]
    stages = [_ranked(body, rows, width, pair[0] if steps else None)]
    for step in range(steps):
        target = None if step == steps - 1 else pair[(step + 1) % 2]
        stages.append(_merged(body, rows, width << step, pair[step % 2], target))
    return make_kernel(body, stages, dims_of(body), scratch.params)


def _before(values: Values, rows: _Rows, a: Value, b: Value) -> Value:
    """Whether `a` comes before `b` and is not equal to it."""
    writer = values.writer
    less = writer.apply("gt" if rows.descending else "lt", dtypes.bool_, a, b)
    if not a.dtype.is_float:
        return less
    number, nan = (a, b) if not rows.descending else (b, a)
    is_number = writer.apply("eq", dtypes.bool_, number, number)
    is_nan = writer.apply("isnan", dtypes.bool_, nan)
    return writer.apply("logical_or", dtypes.bool_, less, values.both(is_number, is_nan))


def _comparable(values: Values, value: Value) -> Value:
    """A value in a dtype that is ordered."""
    if value.dtype is dtypes.bool_:
        return values.writer.apply("cast", dtypes.i32, value)
    return value


def _put(
    values: Values, rows: _Rows, target: _Run | None, row: Size, at: Value,
    found: tuple[Value, Value],
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


def _ranked(body: Body, rows: _Rows, width: int, target: _Run | None) -> tuple[Stmt, ...]:
    """Each tile of `width` in order."""
    writer = Writer()
    values = Values(body, writer)
    dtype = rows.node.inputs[0].dtype
    row, i = open_updates(body, writer, rows.rows, rows.length)
    first = unwrap(floordiv(i, width) * width)
    value = rows.read(values, row, i)
    own = _comparable(values, value)
    j = writer.open("serial", "j", minimum(width, unwrap(rows.length - first)))
    rank = carried(writer, dtypes.i64)
    index = unwrap(first + j)
    other = _comparable(values, rows.read(values, row, index))
    earlier = writer.apply(
        "lt", dtypes.bool_, writer.index_value(index), writer.index_value(i)
    )
    after = writer.apply("logical_not", dtypes.bool_, _before(values, rows, own, other))
    counts = writer.apply(
        "logical_or", dtypes.bool_, _before(values, rows, other, own), values.both(earlier, after)
    )
    one = writer.apply("cast", dtypes.i64, counts)
    writer.close([Carry(rank.name, dtypes.i64, writer.index_value(first), "add", one)])
    found = values.stored(value, dtype), writer.index_value(i)
    _put(values, rows, target, row, rank, found)
    return close_all(writer)


def _merged(
    body: Body, rows: _Rows, width: int, source: _Run, target: _Run | None
) -> tuple[Stmt, ...]:
    """Neighbouring runs of `width` as one; the last may be shorter, or have no neighbour."""
    writer = Writer()
    values = Values(body, writer)
    dtype = rows.node.inputs[0].dtype
    row, i = open_updates(body, writer, rows.rows, rows.length)
    base = unwrap(row * rows.length)
    stored = writer.load(source.values, unwrap(base + i), dtype)
    place = writer.load(source.places, unwrap(base + i), dtypes.i64)
    own = _comparable(values, values.widened(stored))
    run = floordiv(i, width)
    right = mod(run, 2)  # 1: the other run is in front of this one, and its equals come first
    is_right = writer.apply(
        "eq", dtypes.bool_, writer.index_value(right), Literal(1, dtypes.i64)
    )
    start = unwrap((run + 1 - 2 * right) * width)
    length = maximum(0, minimum(width, unwrap(rows.length - start)))

    def holds(there: Value) -> Value:
        other = _comparable(values, values.widened(there))
        not_after = writer.apply("logical_not", dtypes.bool_, _before(values, rows, own, other))
        return writer.apply(
            "where", dtypes.bool_, is_right, not_after, _before(values, rows, other, own)
        )

    found = bisect(
        values, (source.values, dtype), unwrap(base + start), length, width.bit_length(), holds
    )
    begin = unwrap((run - right) * width + mod(i, width))
    at = writer.apply("add", dtypes.i64, found, writer.index_value(begin))
    _put(values, rows, target, row, at, (stored, place))
    return close_all(writer)

