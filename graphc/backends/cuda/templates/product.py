"""Matrix products as CUDA C."""

from __future__ import annotations

from graphc.backends.cuda.source import Source, Target
from graphc.backends.cuda.templates import gemm_kernel
from graphc.backends.cuda.templates.gemm_operand import affine
from graphc.backends.cuda.templates.gemm_plan import Plan, Planned, plan_product, plans
from graphc.backends.cuda.templates.gemm_sizes import Sizes
from graphc.backends.cuda.templates.tallies import Tallies, takes_partials
from graphc.ir import dtypes
from graphc.ir.kernel import Kernel, Product, Template
from graphc.ir.kernel.templates.operand import panels_of

_TAKEN = (dtypes.bf16, dtypes.f16, dtypes.f32, dtypes.f64)


def takes(template: Template) -> bool:
    """Products of two floats of one dtype."""
    if not isinstance(template, Product) or panels_of(template.right.index) is not None:
        return False
    tallies = Tallies(template.epilogue)
    if tallies and not (template.batch == 1 and takes_partials(template)):
        return False
    return template.left.dtype in _TAKEN and template.right.dtype is template.left.dtype


def render(kernel: Kernel, target: Target, plan: Plan | None = None) -> Source:
    """See Renderer."""
    t = kernel.template
    assert isinstance(t, Product)
    contraction = _contraction(kernel, t)
    if plan is None:
        plan = plan_product(*_planned(t, contraction, target))
    return gemm_kernel.source(kernel, contraction, plan)


def choices(kernel: Kernel, target: Target) -> list[Plan | None]:
    """See Renderer."""
    t = kernel.template
    assert isinstance(t, Product)
    c = _contraction(kernel, t)
    return [*gemm_kernel.fitting(c, plans(*_planned(t, c, target)), target)]


def _contraction(kernel: Kernel, t: Product) -> gemm_kernel.Contraction:
    sizes = Sizes(kernel.dims)
    extents = {name: sizes.argument(getattr(t, name)) for name in "mnk"}
    left = affine("left", t.left, "m", extents["m"], extents["k"], sizes)
    right = affine("right", t.right, "n", extents["n"], extents["k"], sizes)
    return gemm_kernel.Contraction(
        t.batch, t.m, t.n, t.k, left, right, t.acc_dtype, t.epilogue, sizes, columns=t.n
    )


def _planned(t: Product, c: gemm_kernel.Contraction, target: Target) -> Planned:
    """What a plan is made of."""
    return t.batch, t.m, t.n, t.k, t.left.dtype, target, (c.left.along, c.right.along), t.tf32
