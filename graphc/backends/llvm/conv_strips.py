"""Convolutions strip by strip, their lines copied with the channels last, their weights in panels:
the rule is in `ir/kernel/plan_strips.py`. A kernel has its shape in words, by which the code that
all share goes (`conv_strips_driver.py`), and a table of its tiles (`conv_strips_tile.py`).
"""

from __future__ import annotations

from graphc.backends.llvm.conv_geometry import Words
from graphc.backends.llvm.conv_strips_driver import strips_symbol
from graphc.backends.llvm.conv_strips_line import Strips, emit_shape, tile_kinds
from graphc.backends.llvm.conv_strips_tile import Shape
from graphc.backends.llvm.gemm_arguments import Arguments
from graphc.backends.llvm.gemm_kernel import SCRATCH, WORKERS
from graphc.backends.llvm.microkernel import Tile
from graphc.backends.llvm.text import Function, Module
from graphc.ir.kernel import Convolution
from graphc.ir.kernel.blocking import MOST_SLOTS, quotient_up
from graphc.ir.kernel.plan_convolution import strips_plan


def strip_libraries(c: Convolution, tile: Tile) -> list[str]:
    """Kinds of libraries."""
    _, _, plan = strips_plan(c, tile.machine)
    return ["conv_strips", "transpose", *tile_kinds(plan.spans, plan.vectors, plan.asks)]


def emit_strips(
    module: Module, c: Convolution, tile: Tile, symbol: str, f: Function, arguments: Arguments,
    epilogue: tuple[str, str],
) -> None:
    """The rest of a kernel's entry, which is `f`; `epilogue`: with its arguments."""
    request = Words(f, f.alloca("i64", len(Strips)))
    shape, tiles = _tables(module, c, tile, symbol)
    for field, pointer in (
        (Strips.LEFT, arguments.buffer(c.left.buffer)),
        (Strips.RIGHT, arguments.buffer(c.right.buffer)),
        (Strips.EPILOGUE, epilogue[0]), (Strips.ARGUMENTS, epilogue[1]),
        (Strips.MEMORY, f.load(f.gep("%status", SCRATCH, "ptr"), "ptr", 8)),
        (Strips.SHAPE, shape), (Strips.KERNELS, tiles),
    ):
        request.write_pointer(field, pointer)
    request.write(Strips.WORKERS, f.load(f.gep("%status", WORKERS, "i64"), "i64", 8))
    module.declare(f"declare void {strips_symbol(tile)}(ptr)")
    f.call("void", strips_symbol(tile), f"ptr {request.pointer}")
    f.ret()


def _tables(module: Module, c: Convolution, tile: Tile, symbol: str) -> tuple[str, str]:
    """The words of a shape, and a tile for each of its spans."""
    w, images, plan = strips_plan(c, tile.machine)
    g = c.geometry
    backward = c.kind == "conv_input_grad"
    channels, outputs = g.in_channels // g.groups, g.out_channels // g.groups
    far = channels * w.taps  # from filter to filter
    row, next_channel = (w.taps, far) if backward else (far, w.taps)
    if backward:
        channels, outputs = outputs, channels
    depth, columns = quotient_up(channels, tile.group), plan.vectors * tile.lanes
    chunks = images * g.groups * plan.strips
    fields = {
        Shape.CHUNKS: chunks, Shape.WEIGHT_CHUNKS: g.groups * plan.panels,
        Shape.GROUPS: g.groups, Shape.CHANNELS: channels,
        Shape.OUTPUTS: outputs, Shape.DEPTH: depth, Shape.TAPS: w.taps,
        Shape.WEIGHT_ROW: row, Shape.WEIGHT_CHANNEL: next_channel,
        Shape.WEIGHT_STEPS: w.taps if backward or tile.group > 1 else far,
        Shape.TURNED: int(backward),
        Shape.PANELS: plan.panels, Shape.PANEL: w.taps * depth * columns,
        Shape.VECTORS: plan.vectors, Shape.HEIGHT: w.input[1], Shape.WIDTH: w.input[2],
        Shape.OUT_HEIGHT: w.out[1], Shape.OUT_WIDTH: w.out[2], Shape.WINDOW: w.size[1],
        Shape.WINDOW_WIDTH: w.size[2], Shape.STEP: w.step[1], Shape.STEP_WIDTH: w.step[2],
        Shape.LOW: w.low[1], Shape.LOW_WIDTH: w.low[2], Shape.DILATION: w.dilation[1],
        Shape.LINES: plan.lines, Shape.STRIPS: plan.strips, Shape.WEIGHT_BYTES: plan.weights,
        Shape.SCRATCH: plan.scratch, Shape.COPIED: plan.copied, Shape.SUMS: plan.sums,
        Shape.SLOTS: min(chunks, MOST_SLOTS), Shape.PIXEL: plan.pixel, Shape.PITCH: plan.pitch,
        Shape.NEXT_ROW: w.step[2] * plan.pixel, Shape.NEXT_TAP: w.dilation[2] * plan.pixel,
        Shape.NEXT_LINE: w.dilation[1] * w.input[2] * plan.pixel, Shape.BLOCK: plan.block,
    }
    return emit_shape(module, tile, symbol, fields, plan.spans, plan.asks)
