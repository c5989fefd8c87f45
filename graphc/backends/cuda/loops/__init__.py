"""Kernels of loops as CUDA C: `mapping` shares them out to threads, `stage` and `vector` write."""

from __future__ import annotations

from functools import reduce

from graphc.backends.cuda.loops.mapping import StageMapping, plan
from graphc.backends.cuda.loops.reductions import Reductions
from graphc.backends.cuda.loops.stage import StageFunction
from graphc.backends.cuda.prelude import PRELUDE
from graphc.backends.cuda.source import OLDEST, Source, Stage, Target
from graphc.ir.dim import Size, maximum
from graphc.ir.kernel import Check, Kernel
from graphc.ir.kernel.text import kernel_symbol

__all__ = ["StageMapping", "plan", "render"]


def render(kernel: Kernel, target: Target = OLDEST) -> Source:
    """CUDA C."""
    symbol = kernel_symbol(kernel)
    reductions = Reductions()
    functions: list[str] = []
    stages: list[Stage] = []
    mappings = plan(kernel, target)
    spilled = [mapping.spilled_bytes for mapping in mappings if mapping.spilled]
    checks: list[Check] = []
    for number, (body, mapping) in enumerate(zip(kernel.stages, mappings, strict=True)):
        name = f"{symbol}_stage{number}"
        function = StageFunction(kernel, body, mapping, reductions, checks, bool(spilled))
        functions.append(function.function(name))
        stages.append(Stage(name, mapping.blocks, mapping.threads, function.shared))
    text = "\n".join((PRELUDE, *reductions.functions.values(), *functions))
    none: Size = 0
    return Source(text, tuple(stages), reduce(maximum, spilled, none))
