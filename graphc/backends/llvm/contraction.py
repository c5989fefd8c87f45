"""Contraction kernels: a small function per kernel around the shared, cached contraction code.

A kernel's own object holds its sizes, where its operands begin, and its epilogue. The loops, tiles
and packers are libraries of their own (`template_libraries`), compiled once for all shapes.
"""

from collections.abc import Callable
from typing import TypeGuard

from graphc.backends.llvm.attention import attention_libraries, attention_tile
from graphc.backends.llvm.attention_block import emit_attention_library
from graphc.backends.llvm.conv import emit_bases, emit_forward, emit_weight_grad
from graphc.backends.llvm.conv_direct import emit_direct
from graphc.backends.llvm.conv_kernel import emit_conv_kernel
from graphc.backends.llvm.conv_last import emit_last
from graphc.backends.llvm.conv_last_kernel import emit_last_kernel
from graphc.backends.llvm.conv_mend import TermsEmitter
from graphc.backends.llvm.conv_pack import emit_conv_packs
from graphc.backends.llvm.conv_pack_pairs import emit_conv_pair_packs
from graphc.backends.llvm.conv_phase import emit_input_grad
from graphc.backends.llvm.gemm import emit_gemm
from graphc.backends.llvm.gemm_dot import emit_dots
from graphc.backends.llvm.gemm_kernel import emit_gemm_kernel
from graphc.backends.llvm.gemm_pack import Source, emit_gemm_packs, emit_transpose
from graphc.backends.llvm.gemm_pack_words import emit_word_packs
from graphc.backends.llvm.gemm_store import emit_store, plain_store
from graphc.backends.llvm.microkernel import ACCUMULATORS, Tile
from graphc.backends.llvm.target import Target
from graphc.backends.llvm.text import Function, Module
from graphc.ir import dtypes
from graphc.ir.kernel import Attention, Convolution, Kernel, SumTemplate
from graphc.ir.kernel.plan_contraction import is_dot
from graphc.ir.kernel.steps import step_of

# Emits the body (all but `ret`) of an epilogue: void (ptr %args, i64 %b, i64 %m, i64 %rows, i64 %n,
# i64 %columns, ptr %tile, i64 %pitch). The sum of (m + i, n + j) is %tile[i * pitch + j], of the
# tile's element type.
EpilogueEmitter = Callable[[Function, Kernel, Tile], None]

EPILOGUE_PARAMETERS = (
    "ptr noalias readonly %args, i64 %b, i64 %m, i64 %rows, i64 %n, i64 %columns, "
    "ptr noalias readonly %tile, i64 %pitch"
)


def template_libraries(kernel: Kernel, target: Target) -> tuple[str, ...]:
    """The names of the libraries that a template's object is linked with."""
    if isinstance(kernel.template, Attention):
        return attention_libraries(attention_tile(kernel.template, target))
    template = _template(kernel)
    tile = tile_of(template, target)
    if _is_last(template):
        return (f"gemm.{tile.name}", f"conv_last.{tile.name}")
    sources = dict.fromkeys((template.left.dtype, template.right.dtype))
    names = [f"gemm.{tile.name}"]
    names += [f"gemm_pack.{dtype.name}.{tile.name}" for dtype in sources]
    if isinstance(template, Convolution) or is_dot(template, tile.tiling):
        names.append(f"gemm_dot.{tile.name}")
    if isinstance(template, Convolution):
        names.append(f"conv.{tile.name}")
        names += [f"conv_pack.{dtype.name}.{tile.name}" for dtype in sources]
    return tuple(names)


def emit_library(name: str, target: Target) -> Module:
    """The module of a library named by template_libraries; they want @graphc_par of the pool."""
    module = Module()
    kind, *parts = name.split(".")
    tile = Tile(parts[-1], target)
    if kind == "gemm":
        emit_gemm(module, tile)
        emit_store(module, tile)
        emit_transpose(module, tile)
        return module
    if kind == "attention":
        emit_attention_library(module, tile)
        return module
    if kind == "gemm_dot":
        emit_dots(module, tile)
        return module
    if kind == "conv_last":
        emit_last(module, tile)
        return module
    if kind == "conv":
        emit_bases(module)
        emit_direct(module, tile)
        emit_forward(module, tile)
        emit_weight_grad(module, tile)
        emit_input_grad(module, tile)
        return module
    source = Source(dtypes.by_name(parts[0]), tile)
    if kind == "gemm_pack":
        (emit_word_packs if tile.group > 1 else emit_gemm_packs)(module, source)
    else:
        (emit_conv_pair_packs if tile.group > 1 else emit_conv_packs)(module, source)
    return module


def tile_of(template: SumTemplate, target: Target) -> Tile:
    """The register tile that computes a template.

    Raises ValueError for a type of sums that no tile has, or operands of another kind than it.
    """
    acc = template.acc_dtype
    if acc.name not in ACCUMULATORS:
        raise ValueError(f"sums of {acc} are not generated; sum in {', '.join(ACCUMULATORS)}")
    for operand in (template.left, template.right):
        if operand.dtype.is_float != acc.is_float or operand.dtype.bits > acc.bits:
            raise ValueError(f"operand {operand.buffer} of {operand.dtype} summed in {acc}")
    tiling = target.machine.tiling
    assert tiling is not None
    return Tile(step_of(template, tiling).name, target)


def emit_contraction(
    module: Module, kernel: Kernel, target: Target, symbol: str, epilogue: EpilogueEmitter,
    terms: TermsEmitter,
) -> None:
    """Defines void @symbol(ptr %args, ptr %status): buffers in order of params, then dims."""
    template = _template(kernel)
    tile = tile_of(template, target)
    if plain_store(kernel, tile) is None:
        _emit_epilogue(module, kernel, tile, symbol, epilogue)
    if _is_last(template):
        emit_last_kernel(module, kernel, template, tile, symbol)
    elif isinstance(template, Convolution):
        emit_conv_kernel(module, kernel, template, tile, symbol, terms)
    else:
        emit_gemm_kernel(module, kernel, template, tile, symbol)


def _is_last(template: SumTemplate) -> TypeGuard[Convolution]:
    return isinstance(template, Convolution) and template.kind == "conv_last"


def _template(kernel: Kernel) -> SumTemplate:
    if kernel.template is None or isinstance(kernel.template, Attention):
        raise ValueError(f"kernel {kernel.name} is not a contraction")
    return kernel.template


def _emit_epilogue(
    module: Module, kernel: Kernel, tile: Tile, symbol: str, epilogue: EpilogueEmitter
) -> None:
    f = module.function(f"void @{symbol}.epilogue({EPILOGUE_PARAMETERS})", "internal")
    epilogue(f, kernel, tile)
    f.ret()
