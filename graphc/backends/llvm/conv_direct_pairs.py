"""Convolutions of pairs read in place: conv_direct, where a step of k is a word of two channels.

The copy's elements are such words, and so are those of a copy of the weights, which tiles read
where it lies.
"""

from graphc.backends.llvm.conv_copy import Copy
from graphc.backends.llvm.conv_copy_pairs import WEIGHTS_WORDS, Weights, pair_weights_symbol
from graphc.backends.llvm.conv_direct import COPY_ELEMENTS, Direct, emit_window_parts
from graphc.backends.llvm.conv_geometry import HEIGHT, WIDTH, Conv, Words
from graphc.backends.llvm.gemm_descriptor import Word
from graphc.backends.llvm.gemm_pack import Source
from graphc.backends.llvm.gemm_plan import ceil_div, choose, clamp, round_up, value_of
from graphc.backends.llvm.gemm_stages import run_symbol
from graphc.backends.llvm.microkernel import (
    ROW_CLASSES,
    Tile,
    emit_kernel,
    emit_table,
    tile_symbol,
)
from graphc.backends.llvm.text import Module, Value
from graphc.ir.kernel.blocking import ALIGN
from graphc.ir.kernel.convolution_costs import Costs
from graphc.ir.kernel.plan_convolution import window_steps
from graphc.ir.kernel.plan_pairs import images_together, pair_costs


def emit_pair_windows(module: Module, tile: Tile) -> None:
    """Defines @graphc_contract_window_<acc>, as conv_direct does for steps of one value, and the
    kernels that read words through pointers."""
    kernels = []
    for rows in ROW_CLASSES:
        for width in tile.widths:
            emit_kernel(module, tile, rows, width, by_pointers=True, linkage="internal")
            kernels.append(tile_symbol(tile, rows, width, "window"))
    emit_table(module, _windows_table(tile), kernels, "internal")
    emit_window_parts(module, tile)
    _Pairs(module, tile, "window").emit_window()


def _windows_table(tile: Tile) -> str:
    """All kernels "window" by [row class][width]."""
    return f"@graphc_windows_{tile.name}"


class _Pairs(Direct):
    packs_pieces = False

    def __init__(self, module: Module, tile: Tile, kind: str) -> None:
        super().__init__(module, tile, kind)
        f = self.f
        self.bytes = tile.bytes
        self.of_group = f.sdiv(self.d[Word.VALUES], f.smax(self.taps, 1))
        self.pairs, self.groups = ceil_div(f, self.of_group, 2), self.d[Word.BATCH]
        self.left = self.r.read_pointer(Conv.LEFT)
        self.left_group = self.r.read(Conv.LEFT_GROUP)

    def costs(self, padded: Value, images: Value) -> Costs:
        f = self.f
        lines = f.mul(self.height, f.mul(self.steps[HEIGHT], self.steps[WIDTH]))
        taps, images = f.smax(self.taps, 1), f.smax(images, 1)
        m, channels, padded_, lines_, plane, taps_, height, width, step, images_, planes = (
            self.numbers(
                self.d[Word.M], self.of_group, padded, lines, self.plane, taps, *self.outputs[1:],
                self.steps[WIDTH], images, f.mul(images, self.channels()),
            )
        )
        windows, packed = pair_costs(
            m, channels, padded_, (lines_, plane), taps_, (height, width), step, images_, planes,
            self.tile.tiling,
        )
        return Costs(windows, packed, packed)

    def channels(self) -> Value:
        return self.f.mul(self.groups, self.pairs)

    def together(self, images: Value) -> Value:
        """See images_together. The bits are the same either way where sums are those of one block
        of k."""
        f, most = self.f, window_steps(self.tile.tiling)
        image = f.mul(f.mul(self.channels(), self.plane), self.bytes)
        every, size = self.numbers(images, image)
        few = value_of(images_together(every, size, self.tile.tiling))
        alone = f.cmp("eq", self.r.read(Conv.WORKERS), 1)
        alone = f.let(f"and i1 {alone}, {f.cmp('sle', self.d[Word.K], most)}")
        return choose(f, alone, few, images)

    def tiles(self) -> str:
        return _windows_table(self.tile)

    def prepare(self) -> None:
        """Copies the weights, and makes their words the left operand."""
        f, d = self.f, self.d
        m, k = d[Word.M], f.mul(self.pairs, self.taps)
        rows, target = f.mul(self.groups, m), d.pointer_at(Word.MEMORY)
        size = f.mul(f.mul(m, k), self.bytes)
        weights = Words(f, f.alloca("i64", WEIGHTS_WORDS))
        chunk = clamp(f, f.sdiv(COPY_ELEMENTS, f.smax(k, 1)), 1, f.smax(rows, 1))
        for field, value in (
            (Weights.GROUP, self.left_group), (Weights.ROWS, m), (Weights.ALL_ROWS, rows),
            (Weights.ROWS_PER_CHUNK, chunk), (Weights.CHANNELS, self.of_group),
        ):
            weights.write(field, value)
        weights.write_pointer(Weights.SOURCE, self.left)
        weights.write_pointer(Weights.TARGET, target)
        weights.write_pointer(Weights.GEOMETRY, self.g.pointer)
        copy = pair_weights_symbol(Source(self.tile.step.left, self.tile))
        f.module.declare(f"declare void {copy}(ptr, i64)")
        arguments = (f"ptr {copy}", f"ptr {weights.pointer}", f"i64 {ceil_div(f, rows, chunk)}")
        f.call("void", run_symbol(f.module), *arguments)
        size_of_all = round_up(f, f.mul(self.groups, size), ALIGN)
        d.set_pointer(Word.MEMORY, f.gep(target, size_of_all, "i8"))
        self.r.write_pointer(Conv.LEFT, target)
        self.r.write(Conv.LEFT_GROUP, size)
        self.copy.write(Copy.CHANNELS, self.of_group)
        values = f.mul(k, self.tile.group)
        for word, value in (
            (Word.K, k), (Word.VALUES, values), (Word.SEGMENT, values), (Word.LEFT_DIRECT, 1),
            (Word.LEFT_M, values), (Word.LEFT_K, 1),
        ):
            d[word] = value

    def restore(self, given: tuple[str, str]) -> None:
        super().restore(given)
        self.r.write_pointer(Conv.LEFT, self.left)
        self.r.write(Conv.LEFT_GROUP, self.left_group)
