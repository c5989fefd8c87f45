"""Tables for packing a window: where rows (channel, tap) begin, and the parts of taps.

Made once per packed block; the masks are then made per piece (see conv_pack).
"""

from graphc.backends.llvm.conv_geometry import DEPTH, HEIGHT, WIDTH, Window, Words
from graphc.backends.llvm.gemm_pack import Source
from graphc.backends.llvm.text import Function, Module, Value

TABLES_TYPES = "ptr, i64, i64, ptr"


def tables_symbol(source: Source) -> str:
    """Makes them for the packers of one source dtype, in whose module or library it is."""
    return f"@graphc_window_tables_{source.name}"


def window_sum(f: Function, words: Words) -> Value:
    """The sum of a window's three sizes."""
    sizes = words.read3(Window.WINDOW)
    return f.add(f.add(sizes[0], sizes[1]), sizes[2])


def table_bytes(f: Function, taps: Value, sizes: Value, rows: Value) -> Value:
    """Bytes of the tables for so many rows, a multiple of 64; `sizes` is the window_sum."""
    fixed = f.add(f.mul(taps, 3 * 8 + 4), f.mul(sizes, 4))
    return f.mul(f.floordiv(f.add(f.add(fixed, f.mul(rows, 16)), 63 + 8), 64), 64)


class Tables:
    """Where the tables lie in a block of memory.

    parts[dim][tap] is a tap's coordinate; rows[row] a pair (offset in elements, tap). The masks are
    of one piece: sides[dim][coordinate] and masks[tap], bits by lane. Words of 8 bytes, masks of 4.
    """

    def __init__(self, f: Function, g: Words, memory: str) -> None:
        taps, sizes = g.read(Window.TAPS), g.read3(Window.WINDOW)
        self.parts = [memory]
        for _ in range(2):
            self.parts.append(f.gep(self.parts[-1], taps, "i64"))
        self.masks = f.gep(self.parts[-1], taps, "i64")
        self.sides = [f.gep(self.masks, taps, "i32")]
        for dim in (DEPTH, HEIGHT):
            self.sides.append(f.gep(self.sides[-1], sizes[dim], "i32"))
        fixed = f.add(f.mul(taps, 3 * 8 + 4), f.mul(f.add(f.add(*sizes[:2]), sizes[2]), 4))
        fixed = f.mul(f.floordiv(f.add(fixed, 7), 8), 8)
        self.rows = f.gep(memory, fixed, "i8")


def emit_tables(module: Module, source: Source, linkage: str) -> None:
    """Defines void (window, row, rows, memory): all tables but the masks."""
    f = module.function(
        f"void {tables_symbol(source)}(ptr %g, i64 %row, i64 %rows, ptr %memory)", linkage
    )
    g = Words(f, "%g")
    tables = Tables(f, g, "%memory")
    sizes, inputs, steps = g.read3(Window.WINDOW), g.read3(Window.IN), g.read3(Window.DILATION)
    taps, channel_stride = f.smax(g.read(Window.TAPS), 1), g.read(Window.CHANNEL_STRIDE)
    with f.loop(0, g.read(Window.TAPS)) as tap:
        rest = f.sdiv(tap, sizes[WIDTH])
        coordinates = (
            f.sdiv(rest, sizes[HEIGHT]),
            f.srem(rest, sizes[HEIGHT]),
            f.srem(tap, sizes[WIDTH]),
        )
        for part, coordinate in zip(tables.parts, coordinates, strict=True):
            f.store(coordinate, "i64", f.gep(part, tap, "i64"), 8)
    row_step = f.mul(steps[HEIGHT], inputs[WIDTH])
    plane_step = f.mul(steps[DEPTH], f.mul(inputs[HEIGHT], inputs[WIDTH]))
    start = [("i64", str(v)) for v in (f.sdiv("%row", taps), f.srem("%row", taps))]
    loop = f.carry_loop(0, "%rows", 1, start)
    channel, tap = loop.values
    at = [f.load(f.gep(part, tap, "i64"), "i64", 8) for part in tables.parts]
    offset = f.add(f.mul(channel, channel_stride), f.mul(at[DEPTH], plane_step))
    offset = f.add(offset, f.add(f.mul(at[HEIGHT], row_step), f.mul(at[WIDTH], steps[WIDTH])))
    entry = f.gep(tables.rows, f.mul(loop.index, 2), "i64")
    f.store(offset, "i64", entry, 8)
    f.store(tap, "i64", f.gep(entry, 1, "i64"), 8)
    after = f.add(tap, 1)
    wraps = f.cmp("eq", after, taps)
    next_channel = f.add(channel, f.let(f"zext i1 {wraps} to i64"))
    next_tap = f.let(f"select i1 {wraps}, i64 0, i64 {after}")
    loop.close([str(next_channel), next_tap])
    f.ret()
