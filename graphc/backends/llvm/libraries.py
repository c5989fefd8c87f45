"""The code that kernels of templates share, in pieces: which ones a kernel is linked with, and what
is in each. A piece is compiled once, for all shapes, when the first kernel comes to it.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

from graphc.backends.llvm.contraction import is_last, sum_template, tile_of
from graphc.backends.llvm.emit import emit_shared_epilogue
from graphc.backends.llvm.epilogue import shared_epilogue
from graphc.backends.llvm.gemm import emit_gemm, emit_tiles
from graphc.backends.llvm.gemm_dot import emit_dot, emit_dots, emit_point_columns
from graphc.backends.llvm.gemm_pack import Source, emit_gemm_pack, emit_transpose
from graphc.backends.llvm.gemm_pack_words import emit_word_packs
from graphc.backends.llvm.gemm_plan import emit_plan
from graphc.backends.llvm.gemm_reach import reach
from graphc.backends.llvm.gemm_store import emit_store, plain_store
from graphc.backends.llvm.microkernel import Tile, emit_kernel, emit_run
from graphc.backends.llvm.target import Target
from graphc.backends.llvm.text import Module
from graphc.ir import dtypes
from graphc.ir.kernel import Attention, Kernel, Product
from graphc.ir.kernel.plan_contraction import is_dot, plan_contraction
from graphc.ir.late import late

if TYPE_CHECKING:
    from graphc.backends.llvm import attention, attention_block, conv_libraries
else:  # where a program has some
    attention = late("graphc.backends.llvm.attention")
    attention_block = late("graphc.backends.llvm.attention_block")
    conv_libraries = late("graphc.backends.llvm.conv_libraries")


def template_libraries(kernel: Kernel, target: Target) -> tuple[str, ...]:
    """The names of the libraries that a template's object is linked with: a kind, what it is of,
    and the tile."""
    if isinstance(kernel.template, Attention):
        tile = attention.attention_tile(kernel.template, target)
        return (f"attention.{tile.name}", f"transpose.{tile.name}")
    template = sum_template(kernel)
    tile = tile_of(template, target)
    if isinstance(template, Product):
        kinds = [*_of_product(template, tile), "store"]  # it asks whether the epilogue is this
    elif is_last(template):
        plain = plain_store(kernel, tile) is not None
        kinds = conv_libraries.of_last(template, tile) + ["store"] * plain
    else:
        kinds = [*conv_libraries.of_convolution(template, tile), "store"]
    if plain_store(kernel, tile) is None and (shared := shared_epilogue(kernel)) is not None:
        kinds.append(shared.kind)
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


def is_apart(name: str) -> bool:
    """Whether a library is two objects (Module.apart): a driver that is not optimised, and what
    runs in its chunks."""
    return name.startswith(_APART)


def emit_library(name: str, target: Target) -> Module:
    """The module of a library named by template_libraries; they want @graphc_par of the pool."""
    module = Module()
    kind, *parts, tile = name.split(".")
    emitter = _EMITTERS.get(kind) or conv_libraries.EMITTERS[kind]
    emitter(module, Tile(tile, target), *parts)
    return module


def _source(dtype: str, tile: Tile) -> Source:
    return Source(dtypes.by_name(dtype), tile)


_APART = tuple(f"conv_{kind}." for kind in (
    "input_grad", "lines", "places", "shifts", "strips", "windows",
))
_EMITTERS: dict[str, Callable[..., None]] = {
    "attention": lambda module, tile: attention_block.emit_attention_library(module, tile),
    "dot": lambda module, tile, rows: emit_dot(module, tile, int(rows)),
    "dots": emit_dots,
    "epilogue": lambda module, tile, *text: emit_shared_epilogue(module, tile, ".".join(text)),
    "gemm": emit_gemm,
    "pack": lambda m, tile, kind, dtype: emit_gemm_pack(m, _source(dtype, tile), kind),
    "packs": lambda module, tile, dtype: emit_word_packs(module, _source(dtype, tile)),
    "plan": emit_plan,
    "point": emit_point_columns,
    "run": lambda module, tile, rows: emit_run(module, tile, int(rows)),
    "store": emit_store,
    "tile": lambda module, tile, rows, width: emit_kernel(module, tile, int(rows), int(width)),
    "tiles": emit_tiles,
    "transpose": emit_transpose,
    "window": lambda m, tile, rows, width: emit_kernel(m, tile, int(rows), int(width), True),
}
