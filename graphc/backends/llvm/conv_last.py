"""Convolutions whose channels are last in memory: the rule is in `ir/kernel/plan_last.py`.

    @graphc_conv_last_<rows>_<acc>(request) all of a convolution whose tiles have so many rows
    @graphc_last_chunk_<acc>(work, chunk)   some tiles of positions, of one panel or of all
    @graphc_last_table_<acc>(work, unit, table, base)  where a tile's rows read, tap by tap

A table has an entry for each tap that some row of a tile meets: an address for each row, and how
far into a panel the tap's weights are.
"""

from __future__ import annotations

import enum

from graphc.backends.llvm.conv_geometry import Words
from graphc.backends.llvm.conv_last_tile import (
    classes,
    emit_tiles,
    kinds,
    tiles_symbol,
    widths_of,
)
from graphc.backends.llvm.gemm_descriptor import WORDS, Descriptor, Word
from graphc.backends.llvm.gemm_plan import Number, ceil_div, choose, value_of
from graphc.backends.llvm.gemm_stages import give_slot, run_symbol, take_slot
from graphc.backends.llvm.microkernel import Tile
from graphc.backends.llvm.text import Function, Module, Value
from graphc.ir.kernel.blocking import ALIGN, MOST_SLOTS, multiple
from graphc.ir.kernel.plan_last import ANY, positions_of, zeros_of


class Last(enum.IntEnum):
    """The request. Sizes of three dims take three words, those of missing dims are 1."""

    ARGUMENTS = 0  # of the epilogue
    EPILOGUE = enum.auto()
    LEFT = enum.auto()
    RIGHT = enum.auto()
    MEMORY = enum.auto()  # scratch: zeros for a run, then tables
    WORKERS = enum.auto()
    BATCH = enum.auto()
    CHANNELS = enum.auto()  # of a pixel, in words
    DEPTH = enum.auto()  # words of a run
    OUTPUTS = enum.auto()
    COLUMNS = enum.auto()  # of a panel
    PANELS = enum.auto()
    ALONE = enum.auto()  # 1: each channel by itself
    TOGETHER = enum.auto()  # 1: a chunk goes through all panels
    PLAIN = enum.auto()  # 1: a position reads its own pixel, and no other
    ASKS_ROWS = enum.auto()  # 1: tiles ask for what the next one's positions read
    NEAR = enum.auto()  # tiles that all panels meet before others come; ANY: each panel meets all
    INPUT = enum.auto()
    INPUT_2 = enum.auto()
    INPUT_3 = enum.auto()
    WINDOW = enum.auto()
    WINDOW_2 = enum.auto()
    WINDOW_3 = enum.auto()
    OUTPUT = enum.auto()
    OUTPUT_2 = enum.auto()
    OUTPUT_3 = enum.auto()
    STRIDE = enum.auto()
    STRIDE_2 = enum.auto()
    STRIDE_3 = enum.auto()
    PAD = enum.auto()
    PAD_2 = enum.auto()
    PAD_3 = enum.auto()
    DILATION = enum.auto()
    DILATION_2 = enum.auto()
    DILATION_3 = enum.auto()
    # added by the driver
    TILES = enum.auto()
    IN_IMAGE = enum.auto()
    HEIGHT = enum.auto()  # positions of an image's first tiles,
    HIGH = enum.auto()  # which are so many; others have one less
    CHUNK = enum.auto()
    CHUNKS = enum.auto()  # of a panel
    SLOTS = enum.auto()  # a descriptor, of which only what take_slot asks is filled in


def last_symbol(tile: Tile, rows: int) -> str:
    """The driver: void (request)."""
    return f"@graphc_conv_last_{rows}_{tile.name}"


def emit_last(module: Module, tile: Tile, rows: int) -> None:
    """Defines all of it."""
    emit_tiles(module, tile, rows)
    _emit_table(module, tile, rows)
    _emit_chunk(module, tile, rows)
    f = module.function(f"void {last_symbol(tile, rows)}(ptr %request)")
    r = Words(f, "%request")
    all_panels = f.cmp("ne", r.read(Last.TOGETHER), 0)
    outputs, columns, panels = (
        r.read(field) for field in (Last.OUTPUTS, Last.COLUMNS, Last.PANELS)
    )
    together = choose(f, all_panels, 1, panels)
    taps, positions = _product(f, r, Last.WINDOW), _product(f, r, Last.OUTPUT)
    each = f.mul(f.mul(2, f.mul(taps, r.read(Last.DEPTH))), choose(f, all_panels, outputs, columns))
    plan = positions_of(
        Number(f, r.read(Last.BATCH)), Number(f, positions), Number(f, taps), Number(f, each),
        Number(f, together), rows, Number(f, r.read(Last.NEAR)), tile.machine,
    )
    for field, number in (
        (Last.TILES, plan.tiles), (Last.IN_IMAGE, plan.in_image), (Last.CHUNK, plan.chunk),
        (Last.CHUNKS, plan.chunks),
    ):
        r.write(field, value_of(number))
    in_image, height = value_of(plan.in_image), value_of(rows)
    high = in_image
    if tile.tiling.channels.even:
        height = ceil_div(f, positions, f.smax(in_image, 1))
        high = f.sub(positions, f.mul(in_image, f.sub(height, 1)))
    r.write(Last.HEIGHT, height)
    r.write(Last.HIGH, high)
    channels, depth = (Number(f, r.read(x)) for x in (Last.CHANNELS, Last.DEPTH))
    memory, zeros = r.read_pointer(Last.MEMORY), zeros_of(channels, depth) * tile.bytes
    with f.loop(0, zeros.value, tile.bytes) as at:
        f.store("zeroinitializer", tile.element, f.gep(memory, at, "i8"), tile.bytes)
    chunks = f.mul(value_of(plan.chunks), together)
    d = Descriptor(f, f.alloca("i64", WORDS))
    d.set_pointer(Word.MEMORY, memory)
    d[Word.CHUNKS_AT] = multiple(zeros, ALIGN).value
    d[Word.CHUNK_SCRATCH] = value_of(plan.table)
    d[Word.WORKERS] = r.read(Last.WORKERS)
    d[Word.SLOTS] = f.smin(chunks, MOST_SLOTS)
    f.store(0, "i64", d.place(Word.BUSY), 8)
    r.write_pointer(Last.SLOTS, d.pointer)
    arguments = (f"ptr @graphc_last_chunk_{tile.name}", "ptr %request")
    f.call("void", run_symbol(module), *arguments, f"i64 {chunks}")
    f.ret()


def _product(f: Function, r: Words, field: Last) -> Value:
    return f.mul(f.mul(r.read(field), r.read(field, 1)), r.read(field, 2))


# --- the table ------------------------------------------------------------------------------------

TABLE_PARAMETERS = "ptr %request, i64 %unit, ptr %table"


def _emit_table(module: Module, tile: Tile, rows: int) -> None:
    """Defines i64 (request, unit, table): the entries of a tile's table, and how many."""
    f = module.function(
        f"i64 @graphc_last_table_{tile.name}({TABLE_PARAMETERS})", "internal"
    )
    r = Words(f, "%request")
    sizes, out = ([r.read(field, dim) for dim in range(3)] for field in (Last.INPUT, Last.OUTPUT))
    channels, in_image = r.read(Last.CHANNELS), r.read(Last.IN_IMAGE)
    image, number = f.sdiv("%unit", in_image), f.srem("%unit", in_image)
    pixels = f.mul(f.mul(sizes[0], sizes[1]), sizes[2])
    start = f.mul(f.mul(image, pixels), channels)
    base = f.gep(r.read_pointer(Last.LEFT), start, tile.element)
    zeros = r.read_pointer(Last.MEMORY)
    plain, general = f.label("plain"), f.label("general")
    f.cond_br(f.cmp("ne", r.read(Last.PLAIN), 0), plain, general)
    f.block(plain)
    position, last = _first_row(f, r, number), f.sub(pixels, 1)
    for row in range(rows):
        pixel = f.smin(f.add(position, row), last)
        f.store(f.gep(base, f.mul(pixel, channels), tile.element), "ptr",
                f.gep("%table", row, "ptr"), 8)
    f.store(0, "i64", f.gep("%table", rows, "i64"), 8)
    f.ret("i64 1")
    f.block(general)
    steps = [r.read(Last.STRIDE, dim) for dim in range(3)]
    pads = [r.read(Last.PAD, dim) for dim in range(3)]
    at = _first_place(f, _first_row(f, r, number), out)
    _emit_inner(f, r, tile, (base, at), rows)
    rows_at = _Rows(f, rows)
    for row in range(rows):
        rows_at.begin(row, [f.sub(f.mul(x, s), p) for x, s, p in zip(at, steps, pads, strict=True)])
        at = _next_place(f, at, out)
    dilations = [r.read(Last.DILATION, dim) for dim in range(3)]
    windows = [r.read(Last.WINDOW, dim) for dim in range(3)]
    weights = f.mul(f.mul(r.read(Last.DEPTH), r.read(Last.COLUMNS)), tile.bytes)
    pixel_bytes = f.mul(channels, tile.bytes)
    count = f.alloca("i64", 2)
    for word in range(2):  # entries so far; the weights of the tap
        f.store(0, "i64", f.gep(count, word, "i64"), 8)
    with f.loop(0, windows[0]) as kd, f.loop(0, windows[1]) as kh:
        shifts = [f.mul(kd, dilations[0]), f.mul(kh, dilations[1])]
        for row in range(rows):
            rows_at.line(row, shifts, sizes, base, pixel_bytes)
        with f.loop(0, windows[2]) as kw:
            entries = f.load(count, "i64", 8)
            entry = f.gep("%table", f.mul(entries, rows + 1), "i64")
            shift, found = f.mul(kw, dilations[2]), "false"
            for row in range(rows):
                inside, there = rows_at.pixel(row, shift, pixel_bytes)
                place = f.let(f"select i1 {inside}, ptr {there}, ptr {zeros}")
                f.store(place, "ptr", f.gep(entry, row, "ptr"), 8)
                found = f.let(f"or i1 {found}, {inside}")
            of_tap = f.load(f.gep(count, 1, "i64"), "i64", 8)
            f.store(of_tap, "i64", f.gep(entry, rows, "i64"), 8)
            f.store(f.add(of_tap, weights), "i64", f.gep(count, 1, "i64"), 8)
            one = f.let(f"zext i1 {found} to i64")
            f.store(f.add(entries, one), "i64", count, 8)
    f.ret(f"i64 {f.load(count, 'i64', 8)}")


def _emit_inner(
    f: Function, r: Words, tile: Tile, where: tuple[str, list[Value]], rows: int
) -> None:
    """Fills the table and returns, if all rows of a tile are in one line and all that they read in
    the image: rows are then equally far apart. `where`: the image, and the first row's place."""
    base, at = where
    begins, ends, words = [], [], {}
    for dim in range(3):
        words[dim] = window, dilation = r.read(Last.WINDOW, dim), r.read(Last.DILATION, dim)
        step = r.read(Last.STRIDE, dim)
        begins.append(f.sub(f.mul(at[dim], step), r.read(Last.PAD, dim)))
        end = f.add(begins[dim], f.mul(f.sub(window, 1), dilation))
        ends.append(f.add(end, f.mul(step, rows - 1)) if dim == 2 else end)
    sizes = [r.read(Last.INPUT, dim) for dim in range(3)]
    inner = f.cmp("sle", f.add(at[2], rows), r.read(Last.OUTPUT, 2))
    for dim in range(3):
        within = f.let(
            f"and i1 {f.cmp('sge', begins[dim], 0)}, {f.cmp('slt', ends[dim], sizes[dim])}"
        )
        inner = f.let(f"and i1 {inner}, {within}")
    with_inner, beside = f.label("inner"), f.label("beside")
    f.cond_br(inner, with_inner, beside)
    f.block(with_inner)
    pixel_bytes = f.mul(r.read(Last.CHANNELS), tile.bytes)
    apart = f.mul(r.read(Last.STRIDE, 2), pixel_bytes)
    weights = f.mul(f.mul(r.read(Last.DEPTH), r.read(Last.COLUMNS)), tile.bytes)
    plane_taps, lines, columns = (words[dim][0] for dim in range(3))
    with f.loop(0, plane_taps) as kd, f.loop(0, lines) as kh:
        plane = f.add(begins[0], f.mul(kd, words[0][1]))
        line = f.add(begins[1], f.mul(kh, words[1][1]))
        number = f.mul(f.add(f.mul(plane, sizes[1]), line), sizes[2])
        first = f.mul(f.add(f.mul(kd, lines), kh), columns)
        with f.loop(0, columns) as kw:
            tap = f.add(first, kw)
            entry = f.gep("%table", f.mul(tap, rows + 1), "i64")
            pixel = f.add(f.add(number, begins[2]), f.mul(kw, words[2][1]))
            place = f.gep(base, f.mul(pixel, pixel_bytes), "i8")
            for row in range(rows):
                f.store(place, "ptr", f.gep(entry, row, "ptr"), 8)
                place = f.gep(place, apart, "i8")
            f.store(f.mul(tap, weights), "i64", f.gep(entry, rows, "i64"), 8)
    f.ret(f"i64 {_product(f, r, Last.WINDOW)}")
    f.block(beside)


class _Rows:
    """Where the rows of a tile read: words in memory, for each row its first coordinates, then of
    the line at hand how many columns it has (0: it is beside the image) and its address."""

    WORDS = 5

    def __init__(self, f: Function, rows: int) -> None:
        self.f = f
        self.words = f.alloca("i64", self.WORDS * rows)

    def _place(self, row: int, word: int) -> str:
        return self.f.gep(self.words, self.WORDS * row + word, "i64")

    def begin(self, row: int, at: list[Value]) -> None:
        """Note the coordinates of the first tap."""
        for dim, value in enumerate(at):
            self.f.store(value, "i64", self._place(row, dim), 8)

    def line(
        self, row: int, shifts: list[Value], sizes: list[str], base: str, pixel_bytes: Value
    ) -> None:
        """Note the line of some taps."""
        f = self.f
        plane, line = (
            f.add(f.load(self._place(row, dim), "i64", 8), shift)
            for dim, shift in enumerate(shifts)
        )
        inside = f.let(
            f"and i1 {f.cmp('ult', plane, sizes[0])}, {f.cmp('ult', line, sizes[1])}"
        )
        f.store(choose(f, inside, sizes[2], 0), "i64", self._place(row, 3), 8)
        number = f.add(f.mul(plane, sizes[1]), line)
        start = f.mul(f.mul(number, sizes[2]), pixel_bytes)
        # not inbounds: a line beside the image has an address, too
        place = f.let(f"getelementptr i8, ptr {base}, i64 {start}")
        f.store(place, "ptr", self._place(row, 4), 8)

    def pixel(self, row: int, shift: Value, pixel_bytes: Value) -> tuple[str, str]:
        """Whether a tap of the line is in the image, and its address."""
        f = self.f
        column = f.add(f.load(self._place(row, 2), "i64", 8), shift)
        inside = f.cmp("ult", column, f.load(self._place(row, 3), "i64", 8))
        line = f.load(self._place(row, 4), "ptr", 8)
        offset = f.mul(column, pixel_bytes)
        return inside, f.let(f"getelementptr i8, ptr {line}, i64 {offset}")


def _first_row(f: Function, r: Words, number: Value) -> Value:
    """The first position of a tile of an image."""
    low = f.smax(f.sub(number, r.read(Last.HIGH)), 0)
    return f.sub(f.mul(number, r.read(Last.HEIGHT)), low)


def _first_place(f: Function, position: Value, out: list[str]) -> list[Value]:
    """The coordinates of a position."""
    line = f.sdiv(position, out[2])
    return [f.sdiv(line, out[1]), f.srem(line, out[1]), f.srem(position, out[2])]


def _next_place(f: Function, at: list[Value], out: list[str]) -> list[Value]:
    """The coordinates of the next position; behind the last one, of the last again."""
    column = f.add(at[2], 1)
    new_line = f.cmp("sge", column, out[2])
    line = choose(f, new_line, f.add(at[1], 1), at[1])
    new_plane = f.cmp("sge", line, out[1])
    plane = choose(f, new_plane, f.add(at[0], 1), at[0])
    beyond = f.cmp("sge", plane, out[0])
    following = [
        plane, choose(f, new_plane, 0, line), choose(f, new_line, 0, column),
    ]
    return [choose(f, beyond, old, new) for old, new in zip(at, following, strict=True)]


# --- a chunk ------------------------------------------------------------------------------------


def _emit_chunk(module: Module, tile: Tile, rows: int) -> None:
    f = module.function(
        f"void @graphc_last_chunk_{tile.name}(ptr %request, i64 %chunk)", "internal"
    )
    r = Words(f, "%request")
    chunks, count, in_image = (r.read(x) for x in (Last.CHUNKS, Last.CHUNK, Last.IN_IMAGE))
    alone = f.cmp("ne", r.read(Last.ALONE), 0)
    all_panels = f.cmp("ne", r.read(Last.TOGETHER), 0)
    turns = f.cmp("slt", r.read(Last.NEAR), ANY)
    panel, part = panel_and_part(f, turns, chunks, r.read(Last.PANELS))
    last_panel = choose(f, all_panels, r.read(Last.PANELS), f.add(panel, 1))
    slots = Descriptor(f, r.read_pointer(Last.SLOTS))
    slot, table = take_slot(slots)
    positions, taps = _product(f, r, Last.OUTPUT), _product(f, r, Last.WINDOW)
    depth, columns, outputs = (r.read(x) for x in (Last.DEPTH, Last.COLUMNS, Last.OUTPUTS))
    panel_elements = f.mul(f.mul(taps, depth), columns)
    arguments, epilogue = r.read_pointer(Last.ARGUMENTS), r.read_pointer(Last.EPILOGUE)
    right = r.read_pointer(Last.RIGHT)
    widths = widths_of(tile, rows)
    sums = f.alloca(tile.vector, rows * widths[-1])
    vectors = f.floordiv(columns, tile.lanes)
    first = f.mul(part, count)
    # bytes of the next panel that each step of a tile asks for (conv_ask.py); none where more tiles
    # meet a panel, or all are in a cache
    row, tiles = f.mul(columns, tile.bytes), r.read(Last.TILES)
    met = choose(f, turns, f.smin(count, tiles), tiles)
    few = f.let(f"and i1 {f.cmp('eq', r.read(Last.TOGETHER), 0)}, {f.cmp('sle', met, row)}")
    step = choose(f, few, ceil_div(f, row, met), 0)
    after, of_unit = choose(f, few, panel_elements, 0), f.mul(f.mul(step, taps), depth)
    most, high = r.read(Last.HEIGHT), r.read(Last.HIGH)
    asks_rows = f.cmp("ne", r.read(Last.ASKS_ROWS), 0)
    pixel = f.mul(r.read(Last.CHANNELS), tile.bytes)
    # bytes of the next rows that a step asks for
    of_rows = ceil_div(f, f.mul(most, tile.bytes), r.read(Last.PANELS))
    asks = f.let(f"or i1 {asks_rows}, {f.cmp('ne', step, 0)}")
    with f.loop(first, f.smin(f.add(first, count), tiles)) as unit:
        image = f.sdiv(unit, in_image)
        number = f.srem(unit, in_image)
        m = _first_row(f, r, number)
        height = choose(f, f.cmp("slt", number, high), most, f.sub(most, 1))
        height = f.smin(f.sub(positions, m), height)
        of_class: Value = 0
        for index, size in enumerate(classes(tile, rows)[1:], 1):
            of_class = choose(f, f.cmp("sle", height, size), index, of_class)
        kernels = f.mul(of_class, len(widths))
        symbol = tiles_symbol(tile, "last")
        for kind in kinds(tile)[1:]:
            this = alone if kind == "alone" else asks
            symbol = choose_pointer(f, this, tiles_symbol(tile, kind), symbol)
        which = f.gep(symbol, f.sub(f.add(kernels, vectors), widths[0]), "ptr")
        kernel = f.load(which, "ptr", 8)
        entries = f.call(
            "i64", f"@graphc_last_table_{tile.name}", "ptr %request", f"i64 {unit}",
            f"ptr {table}",
        )
        at = f.mul(f.add(f.add(f.mul(image, positions), m), height), pixel)
        # not inbounds: none may follow
        rows_ahead = f.let(f"getelementptr i8, ptr {r.read_pointer(Last.LEFT)}, i64 {at}")
        before = f.mul(f.sub(unit, choose(f, turns, first, 0)), of_unit)
        with f.loop(panel, last_panel) as p:
            n = f.mul(p, columns)
            shift = choose(f, alone, f.mul(n, tile.bytes), 0)
            weights = f.gep(right, f.mul(p, panel_elements), tile.element)
            ahead = f.gep(f.gep(weights, after, tile.element), before, "i8")
            at = f.mul(f.mul(p, depth), of_rows)
            of_panel = f.let(f"getelementptr i8, ptr {rows_ahead}, i64 {at}")
            ahead = choose_pointer(f, asks_rows, of_panel, ahead)
            f.call(
                "void", kernel, f"ptr {table}", f"i64 {entries}", f"i64 {shift}",
                f"ptr {weights}", f"i64 {depth}", f"ptr {sums}", f"ptr {ahead}",
                f"i64 {choose(f, asks_rows, of_rows, step)}",
            )
            values = (image, m, height, n, f.smin(columns, f.sub(outputs, n)))
            f.call(
                "void", epilogue, f"ptr {arguments}", *(f"i64 {v}" for v in values),
                f"ptr {sums}", f"i64 {columns}",
            )
    give_slot(slots, slot)
    f.ret()


def panel_and_part(f: Function, turns: str, parts: Value, panels: Value) -> tuple[Value, Value]:
    """Of %chunk: all panels of a part first where they take turns, else all parts of a panel."""
    panel = choose(f, turns, f.srem("%chunk", panels), f.sdiv("%chunk", parts))
    return panel, choose(f, turns, f.sdiv("%chunk", panels), f.srem("%chunk", parts))


def choose_pointer(f: Function, condition: str, a: str, b: str) -> str:
    """a if the i1 condition holds, else b."""
    return f.let(f"select i1 {condition}, ptr {a}, ptr {b}")
