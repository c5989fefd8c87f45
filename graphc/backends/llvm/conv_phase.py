"""The input gradient of a convolution, stride and all, as contractions at stride 1.

An input coordinate i gets y'[(i + pad - tap * dilation) / stride] for the taps that divide. All
coordinates of one remainder i % stride (a phase) see the same taps, which are evenly spaced, and
neighbours in a phase see neighbours in y'. So every phase is a plain window over y'. With stride 1
there is one phase, and the kernel's epilogue is called directly; otherwise phases are scattered
into scratch, and the epilogue has a pass of its own.
"""

from graphc.backends.llvm.conv import Request, conv_symbol, emit_bases
from graphc.backends.llvm.conv_geometry import DEPTH, HEIGHT, WIDTH, Conv, Window, Words, product
from graphc.backends.llvm.gemm_descriptor import ENTRY, Word
from graphc.backends.llvm.gemm_plan import ceil_div, clamp, round_up
from graphc.backends.llvm.gemm_stages import run_symbol
from graphc.backends.llvm.microkernel import Tile
from graphc.backends.llvm.text import Function, Module, Value
from graphc.ir.kernel.blocking import ALIGN

PASS_ELEMENTS = 1 << 14  # per chunk of the epilogue's own pass


def emit_input_grad(module: Module, tile: Tile) -> None:
    """Defines the driver of `conv_input_grad` and its helpers."""
    emit_bases(module)
    _emit_phase(module)
    _emit_phase_product(module, tile)
    _emit_scatter(module, tile)
    _emit_epilogue_pass(module, tile)
    f = module.function(f"void {conv_symbol('conv_input_grad', tile)}(ptr %request)", "", ENTRY)
    r = Request(f, tile)
    r.set_groups(f.mul(r.outputs, r.filter), f.mul(r.outputs, r.positions))
    phases = product(f, r.stride)
    product_symbol = f"@graphc_phase_product_{tile.name}"
    single, several = f.label("single"), f.label("several")
    f.cond_br(f.cmp("eq", phases, 1), single, several)
    f.block(single)
    r.words.write_pointer(Conv.SCRATCH, "null")
    f.call("void", product_symbol, "ptr %request", "i64 0", "i64 0", "i64 0")
    f.ret()
    f.block(several)
    channels = f.mul(r.channels, r.groups)
    size = f.mul(f.mul(f.mul(r.batch, channels), r.pixels), tile.bytes)
    memory = r.words.read_pointer(Conv.MEMORY)
    r.words.write_pointer(Conv.SCRATCH, memory)
    r.words.write_pointer(Conv.MEMORY, f.gep(memory, round_up(f, size, ALIGN), "i8"))
    with (
        f.loop(0, r.stride[DEPTH]) as depth,
        f.loop(0, r.stride[HEIGHT]) as height,
        f.loop(0, r.stride[WIDTH]) as width,
    ):
        values = (f"i64 {v}" for v in (depth, height, width))
        f.call("void", product_symbol, "ptr %request", *values)
    rows = clamp(f, f.sdiv(PASS_ELEMENTS, f.smax(r.pixels, 1)), 1, f.smax(channels, 1))
    r.words.write(Conv.ROWS, rows)
    chunks = f.mul(r.batch, ceil_div(f, channels, rows))
    callee = f"@graphc_epilogue_pass_{tile.name}"
    with f.when(f.cmp("sgt", r.pixels, 0)):
        arguments = (f"ptr {callee}", "ptr %request", f"i64 {chunks}")
        f.call("void", run_symbol(module), *arguments)
    f.ret()


def _emit_phase(module: Module) -> None:
    """@graphc_phase(stride, dilation, pad, window, input, phase, out): one dimension of a phase.

    out: taps, first tap, tap spacing, positions, low, dilation of the window over y'.
    """
    f = module.function(
        "void @graphc_phase(i64 %s, i64 %d, i64 %pad, i64 %w, i64 %in, i64 %phase, ptr %out)",
        "internal",
        ENTRY,
    )
    spacing = _first_multiple(f, 1, "0")
    first = _first_multiple(f, 0, f.add("%phase", "%pad"))
    found = f.cmp("slt", first, f.smin(spacing, "%w"))
    count = f.add(f.sdiv(f.sub(f.sub("%w", 1), first), spacing), 1)
    taps = f.let(f"select i1 {found}, i64 {count}, i64 0")
    inside = f.smax(f.sub("%in", "%phase"), 0)
    start = f.sdiv(f.sub(f.add("%phase", "%pad"), f.mul(first, "%d")), "%s")
    step = f.sdiv(f.mul(spacing, "%d"), "%s")
    results = (taps, first, spacing, ceil_div(f, inside, "%s"), f.sub(0, start), f.sub(0, step))
    for index, value in enumerate(results):
        f.store(value, "i64", f.gep("%out", index, "i64"), 8)
    f.ret()


def _first_multiple(f: Function, low: int, offset: Value) -> str:
    """The first tap from `low` to the stride for which the stride divides offset - tap * dilation;
    the stride itself if there is none (never for offset 0)."""
    loop = f.carry_loop(low, f.add("%s", low), 1, [("i64", "%s")])
    tap = f.sub(f.add("%s", 2 * low - 1), loop.index)  # downwards: the smallest is found last
    rest = f.srem(f.sub(offset, f.mul(tap, "%d")), "%s")
    divides = f.cmp("eq", rest, 0)
    chosen = f.let(f"select i1 {divides}, i64 {tap}, i64 {loop.values[0]}")
    return loop.close([chosen])[0]


def _emit_phase_product(module: Module, tile: Tile) -> None:
    """The contraction of one phase."""
    f = module.function(
        f"void @graphc_phase_product_{tile.name}"
        "(ptr %request, i64 %depth, i64 %height, i64 %width)",
        "internal",
        ENTRY,
    )
    r = Request(f, tile)
    taps, grid = _write_phase_window(f, r, ("%depth", "%height", "%width"))
    scratch = r.words.read_pointer(Conv.SCRATCH)
    direct = f.let(f"icmp eq ptr {scratch}, null")
    own, arguments = r.words.read_pointer(Conv.EPILOGUE), r.words.read_pointer(Conv.ARGUMENTS)
    scatter = f"@graphc_scatter_{tile.name}"
    k = f.mul(r.outputs, taps)
    r.contract(
        "window",
        {
            Word.M: r.channels,
            Word.N: f.mul(r.batch, grid),
            Word.VALUES: k,
            Word.SEGMENT: k,
            Word.K_QUANTUM: 1,
            Word.PACK_SCRATCH: r.table(tile.tiling.block_k * tile.group),
            Word.POSITIONS: grid,
            Word.EPILOGUE_M: r.channels,
        },
        epilogue=f.let(f"select i1 {direct}, ptr {own}, ptr {scatter}"),
        arguments=f.let(f"select i1 {direct}, ptr {arguments}, ptr %request"),
    )
    f.ret()


def _write_phase_window(f: Function, r: Request, phase: tuple[str, ...]) -> tuple[Value, Value]:
    """The window of y' that a phase's positions see; returns (taps, positions of an image)."""
    fields: list[list[str]] = []
    for dim in range(3):
        out = f.alloca("i64", 6)
        given = (r.stride, r.dilation, r.pad, r.window, r.input)
        values = (f"i64 {words[dim]}" for words in given)
        f.call("void", "@graphc_phase", *values, f"i64 {phase[dim]}", f"ptr {out}")
        fields.append([f.load(f.gep(out, index, "i64"), "i64", 8) for index in range(6)])
    columns = (list(column) for column in zip(*fields, strict=True))
    taps, firsts, spacings, grid, lows, dilations = columns
    strides = r.tap_strides()
    start: Value = 0
    for first, stride in zip(firsts, strides, strict=True):
        start = f.add(start, f.mul(first, stride))
    count = product(f, taps)
    steps = [str(f.mul(a, b)) for a, b in zip(spacings, strides, strict=True)]
    r.write_window(
        {
            Window.CHANNEL_STRIDE: r.positions,
            Window.IMAGE_STRIDE: f.mul(f.mul(r.groups, r.outputs), r.positions),
            Window.TAPS: count,
            Window.IN: r.output,
            Window.WINDOW: taps,
            Window.OUT: grid,
            Window.STEP: ["1", "1", "1"],
            Window.LOW: lows,
            Window.DILATION: dilations,
            Window.WEIGHT_START: start,
            Window.WEIGHT_ROW: r.taps,
            Window.WEIGHT_CHANNEL: r.filter,
            Window.WEIGHT_TAP: steps,
        }
    )
    for dim in range(3):
        r.words.write(Conv.PHASE, phase[dim], dim)
        r.words.write(Conv.GRID, grid[dim], dim)
    return count, product(f, grid)


def _emit_scatter(module: Module, tile: Tile) -> None:
    """The epilogue of a phase: its positions, spread by the stride, in [image][channel][pixel]."""
    f = module.function(
        f"void @graphc_scatter_{tile.name}(ptr %request, i64 %b, i64 %m, i64 %rows, i64 %n, "
        "i64 %columns, ptr %tile, i64 %pitch)",
        "internal",
    )
    r = Words(f, "%request")
    element = tile.element
    sizes, strides = r.read3(Conv.INPUT), r.read3(Conv.STRIDE)
    phase, grid = r.read3(Conv.PHASE), r.read3(Conv.GRID)
    pixels = product(f, sizes)
    channels = f.mul(r.read(Conv.CHANNELS), r.read(Conv.GROUPS))
    image = f.mul(f.add(f.mul("%b", channels), "%m"), pixels)
    base = f.gep(r.read_pointer(Conv.SCRATCH), image, element)
    end = f.add("%n", "%columns")
    first = f.sdiv("%n", grid[WIDTH])
    last = f.sdiv(f.sub(end, 1), grid[WIDTH])
    with f.loop(first, f.add(last, 1)) as line:  # a row of the phase's grid
        start = f.mul(line, grid[WIDTH])
        low, high = f.smax(start, "%n"), f.smin(f.add(start, grid[WIDTH]), end)
        depth = f.add(f.mul(f.sdiv(line, grid[HEIGHT]), strides[DEPTH]), phase[DEPTH])
        height = f.add(f.mul(f.srem(line, grid[HEIGHT]), strides[HEIGHT]), phase[HEIGHT])
        row = f.mul(f.add(f.mul(depth, sizes[HEIGHT]), height), sizes[WIDTH])
        at = f.add(row, f.add(phase[WIDTH], f.mul(f.sub(low, start), strides[WIDTH])))
        count = f.sub(high, low)
        with f.loop(0, "%rows") as index:
            source = f.gep("%tile", f.add(f.mul(index, "%pitch"), f.sub(low, "%n")), element)
            target = f.gep(base, f.add(f.mul(index, pixels), at), element)
            with f.loop(0, count) as column:
                value = f.load(f.gep(source, column, element), element, tile.bytes)
                place = f.gep(target, f.mul(column, strides[WIDTH]), element)
                f.store(value, element, place, tile.bytes)
    f.ret()


def _emit_epilogue_pass(module: Module, tile: Tile) -> None:
    """One chunk of the kernel's epilogue over the scratch: some channels of one image."""
    f = module.function(
        f"void @graphc_epilogue_pass_{tile.name}(ptr %request, i64 %chunk)", "internal"
    )
    r = Words(f, "%request")
    pixels = product(f, r.read3(Conv.INPUT))
    channels = f.mul(r.read(Conv.CHANNELS), r.read(Conv.GROUPS))
    rows = r.read(Conv.ROWS)
    per_image = ceil_div(f, channels, rows)
    image, part = f.sdiv("%chunk", per_image), f.srem("%chunk", per_image)
    m = f.mul(part, rows)
    count = f.smin(f.sub(channels, m), rows)
    at = f.mul(f.add(f.mul(image, channels), m), pixels)
    tile_at = f.gep(r.read_pointer(Conv.SCRATCH), at, tile.element)
    f.call(
        "void",
        r.read_pointer(Conv.EPILOGUE),
        f"ptr {r.read_pointer(Conv.ARGUMENTS)}",
        *(f"i64 {v}" for v in (image, m, count, 0, pixels)),
        f"ptr {tile_at}",
        f"i64 {pixels}",
    )
    f.ret()
