"""The entry of a kernel whose convolution has its channels last: a request to the driver."""

from graphc.backends.llvm.conv_alone import emit_lines_kernel, line_kernels
from graphc.backends.llvm.conv_ask import asks_ahead
from graphc.backends.llvm.conv_geometry import Words
from graphc.backends.llvm.conv_last import Last, last_symbol
from graphc.backends.llvm.conv_last_lines import emit_last_lines
from graphc.backends.llvm.gemm_arguments import Arguments
from graphc.backends.llvm.gemm_descriptor import ENTRY
from graphc.backends.llvm.gemm_kernel import SCRATCH, WORKERS
from graphc.backends.llvm.gemm_store import epilogue_pointers
from graphc.backends.llvm.microkernel import Tile
from graphc.backends.llvm.text import Module, Value
from graphc.ir.dim import Size, evaluate, is_static, product
from graphc.ir.kernel import Convolution, Kernel, SumTemplate
from graphc.ir.kernel.plan_last import by_channel, near_of, rows_of, runs_of, widest_of
from graphc.ir.kernel.plan_last_lines import lines_of_last
from graphc.ir.kernel.steps import step_of
from graphc.ir.kernel.templates.operand import panels_of_weights
from graphc.ir.machine import Tiling


def renders_last(c: Convolution, tiling: Tiling) -> bool:
    """Whether there is code for such a template: floats of the type of the sums, or pairs of halves
    in words; panels of no more registers than a tile has, and groups of one channel or none."""
    g, (columns, group) = c.geometry, panels_of_weights(c.right.index)
    step, lanes = step_of(c, tiling), tiling.lanes(c.acc_dtype.itemsize)
    if (c.left.dtype, c.right.dtype, group) != (step.left, step.right, step.group) or not columns:
        return False
    if columns % lanes or not 0 < columns // lanes <= widest_of(tiling) or len(g.window) > 3:
        return False
    if g.in_channels // g.groups % group or (c.left.index, c.right.index) != g.last(columns, group):
        return False
    alone = by_channel(g.groups, g.in_channels // g.groups)
    # channels are lanes: no register goes beyond a pixel
    return g.groups == 1 or (alone and g.out_channels == g.groups and g.groups % columns == 0)


def last_rows(c: Convolution, tile: Tile) -> int:
    """Positions of its tiles."""
    return rows_of(tile.tiling, panels_of_weights(c.right.index)[0] // tile.lanes)


def panel_columns(c: SumTemplate, lanes: int) -> int | None:
    """Columns of each tile of such a template, if all panels have as many, in whole registers."""
    if not isinstance(c, Convolution) or c.kind != "conv_last":
        return None
    outputs = c.geometry.out_channels
    columns = min(panels_of_weights(c.right.index)[0] or 1, outputs)
    return columns if outputs % columns == 0 and columns % lanes == 0 else None


def follows(c: SumTemplate, tile: Tile) -> tuple[int, int] | None:
    """The (position, column), counted from those of a tile, where the epilogue goes to after it,
    and may ask for what it reads there."""
    if not isinstance(c, Convolution) or not asks_ahead(tile) or line_kernels(c, tile):
        return None
    if lines := lines_of_last(c, tile.machine):
        return lines.window.out[2], 0
    if runs_of(c, tile.machine).together:
        return 0, panels_of_weights(c.right.index)[0]
    return last_rows(c, tile), 0


def asks_rows(c: Convolution, tile: Tile) -> bool:
    """Whether tiles ask for what the next positions read: the second cache does not hold the image,
    whose pixels come one after the other. (Zen 3, 56 x 56 pixels: 1x1 of 256 to 64 channels 1.41
    and 1.12 ms, to 128 2.52 and 2.26.)"""
    g, runs = c.geometry, runs_of(c, tile.machine)
    if not (runs.plain and runs.together and asks_ahead(tile) and is_static(g.input)):
        return False
    image = evaluate(product(g.input), {}) * runs.depth * tile.bytes
    return image > 2 * tile.tiling.pack_bytes


def emit_last_kernel(
    module: Module, kernel: Kernel, c: Convolution, tile: Tile, symbol: str
) -> None:
    """Defines void @symbol(ptr %args, ptr %status)."""
    if line_kernels(c, tile):
        emit_lines_kernel(module, kernel, c, tile, symbol)
        return
    if lines := lines_of_last(c, tile.machine):
        emit_last_lines(module, kernel, c, tile, symbol, lines)
        return
    g, (columns, group) = c.geometry, panels_of_weights(c.right.index)
    f = module.function(f"void @{symbol}(ptr %args, ptr %status)", "", ENTRY)
    arguments = Arguments(f, kernel)
    request = Words(f, f.alloca("i64", len(Last)))
    epilogue, epilogue_arguments = epilogue_pointers(f, kernel, tile, symbol, arguments)
    for field, pointer in (
        (Last.ARGUMENTS, epilogue_arguments), (Last.EPILOGUE, epilogue),
        (Last.LEFT, arguments.buffer(c.left.buffer)),
        (Last.RIGHT, arguments.buffer(c.right.buffer)),
        (Last.MEMORY, f.load(f.gep("%status", SCRATCH, "ptr"), "ptr", 8)),
    ):
        request.write_pointer(field, pointer)
    runs = runs_of(c, tile.machine)
    fields: dict[Last, Value] = {
        Last.WORKERS: f.load(f.gep("%status", WORKERS, "i64"), "i64", 8),
        Last.BATCH: arguments.size(g.batch), Last.CHANNELS: g.in_channels // group,
        Last.DEPTH: runs.depth,
        Last.OUTPUTS: g.out_channels, Last.COLUMNS: columns,
        Last.PANELS: -(-g.out_channels // columns),
        Last.ALONE: int(by_channel(g.groups, g.in_channels // g.groups)),
        Last.TOGETHER: int(runs.together), Last.PLAIN: int(runs.plain),
        Last.ASKS_ROWS: int(asks_rows(c, tile)),
        Last.NEAR: near_of(c, tile.machine, last_rows(c, tile)),
    }
    for field, value in fields.items():
        request.write(field, value)
    each: tuple[tuple[Last, tuple[Size, ...], int], ...] = (
        (Last.INPUT, g.input, 1), (Last.WINDOW, runs.window, 1), (Last.OUTPUT, g.output, 1),
        (Last.STRIDE, g.stride, 1), (Last.PAD, g.pad_low, 0), (Last.DILATION, g.dilation, 1),
    )
    for field, sizes, missing in each:
        for dim, size in enumerate((missing,) * (3 - len(sizes)) + sizes):
            request.write(field, arguments.size(size), dim)
    driver = last_symbol(tile, last_rows(c, tile))
    module.declare(f"declare void {driver}(ptr)")
    f.call("void", driver, f"ptr {request.pointer}")
    f.ret()
