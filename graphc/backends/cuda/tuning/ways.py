"""In which ways a contraction can be computed on a device: generated code by each of its plans, a
library by each of its proposals."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from graphc.backends.cuda import templates
from graphc.backends.cuda.apart import problem, takes
from graphc.backends.cuda.cublaslt import CublasLt
from graphc.backends.cuda.source import Target
from graphc.ir.kernel import Kernel, Product

_BLOCK = 512  # bytes: how operands are aligned while they are timed


class Way(NamedTuple):
    """`plan`: of generated code (templates.Renderer); else the number of a library's proposal."""

    plan: object = None
    proposal: int | None = None

    def __str__(self) -> str:
        if self.proposal is not None:
            return f"cuBLASLt, proposal {self.proposal + 1}"
        return "the usual code" if self.plan is None else str(self.plan)


def ways_of(
    kernel: Kernel, target: Target, library: CublasLt | None, only: bool
) -> Sequence[Way]:
    """All, the generated code that is usual first. `only`: a library does what it can do."""
    t = kernel.template
    proposals = 0
    if library is not None and isinstance(t, Product) and takes(t):
        asked, left, right = problem(t, {}, t.tf32)
        proposals = library.proposals(asked, _BLOCK + left, _BLOCK + right, _BLOCK)
    multiplied = [Way(None, number) for number in range(proposals)]
    if only and proposals:
        return multiplied
    return [*(Way(plan) for plan in templates.choices(kernel, target)), *multiplied]

