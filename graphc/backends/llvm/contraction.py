"""Contraction kernels: a small function per kernel around the shared, cached contraction code.

A kernel's own object holds its sizes, where its operands begin, and its epilogue. The loops, tiles
and packers are libraries of their own (`libraries.py`), compiled once for all shapes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeGuard

from graphc.backends.llvm.epilogue import shared_epilogue
from graphc.backends.llvm.gemm_kernel import emit_gemm_kernel
from graphc.backends.llvm.gemm_store import plain_store
from graphc.backends.llvm.microkernel import ACCUMULATORS, Tile
from graphc.backends.llvm.target import Target
from graphc.backends.llvm.text import Function, Module
from graphc.ir.kernel import Attention, Convolution, Kernel, SumTemplate
from graphc.ir.kernel.steps import step_of
from graphc.ir.late import late

if TYPE_CHECKING:
    from graphc.backends.llvm import conv_kernel, conv_last_kernel
else:  # where a program has convolutions
    conv_kernel = late("graphc.backends.llvm.conv_kernel")
    conv_last_kernel = late("graphc.backends.llvm.conv_last_kernel")

# Emits the body (all but `ret`) of an epilogue: void (ptr %args, i64 %b, i64 %m, i64 %rows, i64 %n,
# i64 %columns, ptr %tile, i64 %pitch). The sum of (m + i, n + j) is %tile[i * pitch + j], of the
# tile's element type.
EpilogueEmitter = Callable[[Function, Kernel, Tile], None]

EPILOGUE_PARAMETERS = (
    "ptr noalias readonly %args, i64 %b, i64 %m, i64 %rows, i64 %n, i64 %columns, "
    "ptr noalias readonly %tile, i64 %pitch"
)


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
    module: Module, kernel: Kernel, target: Target, symbol: str, epilogue: EpilogueEmitter
) -> None:
    """Defines void @symbol(ptr %args, ptr %status): buffers in order of params, then dims."""
    template = sum_template(kernel)
    tile = tile_of(template, target)
    if plain_store(kernel, tile) is None and shared_epilogue(kernel) is None:
        _emit_epilogue(module, kernel, tile, symbol, epilogue)
    if is_last(template):
        conv_last_kernel.emit_last_kernel(module, kernel, template, tile, symbol)
    elif isinstance(template, Convolution):
        conv_kernel.emit_conv_kernel(module, kernel, template, tile, symbol)
    else:
        emit_gemm_kernel(module, kernel, template, tile, symbol)


def is_last(template: SumTemplate) -> TypeGuard[Convolution]:
    return isinstance(template, Convolution) and template.kind == "conv_last"


def sum_template(kernel: Kernel) -> SumTemplate:
    if kernel.template is None or isinstance(kernel.template, Attention):
        raise ValueError(f"kernel {kernel.name} is not a contraction")
    return kernel.template


def _emit_epilogue(
    module: Module, kernel: Kernel, tile: Tile, symbol: str, epilogue: EpilogueEmitter
) -> None:
    f = module.function(f"void @{symbol}.epilogue({EPILOGUE_PARAMETERS})", "internal")
    epilogue(f, kernel, tile)
    f.ret()
