"""Running combinations along rows, side by side: lanes each go along neighbours, their totals are
combined by doubling, and then those of blocks. What is combined with what follows sizes alone.

    stage 1   every block's total       (only where a row has several blocks)
    stage 2   what comes before each block, by the same means
    stage 3   the row, block by block, from what comes before
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from ... import dtypes
from ...dim import Size, ceil_div, minimum, unwrap
from ...dtypes import DType
from ...kernel import Carry, Literal, Param, Stmt, Var
from ...machine import Sorting
from .body import Body
from .nest import Axis, hint, unravelled
from .scope import Value, Writer
from .values import Values

State = tuple[Value, ...]


class Scan(NamedTuple):
    """What runs along rows of `length`: a state of values of `kinds`, `start` before the first.
    `combine(writer, earlier, later)` is associative but for rounding; `read(values, row, i)` is an
    element's state, `write(values, row, i, before, after)` is given those around it."""

    rows: Size
    length: Size
    kinds: tuple[DType, ...]
    start: tuple[Literal, ...]
    combine: Callable[[Writer, State, State], State]
    read: Callable[[Values, Size, Size], State]
    write: Callable[[Values, Size, Size, State, State], None]


class Scratch:
    """The scratch buffers of a kernel that is being lowered."""

    def __init__(self) -> None:
        self.params: list[Param] = []

    def new(self, dtype: DType, size: Size) -> str:
        name = f"s{len(self.params)}"
        self.params.append(Param(name, dtype, unwrap(size), "scratch"))
        return name


def how(body: Body) -> Sorting:
    """The numbers of a machine that does such things side by side."""
    found = body.machine.sorting
    if found is None:
        raise ValueError(f"a {body.machine.kind} does one after another")
    return found


def worthwhile(body: Body, length: Size, beside: Size) -> bool:
    """Whether what has an order of `length`, in each of `beside` rows, is better not done one after
    another."""
    numbers = body.machine.sorting
    if numbers is None:
        return False
    return hint(body, length) > numbers.in_turn and hint(body, beside) < numbers.beside


def scan_stages(body: Body, scan: Scan, scratch: Scratch) -> list[tuple[Stmt, ...]]:
    """The stages of a scan."""
    numbers = how(body)
    most = numbers.lanes * numbers.scanned
    if hint(body, scan.length) <= most:
        return [_rows(body, scan, 1, ceil_div(scan.length, numbers.lanes), None)]
    blocks = ceil_div(scan.length, most)
    totals = [scratch.new(kind, unwrap(scan.rows * blocks)) for kind in scan.kinds]

    def place(row: Size, block: Size) -> Size:
        return unwrap(row * blocks + block)

    def read(values: Values, row: Size, i: Size) -> State:
        return _loaded(values.writer, totals, scan, place(row, i))

    def write(values: Values, row: Size, i: Size, before: State, after: State) -> None:
        for buffer, value in zip(totals, before, strict=True):
            values.writer.store(buffer, place(row, i), value)

    outer = scan._replace(length=blocks, read=read, write=write)
    return [
        _totals(body, scan, blocks, totals),
        *scan_stages(body, outer, scratch),
        _rows(body, scan, blocks, numbers.scanned, totals),
    ]


def _loaded(writer: Writer, buffers: list[str], scan: Scan, index: Size) -> State:
    return tuple(
        writer.load(buffer, index, kind)
        for buffer, kind in zip(buffers, scan.kinds, strict=True)
    )


def open_rows(writer: Writer, rows: Size, blocks: Size) -> tuple[Size, Size]:
    """A parallel loop over the blocks of all rows; the row and the block."""
    root = writer.open("parallel", "p", unwrap(rows * blocks))
    row, block = unravelled(writer, root, [Axis(rows), Axis(blocks)])
    return row, block


def close_all(writer: Writer) -> tuple[Stmt, ...]:
    """The stage, every loop closed."""
    while len(writer.scopes) > 1:
        writer.close()
    return writer.finish()


def _totals(body: Body, scan: Scan, blocks: Size, totals: list[str]) -> tuple[Stmt, ...]:
    writer = Writer()
    values = Values(body, writer)
    lanes, each = how(body).lanes, how(body).scanned
    row, block = open_rows(writer, scan.rows, blocks)
    tiles = _lane_totals(values, scan, row, block, each)
    whole = tuple(
        writer.load(tile, lanes - 1, kind) for tile, kind in zip(tiles, scan.kinds, strict=True)
    )
    for buffer, value in zip(totals, whole, strict=True):
        writer.store(buffer, unwrap(row * blocks + block), value)
    return close_all(writer)


def _rows(
    body: Body, scan: Scan, blocks: Size, each: Size, totals: list[str] | None
) -> tuple[Stmt, ...]:
    """The pass that writes; `totals` holds what comes before each block."""
    writer = Writer()
    values = Values(body, writer)
    lanes = how(body).lanes
    row, block = open_rows(writer, scan.rows, blocks)
    tiles = _lane_totals(values, scan, row, block, each)
    v = writer.open("vector", "v", lanes)
    before = _earlier(writer, tiles, scan, v, 1)
    if totals is not None:
        outer = _loaded(writer, totals, scan, unwrap(row * blocks + block))
        before = scan.combine(writer, outer, before)
    i = _open_piece(writer, scan, block, v, lanes, each)
    held = _held(writer, scan)
    after = scan.combine(writer, held, scan.read(values, row, i))
    scan.write(values, row, i, held, after)
    writer.close(_carries(held, before, after))
    return close_all(writer)


def _lane_totals(
    values: Values, scan: Scan, row: Size, block: Size, each: Size
) -> list[str]:
    """Tiles in which lane v has the combination of what lanes 0 to v of the block go along."""
    writer = values.writer
    lanes = how(values.body).lanes
    pair = [
        [_tile(writer, f"{name}{n}", kind, lanes) for n, kind in enumerate(scan.kinds)]
        for name in ("from", "to")
    ]
    v = writer.open("vector", "v", lanes)
    i = _open_piece(writer, scan, block, v, lanes, each)
    held = _held(writer, scan)
    after = scan.combine(writer, held, scan.read(values, row, i))
    writer.close(_carries(held, scan.start, after))
    for tile, value in zip(pair[0], held, strict=True):
        writer.store(tile, v, value)
    writer.close()
    distance = 1
    while distance < lanes:
        v = writer.open("vector", "v", lanes)
        own = _loaded(writer, pair[0], scan, v)
        both = scan.combine(writer, _earlier(writer, pair[0], scan, v, distance), own)
        # the first lanes are done; what they would be combined with is not always an identity
        alone = writer.apply(
            "lt", dtypes.bool_, writer.index_value(v), Literal(distance, dtypes.i64)
        )
        for tile, kind, one, two in zip(pair[1], scan.kinds, own, both, strict=True):
            writer.store(tile, v, writer.apply("where", kind, alone, one, two))
        writer.close()
        pair.reverse()
        distance *= 2
    return pair[0]


def _tile(writer: Writer, name: str, kind: DType, lanes: int) -> str:
    writer.local(name, kind, lanes)
    return name


def _earlier(writer: Writer, tiles: list[str], scan: Scan, v: Size, distance: int) -> State:
    """The state of the lane so far before this one, or the start."""
    there = writer.apply(
        "ge", dtypes.bool_, writer.index_value(v), Literal(distance, dtypes.i64)
    )
    return tuple(
        writer.load(tile, unwrap(v - distance), kind, there, start)
        for tile, kind, start in zip(tiles, scan.kinds, scan.start, strict=True)
    )


def _open_piece(
    writer: Writer, scan: Scan, block: Size, v: Size, lanes: int, each: Size
) -> Size:
    """The loop of one lane along its neighbours; returns the place in the row."""
    first = unwrap((block * lanes + v) * each)
    return unwrap(first + writer.open("serial", "t", minimum(each, unwrap(scan.length - first))))


def carried(writer: Writer, dtype: DType) -> Var:
    """A new value that the innermost loop carries."""
    name = writer.fresh("c")
    writer.levels[name] = len(writer.scopes) - 1
    return Var(name, dtype)


def _held(writer: Writer, scan: Scan) -> tuple[Var, ...]:
    return tuple(carried(writer, kind) for kind in scan.kinds)


def _carries(held: tuple[Var, ...], start: State, after: State) -> list[Carry]:
    return [
        Carry(var.name, var.dtype, first, "set", value)
        for var, first, value in zip(held, start, after, strict=True)
    ]
