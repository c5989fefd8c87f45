"""The entry of a convolution kernel: its sizes and buffers as a request to the shared drivers."""

from graphc.backends.llvm.conv import BY_PLANES, declare_conv
from graphc.backends.llvm.conv_copy import copied_step, pad_symbol
from graphc.backends.llvm.conv_copy_pairs import pad_pairs_symbol
from graphc.backends.llvm.conv_geometry import CONV_WORDS, Conv, Words, in_three
from graphc.backends.llvm.conv_mend import may_meet_nothing, mended
from graphc.backends.llvm.conv_places import PLACES
from graphc.backends.llvm.conv_planes import asks_for_planes, may_go_by_planes
from graphc.backends.llvm.conv_reach import conv_reach, is_by_strips
from graphc.backends.llvm.conv_shifts import SHIFTS
from graphc.backends.llvm.conv_strips import emit_strips
from graphc.backends.llvm.conv_sweep import emit_sweep, is_known, is_swept
from graphc.backends.llvm.gemm_arguments import Arguments
from graphc.backends.llvm.gemm_descriptor import ENTRY
from graphc.backends.llvm.gemm_dot import dot_table
from graphc.backends.llvm.gemm_kernel import (
    SCRATCH,
    WORKERS,
    declare_packer,
    own_dots,
    own_tiles,
)
from graphc.backends.llvm.gemm_pack import LEFT_TYPES, RIGHT_TYPES, Source
from graphc.backends.llvm.gemm_store import epilogue_pointers, plain_store
from graphc.backends.llvm.microkernel import Tile, declare_table
from graphc.backends.llvm.text import Module, Value
from graphc.ir.dim import Size, product
from graphc.ir.kernel import ConvGeometry, Convolution, Kernel
from graphc.ir.kernel.plan_convolution import reads_words

# Offsets inside an image are kept as 32-bit lanes where a vector is gathered from up to 16 images.
MOST_ELEMENTS = 1 << 27


def emit_conv_kernel(
    module: Module, kernel: Kernel, c: Convolution, tile: Tile, symbol: str
) -> None:
    """Defines void @symbol(ptr %args, ptr %status) for the three kinds of convolution.

    Raises ValueError for images of 2^27 elements or more, more than three spatial dimensions, or
    operands that do not lie in memory channel after channel.
    """
    g = c.geometry
    _check(g)
    if not c.in_planes():
        raise ValueError(f"operands {c.left.text()} and {c.right.text()} are not in NCHW order")
    f = module.function(f"void @{symbol}(ptr %args, ptr %status)", "", ENTRY)
    arguments = Arguments(f, kernel)
    request = Words(f, f.alloca("i64", CONV_WORDS))
    left, right = Source(c.left.dtype, tile), Source(c.right.dtype, tile)
    swept = is_swept(c, tile)
    alone = swept and is_known(c)  # what is asked in the call has one answer
    epilogue, epilogue_arguments = epilogue_pointers(f, kernel, tile, symbol, arguments)
    if is_by_strips(c, tile):
        emit_strips(module, c, tile, symbol, f, arguments, (epilogue, epilogue_arguments))
        return
    if may_meet_nothing(c):
        other = (epilogue, epilogue_arguments)
        epilogue, epilogue_arguments = mended(f, c, tile, arguments, other)
    pointers = {
        Conv.ARGUMENTS: epilogue_arguments,
        Conv.EPILOGUE: epilogue,
        **({} if alone else _reached(module, c, tile, symbol)),
        Conv.LEFT: arguments.buffer(c.left.buffer),
        Conv.RIGHT: arguments.buffer(c.right.buffer),
        Conv.MEMORY: f.load(f.gep("%status", SCRATCH, "ptr"), "ptr", 8),
    }
    for field, pointer in pointers.items():
        request.write_pointer(field, pointer)
    fields: dict[Conv, Value] = {
        Conv.LEFT_SAME: int(left.same),
        Conv.RIGHT_SAME: int(right.same),
        Conv.LEFT_BYTES: c.left.dtype.itemsize,
        Conv.RIGHT_BYTES: c.right.dtype.itemsize,
        Conv.BATCH: arguments.size(g.batch),
        Conv.CHANNELS: g.in_channels // g.groups,
        Conv.OUTPUTS: g.out_channels // g.groups,
        Conv.GROUPS: g.groups,
        Conv.WORKERS: f.load(f.gep("%status", WORKERS, "i64"), "i64", 8),
    }
    for field, value in fields.items():
        request.write(field, value)
    each: tuple[tuple[Conv, tuple[Size, ...], int], ...] = (
        (Conv.INPUT, g.input, 1),
        (Conv.WINDOW, g.window, 1),
        (Conv.OUTPUT, g.output, 1),
        (Conv.STRIDE, g.stride, 1),
        (Conv.PAD, g.pad_low, 0),
        (Conv.DILATION, g.dilation, 1),
    )
    for field, sizes, missing in each:
        for dim, size in enumerate(in_three(sizes, missing)):
            request.write(field, arguments.size(size), dim)
    driver = BY_PLANES if may_go_by_planes(c, tile) and not swept else c.kind
    if tile.group == 1 and (reached := conv_reach(c, tile)):
        driver = PLACES if reached.places else SHIFTS if reached.shifts else driver
    if swept:
        sweep = emit_sweep(module, c, tile, symbol, plain_store(kernel, tile) is not None)
        planes, product_ = f.label("planes"), f.label("product")
        f.cond_br("true" if alone else asks_for_planes(f, request), planes, product_)
        f.block(planes)
        f.call("void", sweep, f"ptr {request.pointer}")
        f.ret()
        if alone:
            return
        f.block(product_)
    f.call("void", declare_conv(module, driver, tile), f"ptr {request.pointer}")
    f.ret()


def _reached(module: Module, c: Convolution, tile: Tile, symbol: str) -> dict[Conv, str]:
    """The packers and tables of kernels: what is not reached is null."""
    left, right = Source(c.left.dtype, tile), Source(c.right.dtype, tile)
    packer = "window_columns" if c.kind == "conv_weight_grad" else "window_rows"
    left_packer = "weights" if c.kind == "conv_input_grad" else "left"
    found = conv_reach(c, tile) if tile.group == 1 else None
    pointers = dict.fromkeys((Conv.TILES, Conv.WINDOWS, Conv.DOTS), "null")
    if found is None:
        pointers[Conv.DOTS] = declare_table(module, dot_table(tile))
    else:
        for field, kind, kernels in (
            (Conv.TILES, "tile", found.tiles), (Conv.WINDOWS, "window", found.windows),
            (Conv.WINDOWS, "place", found.places),
        ):
            if kernels:
                pointers[field] = own_tiles(module, tile, f"@{symbol}.{kind}s", kernels, kind)
        if found.dots:
            pointers[Conv.DOTS] = own_dots(module, tile, f"@{symbol}.dots", found.dots)
    pad = pad_symbol(right, copied_step(c, tile))
    if c.kind != "conv_weight_grad" and reads_words(tile.step) and tile.group > 1:
        pad = pad_pairs_symbol(right)
    if found is None or found.copies:
        module.declare(f"declare void {pad}(ptr, i64)")
    copies, packs, packs_left = (True,) * 3 if found is None else found[4:7]
    return pointers | {
        Conv.PACK_LEFT:
            declare_packer(module, left_packer, left, LEFT_TYPES) if packs_left else "null",
        Conv.PACK_RIGHT: declare_packer(module, packer, right, RIGHT_TYPES) if packs else "null",
        Conv.PAD_COPY: pad if copies else "null",
    }


def _check(g: ConvGeometry) -> None:
    if len(g.input) > 3:
        raise ValueError(f"convolution over {len(g.input)} spatial dimensions; at most 3")
    for channels, sizes in ((g.in_channels, g.input), (g.out_channels, g.output)):
        elements = product((channels, *sizes))
        if isinstance(elements, int) and elements >= MOST_ELEMENTS:
            raise ValueError(f"an image of {elements} elements is too large; at most 2^27 - 1")
