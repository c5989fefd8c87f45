"""Convolutions as contractions whose right operand is a window, packed on the fly (implicit GEMM).

Three drivers per accumulator type, void (request):
    @graphc_conv_<acc>              y[o, (image, position)] = w[o, (c, tap)] * window of x
    @graphc_conv_input_grad_<acc>   x'[c, (image, position)] = w[c, (o, tap)] * window of y'
    @graphc_conv_weight_grad_<acc>  w'[o, (c, tap)] = y'[o, (image, position)] * window of x

An input gradient with a stride is one contraction per phase (see conv_phase).
"""

from collections.abc import Mapping, Sequence

from graphc.backends.llvm.conv_direct import declare_direct
from graphc.backends.llvm.conv_geometry import (
    WINDOW_WORDS,
    Conv,
    Window,
    Words,
    product,
)
from graphc.backends.llvm.conv_planes import asks_for_planes, emit_planes, planes_symbol
from graphc.backends.llvm.conv_tables import table_bytes
from graphc.backends.llvm.gemm import declare_contract
from graphc.backends.llvm.gemm_descriptor import ENTRY, Descriptor, Word, begin_request
from graphc.backends.llvm.gemm_plan import ceil_div, declare_plan
from graphc.backends.llvm.microkernel import Tile
from graphc.backends.llvm.text import Function, Module, Value
from graphc.ir.kernel.plan_convolution import DIRECT_POSITIONS, reads_words

BASES = "@graphc_conv_bases"
BY_PLANES = "conv_by_planes"


def conv_symbol(kind: str, tile: Tile) -> str:
    """The driver of a contraction kind "conv", "conv_input_grad" or "conv_weight_grad"; or
    BY_PLANES."""
    return f"@graphc_{kind}_{tile.name}"


def declare_conv(module: Module, kind: str, tile: Tile) -> str:
    """Declares a driver and returns its name."""
    module.declare(f"declare void {conv_symbol(kind, tile)}(ptr)")
    return conv_symbol(kind, tile)


def emit_bases(module: Module) -> None:
    """Where a group of each operand begins; `operands` is the request."""
    f = module.function(f"void {BASES}(ptr %request, i64 %b, ptr %out)", "internal", ENTRY)
    r = Words(f, "%request")
    for index, (field, stride) in enumerate(
        ((Conv.LEFT, Conv.LEFT_GROUP), (Conv.RIGHT, Conv.RIGHT_GROUP))
    ):
        base = f.gep(r.read_pointer(field), f.mul("%b", r.read(stride)), "i8")
        f.store(base, "ptr", f.gep("%out", index, "ptr"), 8)
    f.ret()


class Request:
    """A convolution's request, read in the entry block of its driver."""

    def __init__(self, f: Function, tile: Tile) -> None:
        self.f, self.tile = f, tile
        self.words = r = Words(f, "%request")
        self.input, self.window = r.read3(Conv.INPUT), r.read3(Conv.WINDOW)
        self.output, self.stride = r.read3(Conv.OUTPUT), r.read3(Conv.STRIDE)
        self.pad, self.dilation = r.read3(Conv.PAD), r.read3(Conv.DILATION)
        self.batch, self.groups = r.read(Conv.BATCH), r.read(Conv.GROUPS)
        self.channels, self.outputs = r.read(Conv.CHANNELS), r.read(Conv.OUTPUTS)
        self.pixels, self.positions = product(f, self.input), product(f, self.output)
        self.taps = product(f, self.window)
        self.filter = f.mul(self.channels, self.taps)  # weights of one output channel
        self.geometry = Words(f, f.alloca("i64", WINDOW_WORDS))

    def set_groups(self, left: Value, right: Value) -> None:
        """Notes the distances of groups, given in elements."""
        f, r = self.f, self.words
        r.write(Conv.LEFT_GROUP, f.mul(left, r.read(Conv.LEFT_BYTES)))
        r.write(Conv.RIGHT_GROUP, f.mul(right, r.read(Conv.RIGHT_BYTES)))

    def write_window(self, fields: Mapping[Window, Value | Sequence[Value]]) -> None:
        """Fills the description of the right operand."""
        for field, value in fields.items():
            if isinstance(value, Sequence) and not isinstance(value, str):
                for dim, word in enumerate(value):
                    self.geometry.write(field, word, dim)
            else:
                self.geometry.write(field, value)

    def reads_left(self, segment: Value) -> Value:
        """1 where the left operand, whose segments of k are so long, may be read where it lies."""
        f, same = self.f, self.words.read(Conv.LEFT_SAME)
        if self.tile.group == 1:
            return same
        whole = f.cmp("eq", f.srem(segment, self.tile.group), 0)
        return f.let(f"and i64 {same}, {f.let(f'zext i1 {whole} to i64')}")

    def table(self, rows: Value) -> Value:
        """Bytes of a packer's tables for so many rows of this window."""
        f = self.f
        sizes = f.add(f.add(self.window[0], self.window[1]), self.window[2])
        return table_bytes(f, self.taps, sizes, rows)

    def write_input_window(self) -> None:
        """The window of x that y's positions see."""
        self.write_window(
            {
                Window.CHANNEL_STRIDE: self.pixels,
                Window.IMAGE_STRIDE: self.f.mul(
                    self.f.mul(self.groups, self.channels), self.pixels
                ),
                Window.TAPS: self.taps,
                Window.IN: self.input,
                Window.WINDOW: self.window,
                Window.OUT: self.output,
                Window.STEP: self.stride,
                Window.LOW: self.pad,
                Window.DILATION: self.dilation,
                Window.WEIGHT_START: 0,
                Window.WEIGHT_ROW: self.filter,
                Window.WEIGHT_CHANNEL: self.taps,
                Window.WEIGHT_TAP: self.tap_strides(),
            }
        )

    def tap_strides(self) -> list[Value]:
        """How far apart the taps lie in the weights, by dimension."""
        _, height, width = self.window
        return [self.f.mul(height, width), width, 1]

    def forward_words(self) -> dict[Word, Value]:
        """What a `conv` asks of its contraction."""
        return {
            Word.M: self.outputs,
            Word.N: self.f.mul(self.batch, self.positions),
            Word.VALUES: self.filter,
            Word.LEFT_DIRECT: self.reads_left(self.filter),
            Word.LEFT_M: self.filter,
            Word.LEFT_K: 1,
            Word.SEGMENT: self.filter,
            Word.K_QUANTUM: 1,
            Word.POSITIONS: self.positions,
            Word.EPILOGUE_M: self.outputs,
        }

    def contract(
        self,
        kind: str,
        words: dict[Word, Value],
        epilogue: str | None = None,
        arguments: str | None = None,
    ) -> None:
        """Runs the contraction of the window, a kind of conv_direct.direct_symbol.

        By default with the kernel's own epilogue.
        """
        f, d = self.f, self.describe(words, epilogue, arguments)
        if kind == "window" and not reads_words(self.tile.step):
            f.call("void", declare_plan(f.module, self.tile), f"ptr {d.pointer}")
            f.call("void", declare_contract(f.module, self.tile), f"ptr {d.pointer}")
            return
        places = ("ptr %request", f"ptr {self.geometry.pointer}", f"ptr {d.pointer}")
        f.call("void", declare_direct(f.module, kind, self.tile), *places)

    def describe(
        self, words: dict[Word, Value], epilogue: str | None = None, arguments: str | None = None
    ) -> Descriptor:
        """The request of a contraction of the window."""
        f, r = self.f, self.words
        pointers = {
            Word.ARGUMENTS: arguments or r.read_pointer(Conv.ARGUMENTS),
            Word.OPERANDS: "%request",
            Word.BASES: BASES,
            Word.PACK_LEFT: r.read_pointer(Conv.PACK_LEFT),
            Word.PACK_RIGHT: r.read_pointer(Conv.PACK_RIGHT),
            Word.EPILOGUE: epilogue or r.read_pointer(Conv.EPILOGUE),
            Word.GEOMETRY: self.geometry.pointer,
            Word.MEMORY: r.read_pointer(Conv.MEMORY),
        }
        if self.tile.group == 1:
            pointers[Word.TILES] = r.read_pointer(Conv.TILES)
        common = {
            Word.BATCH: self.groups,
            Word.K: ceil_div(f, words[Word.VALUES], self.tile.group),
            Word.TERMS: words[Word.VALUES],
            Word.LEFT_STEP: self.tile.bytes,
            Word.MOST_STEPS: self.tile.tiling.block_k,
            Word.WORKERS: r.read(Conv.WORKERS),
        }
        return begin_request(f, {**common, **words}, pointers)


def emit_forward(module: Module, tile: Tile) -> None:
    """Defines the driver of `conv`."""
    emit_bases(module)
    f = module.function(f"void {conv_symbol('conv', tile)}(ptr %request)", "", ENTRY)
    r = Request(f, tile)
    r.set_groups(f.mul(r.outputs, r.filter), f.mul(r.channels, r.pixels))
    r.write_input_window()
    scratch = r.table(tile.tiling.block_k * tile.group)
    r.contract("window", r.forward_words() | {Word.PACK_SCRATCH: scratch})
    f.ret()


def emit_forward_by_planes(module: Module, tile: Tile) -> None:
    """Defines the driver of a `conv` whose groups may be done plane by plane."""
    emit_planes(module, tile)
    f = module.function(f"void {conv_symbol(BY_PLANES, tile)}(ptr %request)", "", ENTRY)
    r = Words(f, "%request")
    planes, product_ = f.label("planes"), f.label("product")
    f.cond_br(asks_for_planes(f, r), planes, product_)
    f.block(planes)
    f.call("void", planes_symbol(tile), "ptr %request")
    f.ret()
    f.block(product_)
    f.call("void", declare_conv(module, "conv", tile), "ptr %request")
    f.ret()


def emit_weight_grad(module: Module, tile: Tile) -> None:
    """Defines the driver of `conv_weight_grad`."""
    emit_bases(module)
    f = module.function(f"void {conv_symbol('conv_weight_grad', tile)}(ptr %request)", "", ENTRY)
    r = Request(f, tile)
    r.set_groups(f.mul(r.outputs, r.positions), f.mul(r.channels, r.pixels))
    r.write_input_window()
    square = tile.lanes * tile.bytes
    large = f.let(f"zext i1 {f.cmp('sge', r.positions, DIRECT_POSITIONS)} to i64")
    r.contract(
        "dots",
        {
            Word.M: r.outputs,
            Word.N: r.filter,
            Word.VALUES: f.mul(r.batch, r.positions),
            Word.LEFT_DIRECT: f.let(f"and i64 {large}, {r.reads_left(r.positions)}"),
            Word.LEFT_M: r.positions,
            Word.LEFT_K: 1,
            Word.SEGMENT: r.positions,
            Word.LEFT_SEGMENT: f.mul(f.mul(r.groups, r.outputs), r.positions),
            Word.K_QUANTUM: tile.lanes,
            Word.PACK_SCRATCH: f.add(r.table(tile.lanes), square * tile.lanes),
            Word.PACK_SCRATCH_COLUMN: square + 16,
            Word.POSITIONS: r.filter,
            Word.EPILOGUE_M: r.outputs,
        },
    )
    f.ret()
