"""Copies whose words are pairs of channels, for convolutions that multiply pairs: of the input with
its padding (as conv_copy makes it), and of the weights, [group][row][pair of channels][tap]. What
an odd channel's word has no second value for is 0.
"""

import enum
from collections.abc import Callable

from graphc.backends.llvm.conv_copy import Copy, Planes
from graphc.backends.llvm.conv_geometry import DEPTH, HEIGHT, WIDTH, Window, Words
from graphc.backends.llvm.conv_pack import flat_taps
from graphc.backends.llvm.gemm_pack import Source, first_lanes, first_values, store_masked
from graphc.backends.llvm.gemm_plan import ceil_div, choose
from graphc.backends.llvm.gemm_words import word
from graphc.backends.llvm.text import Function, Module, Value

MOST_AHEAD = 1 << 15  # elements that are asked for before they are read


class Weights(enum.IntEnum):
    """The copy of the weights: what it is made from, and where."""

    SOURCE = 0
    TARGET = enum.auto()
    GEOMETRY = enum.auto()
    GROUP = enum.auto()  # bytes from one group to the next
    ROWS = enum.auto()  # of a group,
    ALL_ROWS = enum.auto()  # and of all of them
    ROWS_PER_CHUNK = enum.auto()
    CHANNELS = enum.auto()  # of a group


WEIGHTS_WORDS = len(Weights)


def pad_pairs_symbol(source: Source) -> str:
    """The copy of some planes, pairs of channels each: void (copy, chunk)."""
    return f"@graphc_pad_pairs_{source.name}"


def pair_weights_symbol(source: Source) -> str:
    """The copy of some rows of weights: void (weights, chunk)."""
    return f"@graphc_pair_weights_{source.name}"


def emit_pair_copies(module: Module, source: Source) -> None:
    """Defines both."""
    f = module.function(f"void {pad_pairs_symbol(source)}(ptr %copy, i64 %chunk)")
    _emit_by_step(_PairPlanes(f, source))
    _emit_weights(module, source)


def _emit_by_step(planes: Planes) -> None:
    """The body of a copy: what does planes of any step along a line."""
    f = planes.f
    for step in (1, 2):
        this, other = f.label("step"), f.label("step")
        f.cond_br(f.cmp("eq", planes.step, step), this, other)
        f.block(this)
        planes.emit(step)
        f.ret()
        f.block(other)
    planes.emit(0)
    f.ret()


class _PairPlanes(Planes):
    """Planes of words."""

    def __init__(self, f: Function, source: Source) -> None:
        super().__init__(f, source)
        self.lanes, self.element = source.tile.lanes, source.tile.element
        self.element_bytes = source.tile.bytes
        self.ahead = f.smin(f.mul(self.pixels, 2), MOST_AHEAD)

    def channels(self, planes: Value) -> Value:
        """How many of the source make so many planes."""
        f, of_group = self.f, self.c.read(Copy.CHANNELS)
        return f.mul(f.sdiv(planes, f.smax(ceil_div(f, of_group, 2), 1)), of_group)

    def begin(self, plane: Value) -> tuple[Value, Value]:
        """(where the first of a plane's channels begins, how much further the other does)."""
        f, of_group = self.f, self.c.read(Copy.CHANNELS)
        pairs = ceil_div(f, of_group, 2)
        first = f.mul(f.srem(plane, pairs), 2)
        alone = f.cmp("eq", f.add(first, 1), of_group)
        self.other = choose(f, alone, 0, self.pixels)
        self.kept = choose(f, alone, 0, -1)
        channel = f.add(f.mul(f.sdiv(plane, pairs), of_group), first)
        return f.mul(channel, self.pixels), self.other

    def load(self, at: Value, count: Value, masked: bool) -> str:
        """Neighbours: a register, or the first `count`."""
        f, source = self.f, self.source
        mask = first_lanes(f, self.tile, count) if masked else ""

        def load(at: Value) -> str:
            place = self.place(at)
            return source.load_masked(f, place, mask) if mask else source.load_vector(f, place)

        return self._both(at, load)

    def pair(self, at: Value, count: Value, masked: bool) -> str:
        """Every second element: what lies in the lower halves of words."""
        f, tile, ints = self.f, self.tile, f"<{self.lanes} x i32>"
        mask = first_values(f, tile, f.sub(f.mul(count, 2), 1)) if masked else ""

        def load(at: Value) -> str:
            words = self.source.load_words(f, self.place(at), mask)
            words = f.let(f"bitcast {tile.vector} {words} to {ints}")
            return f.let(f"bitcast {ints} {_upper(f, ints, words)} to {tile.vector}")

        return self._both(at, load)

    def gather(self, at: Value, count: Value, masked: bool) -> str:
        """Elements any step apart."""
        gather = super().gather
        return self._both(at, lambda at: gather(at, count, masked))

    def _both(self, at: Value, load: Callable[[Value], str]) -> str:
        """Words of what `load` gives for either channel."""
        further = self.f.add(at, self.other)
        for place in (at, further):
            self._ask_for(place)
        low, high = load(at), load(further)
        return _word(self.f, self.source, low, high, self.kept)

    def _ask_for(self, at: Value) -> None:
        """Has the next plane's elements come: each begins where a core does not expect it."""
        f = self.f
        f.module.declare("declare void @llvm.prefetch.p0(ptr, i32, i32, i32)")
        # not inbounds: it may be beside the input
        place, kind = self.place(at), self.source.element
        place = f.let(f"getelementptr {kind}, ptr {place}, i64 {self.ahead}")
        f.call("void", "@llvm.prefetch.p0", f"ptr {place}", "i32 0", "i32 2", "i32 1")


def _upper(f: Function, ints: str, words: str) -> str:
    """Their lower halves as the upper ones."""
    return f.let(f"shl {ints} {words}, splat (i32 16)")


def _word(f: Function, source: Source, low: str, high: str, kept: Value, lanes: int = 0) -> str:
    """A register of words (or, of one lane, one of them); `kept`: an i64, -1, or 0 where there is
    no second value."""
    tile, lanes = source.tile, lanes or source.tile.lanes
    if kept == -1:
        return word(f, tile, [low, high], lanes)
    kind, ints = (tile.vector, f"<{lanes} x i32>") if lanes > 1 else (tile.element, "i32")
    mask = f.let(f"trunc i64 {kept} to i32")
    if lanes > 1:
        first = f.let(f"insertelement {ints} poison, i32 {mask}, i64 0")
        mask = f.let(f"shufflevector {ints} {first}, {ints} poison, {ints} zeroinitializer")
    bits = f.let(f"bitcast {kind} {high} to {ints}")
    high = f.let(f"bitcast {ints} {f.let(f'and {ints} {bits}, {mask}')} to {kind}")
    return word(f, tile, [low, high], lanes)


def _emit_weights(module: Module, source: Source) -> None:
    f = module.function(f"void {pair_weights_symbol(source)}(ptr %weights, i64 %chunk)")
    tile, w = source.tile, Words(f, "%weights")
    g = Words(f, w.read_pointer(Weights.GEOMETRY))
    (depth, height, width), strides = flat_taps(f, g)
    lines = _Lines(f, source, width, strides[WIDTH])
    taps = f.mul(depth, f.mul(height, width))
    from_, to = w.read_pointer(Weights.SOURCE), w.read_pointer(Weights.TARGET)
    rows, all_rows, count, channels, group = (
        w.read(field) for field in (
            Weights.ROWS, Weights.ALL_ROWS, Weights.ROWS_PER_CHUNK, Weights.CHANNELS, Weights.GROUP
        )
    )
    start, row_stride, stride = (
        g.read(field) for field in (Window.WEIGHT_START, Window.WEIGHT_ROW, Window.WEIGHT_CHANNEL)
    )
    pairs, first = ceil_div(f, channels, 2), f.mul("%chunk", count)
    whole = f.sdiv(channels, 2)
    flat = f.cmp("eq", f.mul(depth, height), 1)
    short = f.let(f"and i1 {flat}, {lines.is_short}")
    with f.loop(first, f.smin(f.add(first, count), all_rows)) as row:
        base = f.gep(from_, f.mul(f.sdiv(row, rows), group), "i8")
        base = f.gep(base, f.add(start, f.mul(f.srem(row, rows), row_stride)), source.element)
        goal = f.gep(to, f.mul(f.mul(row, pairs), taps), tile.element)
        # most weights are such: a register holds all taps of a channel
        done = choose(f, short, whole, 0)
        with f.loop(0, done) as pair:
            low = f.gep(base, f.mul(f.mul(pair, 2), stride), source.element)
            high = f.gep(low, stride, source.element)
            lines.copy_rest((low, high), -1, f.gep(goal, f.mul(pair, taps), tile.element))
        with f.loop(done, pairs) as pair:
            channel = f.mul(pair, 2)
            alone = f.cmp("eq", f.add(channel, 1), channels)
            other, kept = choose(f, alone, 0, stride), choose(f, alone, 0, -1)
            at, begin = f.mul(channel, stride), f.mul(pair, taps)
            with f.loop(0, depth) as kd, f.loop(0, height) as kh:
                line = f.add(f.mul(kd, strides[DEPTH]), f.mul(kh, strides[HEIGHT]))
                low = f.gep(base, f.add(at, line), source.element)
                high = f.gep(low, other, source.element)
                to_line = f.add(begin, f.mul(f.add(f.mul(kd, height), kh), width))
                lines.copy((low, high), kept, f.gep(goal, to_line, tile.element))
    f.ret()


class _Lines:
    """Copies lines of taps, so many and so far apart, of two channels each."""

    def __init__(self, f: Function, source: Source, width: Value, stride: str) -> None:
        self.f, self.source, self.width, self.stride = f, source, width, stride
        self.dense, lanes = f.cmp("eq", stride, 1), source.tile.lanes
        self.whole = f.mul(f.sdiv(width, lanes), lanes)
        self.rest = f.sub(width, self.whole)
        self.mask = first_lanes(f, source.tile, self.rest)
        shorter = f.cmp("slt", width, lanes)
        self.is_short = f.let(f"and i1 {self.dense}, {shorter}")

    def copy(self, from_: tuple[str, str], kept: Value, to: str) -> None:
        """Neighbours by registers, others one by one."""
        f, source, tile = self.f, self.source, self.source.tile
        dense, sparse, done = f.label("dense"), f.label("sparse"), f.label("copied")
        f.cond_br(self.dense, dense, sparse)
        f.block(dense)
        with f.loop(0, self.whole, tile.lanes) as tap:
            low, high = (source.load_vector(f, f.gep(x, tap, source.element)) for x in from_)
            words = _word(f, source, low, high, kept)
            f.store(words, tile.vector, f.gep(to, tap, tile.element), tile.bytes)
        with f.when(f.cmp("sgt", self.rest, 0)):
            low, high = (f.gep(x, self.whole, source.element) for x in from_)
            self.copy_rest((low, high), kept, f.gep(to, self.whole, tile.element))
        f.br(done)
        f.block(sparse)
        with f.loop(0, self.width) as tap:
            at = f.mul(tap, self.stride)
            low, high = (source.load(f, f.gep(x, at, source.element)) for x in from_)
            one = _word(f, source, low, high, kept, 1)
            f.store(one, tile.element, f.gep(to, tap, tile.element), tile.bytes)
        f.br(done)
        f.block(done)

    def copy_rest(self, from_: tuple[str, str], kept: Value, to: str) -> None:
        """The last neighbours of a line, fewer than a register has."""
        f, source = self.f, self.source
        low, high = (source.load_masked(f, x, self.mask) for x in from_)
        store_masked(f, source.tile, _word(f, source, low, high, kept), to, self.mask)
