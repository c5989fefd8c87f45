"""The libraries of convolutions: see libraries.py, which asks this module where there is one."""

from collections.abc import Callable

from graphc.backends.llvm.conv import (
    emit_forward,
    emit_forward_by_planes,
    emit_weight_grad,
)
from graphc.backends.llvm.conv_alone import emit_line, line_kernels
from graphc.backends.llvm.conv_copy import copied_step, emit_pad
from graphc.backends.llvm.conv_copy_pairs import emit_pair_copies
from graphc.backends.llvm.conv_direct import emit_lines, emit_windows
from graphc.backends.llvm.conv_direct_pairs import emit_pair_windows
from graphc.backends.llvm.conv_last import emit_last
from graphc.backends.llvm.conv_last_kernel import last_rows
from graphc.backends.llvm.conv_last_lines import emit_last_lines_driver, last_lines_libraries
from graphc.backends.llvm.conv_mend import emit_again, emit_mend, may_meet_nothing
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
from graphc.backends.llvm.conv_reach import conv_reach, is_by_strips
from graphc.backends.llvm.conv_shifts import SHIFTS, emit_forward_by_shifts
from graphc.backends.llvm.conv_strips import strip_libraries
from graphc.backends.llvm.conv_strips_driver import emit_strip_driver
from graphc.backends.llvm.conv_strips_tile import emit_strip_tile
from graphc.backends.llvm.conv_sweep import is_known, is_swept
from graphc.backends.llvm.gemm_pack import Source
from graphc.backends.llvm.microkernel import Tile
from graphc.backends.llvm.place_kernel import emit_place_kernel
from graphc.ir import dtypes
from graphc.ir.kernel import Convolution
from graphc.ir.kernel.plan_convolution import reads_words


def of_last(c: Convolution, tile: Tile) -> list[str]:
    """Kinds of libraries of one whose channels lie last, but for the store."""
    lines = [f"line.{'.'.join(map(str, shape))}" for shape in line_kernels(c, tile)]
    lines = lines or last_lines_libraries(c, tile)
    return lines or [f"conv_last.{last_rows(c, tile)}"]


def of_convolution(c: Convolution, tile: Tile) -> list[str]:
    """Kinds of libraries, but for the store."""
    if is_by_strips(c, tile):
        return strip_libraries(c, tile)
    left, right = c.left.dtype.name, c.right.dtype.name
    columns = c.kind == "conv_weight_grad"
    kinds = ["gemm", "plan", c.kind, *(["conv_lines"] if columns else [])]
    if is_swept(c, tile):
        if is_known(c):
            return []
    elif may_go_by_planes(c, tile):
        kinds.append("conv_planes")
    kinds += ["mend", f"again.{left}.{right}"] if may_meet_nothing(c) else []
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
    kinds += [f"conv_pad.{right}.{copied_step(c, tile)}"] if reached.copies else []
    if reached.packs:
        kinds += [f"conv_{'columns' if columns else 'rows'}.{right}", f"conv_window_rows.{right}"]
        kinds += ["transpose"] if columns else []
    if reached.left:
        kinds.append(f"conv_weights.{left}" if c.kind == "conv_input_grad" else f"pack.left.{left}")
    return kinds


def _source(dtype: str, tile: Tile) -> Source:
    return Source(dtypes.by_name(dtype), tile)


EMITTERS: dict[str, Callable[..., None]] = {
    "again": lambda m, tile, left, right: emit_again(m, _source(left, tile), _source(right, tile)),
    "conv": emit_forward,
    "conv_columns": lambda m, tile, dtype: emit_pack_columns(m, _source(dtype, tile)),
    "conv_input_grad": emit_input_grad,
    "conv_last": lambda module, tile, rows: emit_last(module, tile, int(rows)),
    "conv_last_lines": emit_last_lines_driver,
    "conv_lines": emit_lines,
    "conv_packs": lambda m, tile, dtype: emit_conv_pair_packs(m, _source(dtype, tile)),
    "conv_pad": lambda m, tile, dtype, step: emit_pad(m, _source(dtype, tile), int(step)),
    "conv_places": emit_forward_in_place,
    "conv_pair_copies": lambda m, tile, dtype: emit_pair_copies(m, _source(dtype, tile)),
    "conv_pair_windows": emit_pair_windows,
    "conv_planes": emit_forward_by_planes,
    "conv_rows": lambda m, tile, dtype: emit_pack_rows(m, _source(dtype, tile)),
    "conv_shifts": emit_forward_by_shifts,
    "conv_strips": emit_strip_driver,
    "conv_weight_grad": emit_weight_grad,
    "conv_weights": lambda m, tile, dtype: emit_pack_weights(m, _source(dtype, tile)),
    "conv_window_rows": lambda m, tile, dtype: emit_window_rows(m, _source(dtype, tile)),
    "conv_windows": emit_windows,
    "line": lambda module, tile, *shape: emit_line(module, tile, *map(int, shape)),
    "mend": emit_mend,
    "place": lambda module, tile, *sizes: emit_place_kernel(module, tile, *map(int, sizes)),
    "strip_tile": lambda m, tile, *sizes: emit_strip_tile(m, tile, False, *map(int, sizes)),
    "strip_tile_asking": lambda m, tile, *sizes: emit_strip_tile(m, tile, True, *map(int, sizes)),
}
