"""The code that kernels of templates share, in pieces: which ones a kernel is linked with, and what
is in each. A piece is compiled once, for all shapes, when the first kernel comes to it.
"""

from collections.abc import Callable

from graphc.backends.llvm.attention import attention_tile
from graphc.backends.llvm.attention_block import emit_attention_library
from graphc.backends.llvm.contraction import is_last, sum_template, tile_of
from graphc.backends.llvm.conv import (
    emit_forward,
    emit_forward_by_planes,
    emit_weight_grad,
)
from graphc.backends.llvm.conv_alone import emit_line, line_kernels
from graphc.backends.llvm.conv_copy import emit_pad
from graphc.backends.llvm.conv_copy_pairs import emit_pair_copies
from graphc.backends.llvm.conv_direct import emit_lines, emit_windows
from graphc.backends.llvm.conv_direct_pairs import emit_pair_windows
from graphc.backends.llvm.conv_last import emit_last
from graphc.backends.llvm.conv_last_kernel import last_rows
from graphc.backends.llvm.conv_mend import emit_mend, may_meet_nothing
from graphc.backends.llvm.conv_pack import (
    emit_pack_columns,
    emit_pack_rows,
    emit_pack_weights,
    emit_window_rows,
)
from graphc.backends.llvm.conv_pack_pairs import emit_conv_pair_packs
from graphc.backends.llvm.conv_phase import emit_input_grad
from graphc.backends.llvm.conv_places import PLACES, emit_forward_in_place
from graphc.backends.llvm.conv_planes import may_go_by_planes
from graphc.backends.llvm.conv_reach import conv_reach
from graphc.backends.llvm.conv_shifts import SHIFTS, emit_forward_by_shifts
from graphc.backends.llvm.conv_sweep import is_known, is_swept
from graphc.backends.llvm.gemm import emit_gemm, emit_tiles
from graphc.backends.llvm.gemm_dot import emit_dot, emit_dots, emit_point_columns
from graphc.backends.llvm.gemm_pack import Source, emit_gemm_pack, emit_transpose
from graphc.backends.llvm.gemm_pack_words import emit_word_packs
from graphc.backends.llvm.gemm_plan import emit_plan
from graphc.backends.llvm.gemm_reach import reach
from graphc.backends.llvm.gemm_store import emit_store, plain_store
from graphc.backends.llvm.microkernel import Tile, emit_kernel, emit_run
from graphc.backends.llvm.place_kernel import emit_place_kernel
from graphc.backends.llvm.target import Target
from graphc.backends.llvm.text import Module
from graphc.ir import dtypes
from graphc.ir.kernel import Attention, Convolution, Kernel, Product
from graphc.ir.kernel.plan_contraction import is_dot, plan_contraction
from graphc.ir.kernel.plan_convolution import reads_words


def template_libraries(kernel: Kernel, target: Target) -> tuple[str, ...]:
    """The names of the libraries that a template's object is linked with: a kind, what it is of,
    and the tile."""
    if isinstance(kernel.template, Attention):
        tile = attention_tile(kernel.template, target)
        return (f"attention.{tile.name}", f"transpose.{tile.name}")
    template = sum_template(kernel)
    tile = tile_of(template, target)
    if isinstance(template, Product):
        kinds = [*_of_product(template, tile), "store"]  # it asks whether the epilogue is this
    elif is_last(template):
        lines = [f"line.{'.'.join(map(str, shape))}" for shape in line_kernels(template, tile)]
        kinds = (lines or [f"conv_last.{last_rows(template, tile)}"]) + ["store"] * (
            plain_store(kernel, tile) is not None
        )
    else:
        kinds = [*_of_convolution(template, tile), "store"]
    return tuple(f"{kind}.{tile.name}" for kind in dict.fromkeys(kinds))


def _of_product(c: Product, tile: Tile) -> list[str]:
    kinds = ["gemm"] if plan_contraction(c, tile.machine) else ["gemm", "plan"]
    if tile.group > 1:
        kinds += [f"packs.{dtype.name}" for dtype in (c.left.dtype, c.right.dtype)]
        dots = ["dots", "point"] if is_dot(c, tile.tiling) else []
        return [*kinds, "transpose", *dots]
    reached = reach(c, tile)
    for table, each, kernels in (
        ("tiles", "tile", reached.tiles), ("tiles", "run", reached.runs),
        ("dots", "dot", reached.dots),
    ):
        names = (".".join(map(str, k if isinstance(k, tuple) else (k,))) for k in kernels or ())
        kinds += [table] if kernels is None else [f"{each}.{name}" for name in names]
    for pack in reached.packs:
        source = c.left if pack == "left" else c.right
        kinds.append("point" if pack == "point" else f"pack.{pack}.{source.dtype.name}")
    return [*kinds, "transpose"] if "columns" in reached.packs else kinds


def _of_convolution(c: Convolution, tile: Tile) -> list[str]:
    left, right = c.left.dtype.name, c.right.dtype.name
    columns = c.kind == "conv_weight_grad"
    kinds = ["gemm", "plan", c.kind, *(["conv_lines"] if columns else [])]
    if is_swept(c, tile):
        if is_known(c):
            return []
    elif may_go_by_planes(c, tile):
        kinds.append("conv_planes")
    kinds += ["mend"] if may_meet_nothing(c) else []
    if tile.group > 1:
        kinds += ["transpose", "dots", f"conv_packs.{left}", f"conv_packs.{right}"]
        if reads_words(tile.step) and not columns:
            kinds += ["conv_pair_windows", f"conv_pair_copies.{left}"]
        return [*kinds, f"packs.{left}"]
    reached = conv_reach(c, tile)
    if reached.places or reached.shifts:
        kinds[kinds.index(c.kind)] = PLACES if reached.places else SHIFTS
    elif not columns:
        kinds.append("conv_windows")
    tables = (("tile", reached.tiles), ("window", reached.windows), ("place", reached.places))
    for each, kernels in tables:
        kinds += [f"{each}.{rows}.{width}" for rows, width in kernels]
    kinds += [f"dot.{rows}" for rows in reached.dots]
    kinds += [f"conv_pad.{right}"] if reached.copies else []
    if reached.packs:
        kinds += [f"conv_{'columns' if columns else 'rows'}.{right}", f"conv_window_rows.{right}"]
        kinds += ["transpose"] if columns else []
    if reached.left:
        kinds.append(f"conv_weights.{left}" if c.kind == "conv_input_grad" else f"pack.left.{left}")
    return kinds


def emit_library(name: str, target: Target) -> Module:
    """The module of a library named by template_libraries; they want @graphc_par of the pool."""
    module = Module()
    kind, *parts, tile = name.split(".")
    _EMITTERS[kind](module, Tile(tile, target), *parts)
    return module


def _source(dtype: str, tile: Tile) -> Source:
    return Source(dtypes.by_name(dtype), tile)


_EMITTERS: dict[str, Callable[..., None]] = {
    "attention": emit_attention_library,
    "conv": emit_forward,
    "conv_columns": lambda m, tile, dtype: emit_pack_columns(m, _source(dtype, tile)),
    "conv_input_grad": emit_input_grad,
    "conv_last": lambda module, tile, rows: emit_last(module, tile, int(rows)),
    "conv_lines": emit_lines,
    "conv_packs": lambda m, tile, dtype: emit_conv_pair_packs(m, _source(dtype, tile)),
    "conv_pad": lambda m, tile, dtype: emit_pad(m, _source(dtype, tile)),
    "conv_places": emit_forward_in_place,
    "conv_pair_copies": lambda m, tile, dtype: emit_pair_copies(m, _source(dtype, tile)),
    "conv_pair_windows": emit_pair_windows,
    "conv_planes": emit_forward_by_planes,
    "conv_rows": lambda m, tile, dtype: emit_pack_rows(m, _source(dtype, tile)),
    "conv_shifts": emit_forward_by_shifts,
    "conv_weight_grad": emit_weight_grad,
    "conv_weights": lambda m, tile, dtype: emit_pack_weights(m, _source(dtype, tile)),
    "conv_window_rows": lambda m, tile, dtype: emit_window_rows(m, _source(dtype, tile)),
    "conv_windows": emit_windows,
    "dot": lambda module, tile, rows: emit_dot(module, tile, int(rows)),
    "dots": emit_dots,
    "gemm": emit_gemm,
    "line": lambda module, tile, *shape: emit_line(module, tile, *map(int, shape)),
    "mend": emit_mend,
    "pack": lambda m, tile, kind, dtype: emit_gemm_pack(m, _source(dtype, tile), kind),
    "packs": lambda module, tile, dtype: emit_word_packs(module, _source(dtype, tile)),
    "place": lambda module, tile, *sizes: emit_place_kernel(module, tile, *map(int, sizes)),
    "plan": emit_plan,
    "point": emit_point_columns,
    "run": lambda module, tile, rows: emit_run(module, tile, int(rows)),
    "store": emit_store,
    "tile": lambda module, tile, rows, width: emit_kernel(module, tile, int(rows), int(width)),
    "tiles": emit_tiles,
    "transpose": emit_transpose,
    "window": lambda m, tile, rows, width: emit_kernel(m, tile, int(rows), int(width), True),
}
