"""The register tiles of a convolution whose channels are last: positions by channels.

    @graphc_last_<rows>x<vectors>_<acc>    sums over channels, of which an element is broadcast
    @graphc_asking_<rows>x<vectors>_<acc>  the same, and each step asks memory for what lies at
                                           `ahead`, which `ahead_step` is added to (conv_ask.py)
    @graphc_alone_<rows>x<vectors>_<acc>   each channel by itself: channels are lanes
"""

from __future__ import annotations

from graphc.backends.llvm.conv_ask import ask, asks_ahead
from graphc.backends.llvm.conv_steps import step_loop, steps_of
from graphc.backends.llvm.microkernel import Tile
from graphc.backends.llvm.text import Function, Module, Value
from graphc.ir.kernel.plan_last import rows_of, widest_of

PARAMETERS = (
    "ptr noalias readonly %table, i64 %entries, i64 %shift, ptr noalias readonly %w, i64 %depth, "
    "ptr noalias %to, ptr %ahead, i64 %ahead_step"
)


def widths_of(tile: Tile, rows: int) -> range:
    """Registers of the panels whose tiles have so many rows."""
    widths = [w for w in range(1, widest_of(tile.tiling) + 1) if rows_of(tile.tiling, w) == rows]
    return range(widths[0], widths[-1] + 1)


def classes(tile: Tile, rows: int) -> tuple[int, ...]:
    """Heights for which there is a kernel; a tile that is lower computes its last row again."""
    less = (rows - 1,) if tile.tiling.channels.even and rows > 2 else ()
    return tuple(dict.fromkeys((rows, *less, (rows + 1) // 2, 2, 1)))


def kinds(tile: Tile) -> list[str]:
    """Of tiles."""
    return ["last", *["asking"] * asks_ahead(tile), *["alone"] * (tile.group == 1)]


def tiles_symbol(tile: Tile, kind: str) -> str:
    """The table of one kind's kernels, by class and width."""
    return f"@graphc_{kind}_tiles_{tile.name}"


def emit_tiles(module: Module, tile: Tile, rows: int) -> None:
    """Defines all kinds and their tables."""
    for kind in kinds(tile):
        names = []
        for height in classes(tile, rows):
            for vectors in widths_of(tile, rows):
                symbol = f"@graphc_{kind}_{height}x{vectors}_{tile.name}"
                _emit_tile(module, tile, symbol, (height, vectors), rows, kind)
                names.append(f"ptr {symbol}")
        array = f"[{len(names)} x ptr] [{', '.join(names)}]"
        module.globals.append(f"{tiles_symbol(tile, kind)} = internal constant {array}")


def _emit_tile(
    module: Module, tile: Tile, symbol: str, shape: tuple[int, int], rows: int, kind: str
) -> None:
    """Defines void (table, entries, shift, w, depth, to): the sums of a tile, its rows side by
    side. `rows`: addresses in an entry."""
    height, vectors = shape
    f = module.function(f"void {symbol}({PARAMETERS})", "internal")
    zeros = [(tile.vector, tile.zero())] * (height * vectors)
    ahead = [("ptr", "%ahead")] * (kind == "asking")
    taps = f.carry_loop(0, "%entries", 1, [*zeros, *ahead])
    entry = f.gep("%table", f.mul(taps.index, rows + 1), "i64")
    places = [f.load(f.gep(entry, row, "ptr"), "ptr", 8) for row in range(height)]
    weights = f.gep("%w", f.load(f.gep(entry, rows, "i64"), "i64", 8), "i8")
    if kind == "alone":
        new = _lanes(f, tile, places, weights, vectors, taps.values)
    else:
        new = _channels(f, tile, places, weights, vectors, taps.values)
    for index, total in enumerate(taps.close(new)[:height * vectors]):
        f.store(total, tile.vector, f.gep("%to", index * tile.lanes, tile.element), tile.bytes)
    f.ret()


def _channels(
    f: Function, tile: Tile, places: list[str], weights: str, vectors: int, values: list[str]
) -> list[str]:
    """One tap: a word of channels of every row times its weights, word after word. `values`: sums,
    and what is asked for, if something is."""
    count = len(places) * vectors

    def step(values: list[str], index: Value, number: int, asked: int) -> list[str]:
        w, *totals = values
        totals, ahead = totals[:count], [ask(f, place, asked) for place in totals[count:]]
        columns = [
            f.load(
                f.gep(w, (number * vectors + v) * tile.lanes, tile.element), tile.vector, tile.bytes
            )
            for v in range(vectors)
        ]
        found = []
        for row, place in enumerate(places):
            at = f.gep(f.gep(place, index, tile.element), number, tile.element)
            scalar = tile.splat(f, f.load(at, tile.element, tile.value_bytes))
            for v, column in enumerate(columns):
                found.append(tile.multiply_add(f, scalar, column, totals[row * vectors + v]))
        return [w, *found, *ahead]

    def onward(values: list[str], steps: int) -> list[str]:
        w, *others = values
        return [f.gep(w, steps * vectors * tile.lanes, tile.element), *others]

    begun = [
        ("ptr", weights), *((tile.vector, value) for value in values[:count]),
        *(("ptr", value) for value in values[count:]),
    ]
    return step_loop(f, steps_of(tile, count), "%depth", begun, step, onward)[1:]


def _lanes(
    f: Function, tile: Tile, places: list[str], weights: str, vectors: int, sums: list[str]
) -> list[str]:
    """One tap: the channels of every row times their weights."""
    columns = [
        f.load(f.gep(weights, v * tile.lanes, tile.element), tile.vector, tile.bytes)
        for v in range(vectors)
    ]
    found = []
    for row, place in enumerate(places):
        start = f.gep(place, "%shift", "i8")
        for v, column in enumerate(columns):
            at = f.gep(start, v * tile.lanes, tile.element)
            value = f.load(at, tile.vector, tile.bytes)
            found.append(tile.multiply_add(f, value, column, sums[row * vectors + v]))
    return found
