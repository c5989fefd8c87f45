"""A stable sort of each row by non-negative integer keys, digit by digit from the lowest, as stages
of loops: every lane counts the digits of a few neighbouring keys; where each lane's keys of a digit
begin is a running sum of the counts, digits outermost; every lane places its keys there, in order.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from ... import dtypes
from ...dim import Dim, Size, ceil_div, floordiv, minimum, mod, unwrap
from ...kernel import Literal, Stmt, Var
from .body import Body
from .scan import Scan, Scratch, State, close_all, how, open_rows, scan_stages
from .scope import Value, Writer
from .values import Values

_TALLY = "tally"  # the counters of an iteration: [digit, lane]


class Keys(NamedTuple):
    """What is sorted: `key(values, row, i)` gives an i64 in [0, 2**bits) for each of `length`
    places of a row. It is computed twice."""

    rows: Size
    length: Size
    bits: int
    key: Callable[[Values, Size, Size], Value]


class Sorted(NamedTuple):
    """Scratch of i64[rows, length]: the keys in order, and the place that each came from."""

    keys: str
    places: str


class _Pass(NamedTuple):
    """One digit: (key // unit) % radix. `source` is None in the first pass."""

    keys: Keys
    unit: int
    radix: int
    chunks: Size  # lanes of a row
    lanes: int  # of them, in an iteration
    counts: str  # i64[rows, radix, chunks]
    source: Sorted | None
    target: Sorted


def radix_stages(
    body: Body, keys: Keys, scratch: Scratch
) -> tuple[list[tuple[Stmt, ...]], Sorted]:
    """The stages that sort, and what they leave."""
    numbers = how(body)
    passes = -(-keys.bits // numbers.digit)
    width = -(-keys.bits // passes)
    chunks = ceil_div(keys.length, numbers.each)
    lanes = min(numbers.lanes, chunks) if isinstance(chunks, int) else numbers.lanes
    total = unwrap(keys.rows * keys.length)
    counts = scratch.new(dtypes.i64, unwrap(keys.rows * (1 << width) * chunks))
    pair = [
        Sorted(scratch.new(dtypes.i64, total), scratch.new(dtypes.i64, total))
        for _ in range(min(passes, 2))
    ]
    stages: list[tuple[Stmt, ...]] = []
    source: Sorted | None = None
    for number in range(passes):
        target = pair[number % 2]
        step = _Pass(
            keys, 1 << number * width, 1 << width, chunks, lanes, counts, source, target
        )
        stages.append(_count(body, step))
        stages += scan_stages(body, _starts(step), scratch)
        stages.append(_place(body, step))
        source = target
    assert source is not None
    return stages, source


def _open_lanes(writer: Writer, step: _Pass) -> tuple[Size, Size, Size]:
    """Loops over the lanes of all rows: the row, the lane in its iteration, and in its row."""
    row, block = open_rows(writer, step.keys.rows, ceil_div(step.chunks, step.lanes))
    writer.local(_TALLY, dtypes.i32, step.radix * step.lanes)
    first = unwrap(block * step.lanes)
    v = writer.open("vector", "v", minimum(step.lanes, unwrap(step.chunks - first)))
    return row, v, unwrap(first + v)


def _open_keys(body: Body, writer: Writer, step: _Pass, chunk: Size) -> Size:
    """The loop of a lane along its keys; the place in the row."""
    each = how(body).each
    first = unwrap(chunk * each)
    return unwrap(first + writer.open("serial", "t", minimum(each, step.keys.length - first)))


def _counter(step: _Pass, digit: Size, v: Size) -> Size:
    return unwrap(digit * step.lanes + v)


def _count_place(step: _Pass, row: Size, digit: Size, chunk: Size) -> Size:
    return unwrap((row * step.radix + digit) * step.chunks + chunk)


def _key(values: Values, step: _Pass, row: Size, i: Size) -> tuple[Value, Size]:
    """The key at a place, and its digit."""
    if step.source is None:
        key = step.keys.key(values, row, i)
    else:
        place = unwrap(row * step.keys.length + i)
        key = values.writer.load(step.source.keys, place, dtypes.i64)
    number: Size = int(key.value) if isinstance(key, Literal) else Dim.var(key.name)
    return key, unwrap(mod(floordiv(number, step.unit), step.radix))


def _count(body: Body, step: _Pass) -> tuple[Stmt, ...]:
    """Each lane's keys by digit."""
    writer = Writer()
    values = Values(body, writer)
    row, v, chunk = _open_lanes(writer, step)
    d = writer.open("serial", "d", step.radix)
    writer.store(_TALLY, _counter(step, d, v), Literal(0, dtypes.i32))
    writer.close()
    i = _open_keys(body, writer, step, chunk)
    _, digit = _key(values, step, row, i)
    writer.store(_TALLY, _counter(step, digit, v), Literal(1, dtypes.i32), combine="add")
    writer.close()
    d = writer.open("serial", "d", step.radix)
    count = writer.load(_TALLY, _counter(step, d, v), dtypes.i32)
    writer.store(
        step.counts, _count_place(step, row, d, chunk), writer.apply("cast", dtypes.i64, count)
    )
    return close_all(writer)


def _starts(step: _Pass) -> Scan:
    """Counts become the number of keys that come before."""
    length = unwrap(step.radix * step.chunks)

    def place(row: Size, i: Size) -> Size:
        return unwrap(row * length + i)

    def read(values: Values, row: Size, i: Size) -> State:
        return (values.writer.load(step.counts, place(row, i), dtypes.i64),)

    def write(values: Values, row: Size, i: Size, before: State, after: State) -> None:
        values.writer.store(step.counts, place(row, i), before[0])

    def add(writer: Writer, a: State, b: State) -> State:
        return (writer.apply("add", dtypes.i64, a[0], b[0]),)

    start = (Literal(0, dtypes.i64),)
    return Scan(step.keys.rows, length, (dtypes.i64,), start, add, read, write)


def _place(body: Body, step: _Pass) -> tuple[Stmt, ...]:
    """Each key where it belongs, by this digit. Of a row that may be longer than an i32 counts to,
    the lanes of an iteration count from where the first one's keys begin."""
    long = not isinstance(step.keys.length, int) or step.keys.length >= 1 << 31
    writer = Writer()
    values = Values(body, writer)
    row, v, chunk = _open_lanes(writer, step)
    d = writer.open("serial", "d", step.radix)
    start = writer.load(step.counts, _count_place(step, row, d, chunk), dtypes.i64)
    if long:
        first = writer.load(step.counts, _count_place(step, row, d, chunk - v), dtypes.i64)
        start = writer.apply("sub", dtypes.i64, start, first)
    writer.store(_TALLY, _counter(step, d, v), writer.apply("cast", dtypes.i32, start))
    writer.close()
    i = _open_keys(body, writer, step, chunk)
    key, digit = _key(values, step, row, i)
    length = step.keys.length
    place = writer.index_value(i)
    if step.source is not None:
        place = writer.load(step.source.places, unwrap(row * length + i), dtypes.i64)
    counter = _counter(step, digit, v)
    at = writer.apply("cast", dtypes.i64, writer.load(_TALLY, counter, dtypes.i32))
    if long:
        begin = writer.load(step.counts, _count_place(step, row, digit, chunk - v), dtypes.i64)
        at = writer.apply("add", dtypes.i64, begin, at)
    # always so, unless a Check of a key failed
    inside = values.in_range(at, Literal(0, dtypes.i64), writer.index_value(length))
    assert isinstance(at, Var)
    there = unwrap(row * length + Dim.var(at.name))
    writer.store(step.target.keys, there, key, inside)
    writer.store(step.target.places, there, place, inside)
    writer.store(_TALLY, counter, Literal(1, dtypes.i32), combine="add")
    return close_all(writer)
