"""Convolutions read in place: the input is copied once with its padding, and tiles read the copy.

Packing a window repeats every element once per tap. With few rows in the other operand that costs
more than the product, so (in one or two spatial dimensions) tiles go through pointers:
- rows (channel, tap) lie a table of offsets apart, the same for all positions, if positions are
  counted in the copy: a line of the output is `pitch` long, its last columns are computed in vain
  (so lines share their padding: what is behind one is in front of the next). With a stride a plane
  is copied in phases, each the coordinates of one remainder: neighbours in it are a stride apart.
  With more rows, positions are packed from the copy (conv_pieces): none is in vain;
- for a weight gradient the columns (channel, tap) are lines of the copy, dotted with those of y'.
"""

from graphc.backends.llvm.conv_copy import COPY_WORDS, Copy, emit_lines_epilogue
from graphc.backends.llvm.conv_geometry import HEIGHT, WIDTH, Conv, Window, Words
from graphc.backends.llvm.conv_pieces import emit_pack_pieces, pieces_symbol
from graphc.backends.llvm.gemm import declare_contract
from graphc.backends.llvm.gemm_descriptor import ENTRY, Descriptor, Word
from graphc.backends.llvm.gemm_dot import (
    A_LINE,
    A_SEGMENT,
    B_LINE,
    B_SEGMENT,
    LENGTH,
    LINES,
    SHAPE_WORDS,
)
from graphc.backends.llvm.gemm_pack import RIGHT_PARAMETERS
from graphc.backends.llvm.gemm_plan import (
    Number,
    ceil_div,
    choose,
    clamp,
    declare_plan,
    round_up,
)
from graphc.backends.llvm.gemm_stages import run_symbol
from graphc.backends.llvm.microkernel import Tile
from graphc.backends.llvm.text import Module, Value
from graphc.ir.kernel.blocking import ALIGN
from graphc.ir.kernel.convolution_costs import Costs, costs_of, reads_lines
from graphc.ir.kernel.plan_convolution import DOT_TERMS, window_steps

COPY_ELEMENTS = 1 << 14  # per chunk of the copy


def emit_windows(module: Module, tile: Tile) -> None:
    """Defines, with what it calls, @graphc_contract_window_<acc>(request, window, descriptor):
    k = (channel, tap), n = position. Falls back to the contraction as requested where it costs
    less; so does the other."""
    emit_pack_pieces(module, tile)
    emit_window_parts(module, tile)
    Direct(module, tile, "window").emit_window()


def emit_window_parts(module: Module, tile: Tile) -> None:
    """Defines what it calls."""
    _emit_fill_offsets(module, tile)
    _emit_point_positions(module, tile)
    emit_lines_epilogue(module, tile)


def emit_lines(module: Module, tile: Tile) -> None:
    """Defines, with what it calls, @graphc_contract_dots_<acc>(request, window, descriptor):
    k = position, n = (channel, tap)."""
    _emit_point_taps(module, tile)
    Direct(module, tile, "dots").emit_dots()


def direct_symbol(kind: str, tile: Tile) -> str:
    """The name of one of the two above: "window" or "dots"."""
    return f"@graphc_contract_{kind}_{tile.name}"


def declare_direct(module: Module, kind: str, tile: Tile) -> str:
    """Declares it and returns its name."""
    module.declare(f"declare void {direct_symbol(kind, tile)}(ptr, ptr, ptr)")
    return direct_symbol(kind, tile)


class Direct:
    """One of the two functions."""

    packs_pieces = True  # where that costs less than reading the copy

    def __init__(self, module: Module, tile: Tile, kind: str) -> None:
        self.tile, self.bytes = tile, tile.value_bytes  # of the copy's elements
        self.f = f = module.function(
            f"void {direct_symbol(kind, tile)}(ptr %request, ptr %window, ptr %d)", "", ENTRY
        )
        self.d = d = Descriptor(f, "%d")
        self.r, self.g = Words(f, "%request"), Words(f, "%window")
        d.read(Word.M, Word.N, Word.K, Word.VALUES, Word.POSITIONS)
        self.inputs, self.outputs = self.g.read3(Window.IN), self.g.read3(Window.OUT)
        self.sizes, self.dilations = self.g.read3(Window.WINDOW), self.g.read3(Window.DILATION)
        self.taps, self.channel = self.g.read(Window.TAPS), self.g.read(Window.CHANNEL_STRIDE)
        self.image = self.g.read(Window.IMAGE_STRIDE)
        self.steps = self.g.read3(Window.STEP)
        self.copy = Words(f, f.alloca("i64", COPY_WORDS))
        lows = self.g.read3(Window.LOW)
        # the copy begins at the first coordinate that any tap reads
        spans = [
            f.mul(f.sub(size, 1), dilation)
            for size, dilation in zip(self.sizes, self.dilations, strict=True)
        ]
        self.least = [f.smin(span, 0) for span in spans]
        self.lows = [f.sub(low, least) for low, least in zip(lows, self.least, strict=True)]
        # of a phase: its taps reach so far, in steps
        extents = [
            f.add(out, f.sdiv(f.smax(span, f.sub(0, span)), f.smax(step, 1)))
            for out, span, step in zip(self.outputs, spans, self.steps, strict=True)
        ]
        self.height, self.width = extents[HEIGHT], extents[WIDTH]
        # the padding behind a line is that in front of the next one, as far as every phase has as
        # much
        low, step = f.smax(self.lows[WIDTH], 0), f.smax(self.steps[WIDTH], 1)
        high = f.sub(self.width, ceil_div(f, f.add(self.inputs[WIDTH], low), step))
        span = f.sub(self.width, self.outputs[WIDTH])
        self.shared = f.smin(f.smin(f.sdiv(low, step), span), f.smax(high, 0))
        self.pitch = f.sub(self.width, self.shared)
        self.phase = f.mul(self.height, self.pitch)
        self.plane = f.mul(self.phase, f.mul(self.steps[HEIGHT], self.steps[WIDTH]))

    def _plain(self) -> str:
        """An i1: at most two dimensions, something to compute."""
        f = self.f
        conditions = [f.cmp("eq", self.steps[0], 1)]
        conditions += [f.cmp("eq", words[0], 1) for words in (self.inputs, self.outputs)]
        conditions += [f.cmp("eq", self.sizes[0], 1), f.cmp("eq", self.lows[0], 0)]
        conditions += [f.cmp("sgt", value, 0) for value in (self.taps, self.d[Word.N])]
        conditions += [f.cmp("sgt", value, 0) for value in (self.d[Word.K], self.channel)]
        return self._all(conditions)

    def numbers(self, *values: Value) -> list[Number]:
        """Values as the plan's rules take them."""
        return [Number(self.f, value) for value in values]

    def _all(self, conditions: list[str]) -> str:
        result = conditions[0]
        for condition in conditions[1:]:
            result = self.f.let(f"and i1 {result}, {condition}")
        return result

    def _unless(self, direct: str) -> None:
        """Goes on if direct; else the contraction is made as requested."""
        f = self.f
        go_on, packed = f.label("direct"), f.label("packed")
        f.cond_br(direct, go_on, packed)
        f.block(packed)
        f.call("void", declare_plan(f.module, self.tile), "ptr %d")
        f.call("void", declare_contract(f.module, self.tile), "ptr %d")
        f.ret()
        f.block(go_on)

    def emit_window(self) -> None:
        """Positions by register, rows by a table of offsets."""
        f, d, tile = self.f, self.d, self.tile
        lines = f.add(f.mul(f.sub(self.outputs[HEIGHT], 1), self.pitch), self.outputs[WIDTH])
        padded = round_up(f, f.smax(lines, 1), tile.lanes)
        images = f.sdiv(d[Word.N], f.smax(d[Word.POSITIONS], 1))
        costs = self.costs(padded, images)
        several = f.cmp("sgt", self.taps, 1)
        self._unless(self._all([self._plain(), several, costs.copies().value]))
        self.prepare()
        together = self.together(images)
        k, given = d[Word.K], self._place_copy(together, "false")
        offsets = d.pointer_at(Word.MEMORY)
        d.set_pointer(Word.MEMORY, f.gep(offsets, round_up(f, f.mul(k, 8), ALIGN), "i8"))
        self._fill_offsets(offsets)
        d.set_pointer(Word.COPY, self.copy.pointer)
        self.copy.write_pointer(Copy.OFFSETS, offsets)
        if self.packs_pieces:
            self._unless_pieces(costs, (images, together), given)
        self.copy.write(Copy.VECTORS, f.sdiv(padded, tile.lanes))
        self.copy.write_pointer(Copy.ARGUMENTS, d.pointer_at(Word.ARGUMENTS))
        self.copy.write_pointer(Copy.EPILOGUE, d.pointer_at(Word.EPILOGUE))
        values: dict[Word, Value] = {
            Word.POSITIONS: padded,
            Word.PACK_SCRATCH: 0,
            Word.MOST_STEPS: window_steps(tile.tiling),
            Word.POINTER_COLUMNS: tile.lanes,
            Word.MOST_COLUMNS: tile.tiling.pointed_columns,
            Word.B_STEP_K: 8,
        }
        pointers = {
            Word.TILES: self.tiles(),
            Word.B_STEP: offsets,
            Word.PACK_RIGHT: f"@graphc_point_positions_{tile.name}",
            Word.ARGUMENTS: self.copy.pointer,
            Word.EPILOGUE: f"@graphc_lines_epilogue_{tile.name}",
        }
        self._by_images((images, together), padded, values, pointers, given)
        f.ret()

    def _unless_pieces(
        self, costs: Costs, images: tuple[Value, Value], given: tuple[str, str]
    ) -> None:
        """Goes on if the copy is read in place; else positions are packed from it."""
        f, d = self.f, self.d
        in_place, packed = f.label("in_place"), f.label("pieces")
        f.cond_br(costs.reads().value, in_place, packed)
        f.block(packed)
        pieces = {Word.PACK_RIGHT: pieces_symbol(self.tile)}
        self._by_images(images, d[Word.POSITIONS], {Word.PACK_SCRATCH: 0}, pieces, given)
        f.ret()
        f.block(in_place)

    def _by_images(
        self, images: tuple[Value, Value], positions: Value, values: dict[Word, Value],
        pointers: dict[Word, str], given: tuple[str, str],
    ) -> None:
        """The contraction of images, so many at a time, and so many positions of each."""
        f, (every, together) = self.f, images
        size = f.mul(self.image, self.r.read(Conv.RIGHT_BYTES))
        with f.loop(0, every, together) as first:
            count = f.smin(together, f.sub(every, first))
            self.copy.write_pointer(Copy.SOURCE, f.gep(given[0], f.mul(first, size), "i8"))
            self.copy.write(Copy.PLANES, f.mul(count, self.channels()))
            self._copy()
            these = {Word.FIRST_IMAGE: first, Word.N: f.mul(count, positions)}
            self._contract({**values, **these}, pointers)
        self.restore(given)

    def together(self, images: Value) -> Value:
        """How many images are copied at a time."""
        return images

    def costs(self, padded: Value, images: Value) -> Costs:
        """Of the ways to read so many positions of each image."""
        f, d = self.f, self.d
        lines = f.mul(self.height, f.mul(self.steps[HEIGHT], self.steps[WIDTH]))
        planes, taps = f.mul(images, self.channels()), f.smax(self.taps, 1)
        m, k, padded_, lines_, plane, taps_, height, width, step, planes_ = self.numbers(
            d[Word.M], d[Word.K], padded, lines, self.plane, taps, *self.outputs[1:],
            self.steps[WIDTH], planes,
        )
        return costs_of(
            m, k, padded_, (lines_, plane), taps_, (height, width), step, planes_,
            self.tile.tiling, self.tile.bytes,
        )

    def channels(self) -> Value:
        """Planes of an image in the copy."""
        return self.f.sdiv(self.image, self.f.smax(self.channel, 1))

    def prepare(self) -> None:
        """What comes before the copy of the input."""

    def tiles(self) -> str:
        """The kernels "window"."""
        return self.r.read_pointer(Conv.WINDOWS)

    def _fill_offsets(self, offsets: str) -> None:
        """Where the rows (channel, tap) begin, in bytes: those of a channel as far from the one
        before as its plane is."""
        f = self.f
        with f.loop(0, self.sizes[HEIGHT]) as kh, f.loop(0, self.sizes[WIDTH]) as kw:
            offset = f.mul(self._tap_offset(kh, kw), self.tile.bytes)
            index = f.add(f.mul(kh, self.sizes[WIDTH]), kw)
            f.store(offset, "i64", f.gep(offsets, index, "i64"), 8)
        plane = f.mul(self.plane, self.tile.bytes)
        sizes = (f"i64 {value}" for value in (self.taps, self.d[Word.K], plane))
        f.call("void", f"@graphc_fill_offsets_{self.tile.name}", f"ptr {offsets}", *sizes)

    def _tap_offset(self, kh: Value, kw: Value) -> Value:
        f = self.f
        (line, upper), (column, left) = (
            (f.sdiv(at, self.steps[dim]), f.srem(at, self.steps[dim]))
            for at, dim in (
                (f.sub(f.mul(tap, self.dilations[dim]), self.least[dim]), dim)
                for tap, dim in ((kh, HEIGHT), (kw, WIDTH))
            )
        )
        phase = f.mul(f.add(f.mul(upper, self.steps[WIDTH]), left), self.phase)
        return f.add(phase, f.add(f.mul(line, self.pitch), column))

    def emit_dots(self) -> None:
        """Columns (channel, tap) as lines of the copy, dotted with lines of the left operand."""
        f, d, tile = self.f, self.d, self.tile
        m, k = d[Word.M], d[Word.VALUES]
        height, width = self.outputs[HEIGHT], self.outputs[WIDTH]
        whole = f.cmp("eq", self.pitch, width)  # lines follow each other: one long line
        length = choose(f, whole, f.mul(height, width), width)
        lines = choose(f, whole, 1, height)
        positions = f.mul(height, width)
        padded = round_up(f, f.smax(length, 1), tile.values)
        phases = choose(f, self._all(self._ones()), 0, self.plane)
        numbers = self.numbers(m, padded, lines, positions, phases, f.smax(self.taps, 1))
        cheaper = reads_lines(*numbers).value
        same = f.cmp("ne", self.r.read(Conv.LEFT_SAME), 0)
        # words of several values are copied in one phase
        ones = self._ones() if tile.group > 1 else []
        self._unless(self._all([self._plain(), *ones, same, cheaper]))
        images = f.sdiv(k, positions)
        skip = self._is_plane()
        given = self._place_copy(images, skip)
        with f.when(f.let(f"xor i1 {skip}, true")):
            self._copy()
        jump = f.mul(self.copy.read(Copy.IMAGE), self.bytes)
        left_image = f.mul(d[Word.LEFT_SEGMENT], self.bytes)
        shape = f.alloca("i64", SHAPE_WORDS)
        for index, value in (
            (A_SEGMENT, left_image),
            (B_SEGMENT, jump),
            (LINES, lines),
            (LENGTH, length),
            (A_LINE, f.mul(width, self.bytes)),
            (B_LINE, f.mul(self.pitch, self.bytes)),
        ):
            f.store(value, "i64", f.gep(shape, index, "i64"), 8)
        values: dict[Word, Value] = {
            Word.K: images,
            Word.SEGMENT: f.mul(images, tile.group),
            Word.MOST_STEPS: f.smax(f.sdiv(DOT_TERMS, positions), 1),
            Word.K_QUANTUM: 1,
            Word.LEFT_DIRECT: 1,
            Word.LEFT_STEP: left_image,
            Word.PACK_SCRATCH: 0,
            Word.PACK_SCRATCH_COLUMN: 0,
            Word.POINTER_COLUMNS: 1,
            Word.MOST_COLUMNS: tile.tiling.pointed_columns,
            Word.B_STEP_K: jump,
        }
        pointers = {
            Word.TILES: self.r.read_pointer(Conv.DOTS),
            Word.A_STEP: shape,
            Word.COPY: self.copy.pointer,
            Word.PACK_RIGHT: f"@graphc_point_taps_{tile.name}",
        }
        self._contract(values, pointers)
        self.restore(given)
        f.ret()

    def _ones(self) -> list[str]:
        """Two i1: there is no stride."""
        return [self.f.cmp("eq", self.steps[dim], 1) for dim in (HEIGHT, WIDTH)]

    def _is_plane(self) -> str:
        """An i1: the copy would be equal to the source."""
        f = self.f
        conditions = [f.cmp("ne", self.r.read(Conv.RIGHT_SAME), 0), *self._ones()]
        conditions += [f.cmp("eq", self.lows[dim], 0) for dim in (HEIGHT, WIDTH)]
        conditions += [f.cmp("eq", self.height, self.inputs[HEIGHT])]
        conditions += [f.cmp("eq", self.pitch, self.inputs[WIDTH])]
        return self._all(conditions)

    def _place_copy(self, images: Value, skip: str) -> tuple[str, str]:
        """Makes the copy (or, if `skip`, takes the source for it) the right operand. The copy lies
        where the request's scratch began; `_copy` fills it.

        Returns what the request's words were, for `restore`.
        """
        f, r, copy = self.f, self.r, self.copy
        channels = self.channels()
        planes = f.mul(images, channels)
        source = r.read_pointer(Conv.RIGHT)
        chunk = clamp(f, f.sdiv(COPY_ELEMENTS, f.smax(self.plane, 1)), 1, f.smax(planes, 1))
        for field, value in (
            (Copy.PLANES, planes),
            (Copy.PLANES_PER_CHUNK, chunk),
            (Copy.IN_HEIGHT, self.inputs[HEIGHT]),
            (Copy.IN_WIDTH, self.inputs[WIDTH]),
            (Copy.LOW_HEIGHT, self.lows[HEIGHT]),
            (Copy.LOW_WIDTH, self.lows[WIDTH]),
            (Copy.HEIGHT, self.height),
            (Copy.WIDTH, self.width),
            (Copy.PITCH, self.pitch),
            (Copy.STEP_HEIGHT, self.steps[HEIGHT]),
            (Copy.STEP_WIDTH, self.steps[WIDTH]),
            (Copy.IMAGE, f.mul(channels, self.plane)),
            (Copy.OUT_HEIGHT, self.outputs[HEIGHT]),
            (Copy.OUT_WIDTH, self.outputs[WIDTH]),
        ):
            copy.write(field, value)
        copy.write_pointer(Copy.SOURCE, source)
        copy.write_pointer(Copy.TARGET, source)
        with f.when(f.let(f"xor i1 {skip}, true")):
            # tiles read a register past the last plane
            last = f.mul(planes, self.plane)
            register = self.tile.lanes * self.tile.bytes // self.bytes
            end = f.add(f.add(last, self.shared), register)
            target = self.d.pointer_at(Word.MEMORY)
            memory = f.gep(target, round_up(f, f.mul(end, self.bytes), ALIGN), "i8")
            self.d.set_pointer(Word.MEMORY, memory)
            copy.write_pointer(Copy.TARGET, target)
            # nobody wants these sums, but subnormal numbers that lay there would take their time
            with f.loop(f.add(last, f.sub(self.width, self.pitch)), end) as beside:
                integer = f"i{8 * self.bytes}"
                f.store(0, integer, f.gep(target, beside, integer), self.bytes)
        group = r.read(Conv.RIGHT_GROUP)
        per_group = f.sdiv(channels, f.smax(r.read(Conv.GROUPS), 1))
        r.write(Conv.RIGHT_GROUP, f.mul(f.mul(per_group, self.plane), self.bytes))
        r.write_pointer(Conv.RIGHT, copy.read_pointer(Copy.TARGET))
        return source, group

    def _copy(self) -> None:
        """Fills the copy."""
        f, copy = self.f, self.copy
        planes, chunk = copy.read(Copy.PLANES), copy.read(Copy.PLANES_PER_CHUNK)
        pad, chunks = self.r.read_pointer(Conv.PAD_COPY), ceil_div(f, planes, chunk)
        arguments = (f"ptr {pad}", f"ptr {copy.pointer}", f"i64 {chunks}")
        f.call("void", run_symbol(f.module), *arguments)

    def _contract(self, values: dict[Word, Value], pointers: dict[Word, str]) -> None:
        """Runs the changed request."""
        f, d = self.f, self.d
        for word, value in values.items():
            d[word] = value
        for word, pointer in pointers.items():
            d.set_pointer(word, pointer)
        f.call("void", declare_plan(f.module, self.tile), "ptr %d")
        f.call("void", declare_contract(f.module, self.tile), "ptr %d")

    def restore(self, given: tuple[str, str]) -> None:
        """Makes the request the convolution's again."""
        source, group = given
        self.r.write_pointer(Conv.RIGHT, source)
        self.r.write(Conv.RIGHT_GROUP, group)


def _emit_fill_offsets(module: Module, tile: Tile) -> None:
    """Each entry of a table, from the `taps`-th on, is so much more than that so far before it."""
    f = module.function(
        f"void @graphc_fill_offsets_{tile.name}(ptr %offsets, i64 %taps, i64 %rows, i64 %plane)",
        "internal",
    )
    with f.loop("%taps", "%rows") as row:
        before = f.load(f.gep("%offsets", f.sub(row, "%taps"), "i64"), "i64", 8)
        f.store(f.add(before, "%plane"), "i64", f.gep("%offsets", row, "i64"), 8)
    f.ret()


def _emit_point_positions(module: Module, tile: Tile) -> None:
    """A pack_right: pointers to registers of positions in the copy."""
    f = module.function(
        f"void @graphc_point_positions_{tile.name}({RIGHT_PARAMETERS})", "internal"
    )
    c = Words(f, Descriptor(f, "%d").pointer_at(Word.COPY))
    vectors, image = c.read(Copy.VECTORS), c.read(Copy.IMAGE)
    first = f.floordiv("%n", tile.lanes)
    with f.loop(0, f.floordiv(f.add("%columns", tile.lanes - 1), tile.lanes)) as index:
        number = f.add(first, index)
        at = f.mul(f.srem(number, vectors), tile.lanes)
        offset = f.add(f.mul(f.sdiv(number, vectors), image), at)
        place = f.gep("%base", offset, tile.element)
        f.store(place, "ptr", f.gep("%to", index, "ptr"), 8)
    f.ret()


def _emit_point_taps(module: Module, tile: Tile) -> None:
    """A pack_right: pointers to the first line of each (channel, tap) in the copy."""
    f = module.function(
        f"void @graphc_point_taps_{tile.name}({RIGHT_PARAMETERS})", "internal"
    )
    d = Descriptor(f, "%d")
    c, g = Words(f, d.pointer_at(Word.COPY)), Words(f, d.pointer_at(Word.GEOMETRY))
    pitch, taps, width = c.read(Copy.PITCH), g.read(Window.TAPS), g.read(Window.WINDOW, WIDTH)
    phase = f.mul(c.read(Copy.HEIGHT), pitch)
    steps = [c.read(field) for field in (Copy.STEP_HEIGHT, Copy.STEP_WIDTH)]
    plane = f.mul(phase, f.mul(*steps))
    dilations = [g.read(Window.DILATION, dim) for dim in (HEIGHT, WIDTH)]
    with f.loop(0, "%columns") as column:
        number = f.add("%n", column)
        tap = f.srem(number, taps)
        line, left = (
            f.mul(at, dilation)
            for at, dilation in (
                (f.sdiv(tap, width), dilations[0]), (f.srem(tap, width), dilations[1]),
            )
        )
        at = f.add(f.mul(f.srem(line, steps[0]), steps[1]), f.srem(left, steps[1]))
        offset = f.add(f.mul(at, phase), f.mul(f.sdiv(line, steps[0]), pitch))
        offset = f.add(offset, f.sdiv(left, steps[1]))
        offset = f.add(offset, f.mul(f.sdiv(number, taps), plane))
        place = f.gep("%base", offset, tile.value_element)
        f.store(place, "ptr", f.gep("%to", column, "ptr"), 8)
    f.ret()
