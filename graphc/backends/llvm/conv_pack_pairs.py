"""Packing of windows where steps of k are pairs of values: see conv_pack and gemm_pack_words."""

from graphc.backends.llvm.conv_copy import emit_pad
from graphc.backends.llvm.conv_geometry import DEPTH, HEIGHT, WIDTH, Window, Words
from graphc.backends.llvm.conv_pack import flat_taps
from graphc.backends.llvm.conv_tables import emit_tables, table_bytes, window_sum
from graphc.backends.llvm.conv_window import Rows, begin_pack, window_symbol
from graphc.backends.llvm.gemm_descriptor import Descriptor, Word
from graphc.backends.llvm.gemm_pack import (
    LEFT_PARAMETERS,
    RIGHT_PARAMETERS,
    Source,
    declare_transpose,
    left_tiles,
    packed_panels,
    packed_vectors,
    transpose_symbol,
)
from graphc.backends.llvm.gemm_plan import ceil_div, choose
from graphc.backends.llvm.gemm_words import Steps, word
from graphc.backends.llvm.microkernel import MR
from graphc.backends.llvm.text import Function, Module, Value


def emit_conv_pair_packs(module: Module, source: Source) -> None:
    """Defines the three packers for one source dtype, and the padded copy."""
    emit_tables(module, source, "internal")
    emit_pad(module, source, 1)
    Rows(module, source, "pairs", "internal").emit()
    Rows(module, source, "values", "internal").emit()
    declare_transpose(module, source.tile)
    _emit_pack_rows(module, source)
    _emit_pack_columns(module, source)
    _emit_pack_weights(module, source)


def _emit_pack_rows(module: Module, source: Source) -> None:
    """k = (channel, tap); n = position."""
    f = module.function(f"void @graphc_pack_window_rows_{source.name}({RIGHT_PARAMETERS})")
    tile = source.tile
    steps = Steps(f, Descriptor(f, "%d"), tile)
    g, _ = begin_pack(f, source, steps.first, steps.count)
    with packed_panels(f, tile, "%columns", "%steps") as (column, to, pitch):
        count = f.smin(f.sub("%columns", column), pitch)
        values = (f.add("%n", column), count, steps.count)
        f.call(
            "void",
            window_symbol(source, "pairs"),
            f"ptr {g.pointer}",
            "ptr %base",
            *(f"i64 {v}" for v in values),
            f"ptr {to}",
            f"i64 {f.mul(pitch, tile.bytes)}",
            f"i64 {pitch}",
            "ptr %scratch",
        )
    f.ret()


def _emit_pack_columns(module: Module, source: Source) -> None:
    """k = position, n = (channel, tap): rows of the window, whose neighbours are pairs already,
    transposed square by square."""
    f = module.function(f"void @graphc_pack_window_columns_{source.name}({RIGHT_PARAMETERS})")
    tile = source.tile
    square = tile.lanes * tile.bytes
    steps = Steps(f, Descriptor(f, "%d"), tile)
    g, taps = begin_pack(f, source, "%n", "%columns")
    buffer = f.alloca(tile.vector, tile.lanes)
    rows = f.gep("%scratch", table_bytes(f, taps, window_sum(f, g), "%columns"), "i8")
    with f.loop(0, steps.count, tile.values) as value:
        count = f.smin(f.sub(steps.count, value), tile.values)
        f.call(
            "void",
            window_symbol(source, "values"),
            f"ptr {g.pointer}",
            "ptr %base",
            *(f"i64 {v}" for v in (f.add(steps.first, value), count, "%columns")),
            f"ptr {rows}",
            f"i64 {square}",
            f"i64 {tile.values}",
            "ptr %scratch",
        )
        with f.when(f.cmp("ne", f.mod(count, 2), 0)), f.loop(0, "%columns") as row:
            alone = f.gep(f.gep(rows, f.mul(row, square), "i8"), count, tile.value_element)
            f.store(0, tile.value_element, alone, tile.value_bytes)
        whole = f.cmp("eq", count, tile.values)
        some = ceil_div(f, count, 2)
        with packed_vectors(f, tile, "%columns", "%steps") as (column, to, pitch):
            source_rows = f.gep(rows, f.mul(column, square), "i8")
            target = f.gep(to, f.mul(f.floordiv(value, 2), pitch), tile.element)
            goal = f.let(f"select i1 {whole}, ptr {target}, ptr {buffer}")
            goal_pitch = choose(f, whole, f.mul(pitch, tile.bytes), square)
            arguments = (f"ptr {source_rows}", f"i64 {square}", f"ptr {goal}")
            f.call("void", transpose_symbol(tile), *arguments, f"i64 {goal_pitch}")
            with f.loop(0, choose(f, whole, 0, some)) as row:
                words = f.load(f.gep(buffer, row, tile.vector), tile.vector, tile.bytes)
                at = f.gep(target, f.mul(row, pitch), tile.element)
                f.store(words, tile.vector, at, tile.bytes)
    f.ret()


class _Weights:
    """Left operand of an input gradient: where weight (channel, tap) begins, gone along by taps."""

    def __init__(self, f: Function, d: Descriptor) -> None:
        self.f = f
        self.g = g = Words(f, d.pointer_at(Word.GEOMETRY))
        self.sizes, strides = flat_taps(f, g)
        self.strides = [f.mul(stride, 1) for stride in strides]
        self.channel, self.taps = g.read(Window.WEIGHT_CHANNEL), f.smax(g.read(Window.TAPS), 1)

    def at(self, value: Value) -> list[Value]:
        """(offset of the channel, depth, height, width) of a value of k."""
        f, (_, height, width) = self.f, self.sizes
        channel, tap = f.sdiv(value, self.taps), f.srem(value, self.taps)
        line = f.sdiv(tap, f.smax(width, 1))
        high = f.smax(height, 1)
        return [
            f.mul(channel, self.channel), f.sdiv(line, high), f.srem(line, high),
            f.srem(tap, f.smax(width, 1)),
        ]

    def offset(self, at: list[Value]) -> Value:
        """Where a weight lies."""
        f, total = self.f, at[0]
        for place, stride in zip(at[1:], self.strides, strict=True):
            total = f.add(total, f.mul(place, stride))
        return total

    def after(self, at: list[Value]) -> list[Value]:
        """The next one."""
        f, result = self.f, []
        carry: Value = 1
        for dim in (WIDTH, HEIGHT, DEPTH):
            moved = f.add(at[1 + dim], carry)
            wraps = f.cmp("eq", moved, self.sizes[dim])
            result.append(choose(f, wraps, 0, moved))
            carry = f.let(f"zext i1 {wraps} to i64")
        return [f.add(at[0], f.mul(carry, self.channel)), *reversed(result)]


def _emit_pack_weights(module: Module, source: Source) -> None:
    """Left operand of an input gradient: weights by (row, channel, tap), any of the taps."""
    f = module.function(f"void @graphc_pack_weights_{source.name}({LEFT_PARAMETERS})")
    tile, d = source.tile, Descriptor(f, "%d")
    steps, weights = Steps(f, d, tile), _Weights(f, d)
    base = f.gep("%base", weights.g.read(Window.WEIGHT_START), source.element)
    row_stride = weights.g.read(Window.WEIGHT_ROW)
    begin = [("i64", str(value)) for value in weights.at(steps.first)]
    with left_tiles(f, source, base, row_stride) as (rows, to):

        def store(step: Value, at: list[Value], alone: bool) -> list[Value]:
            low, high = weights.offset(at), weights.after(at)
            goal = f.gep(to, f.mul(step, MR), tile.element)
            other = "" if alone else weights.offset(high)
            for row, place in enumerate(rows):
                first = source.load(f, f.gep(place, low, source.element))
                second = "0.0" if alone else source.load(f, f.gep(place, other, source.element))
                both = word(f, tile, [first, second], 1)
                f.store(both, tile.element, f.gep(goal, row, tile.element), tile.bytes)
            return high

        loop = f.carry_loop(0, steps.whole, 1, begin)
        after = weights.after(store(loop.index, list(loop.values), alone=False))
        last = loop.close([str(value) for value in after])
        with f.when(steps.ragged):
            store(steps.whole, list(last), alone=True)
    f.ret()
