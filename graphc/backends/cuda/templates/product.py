"""Matrix products as CUDA C."""

from __future__ import annotations

from graphc.backends.cuda.source import Source, Target
from graphc.backends.cuda.templates import gemm_kernel
from graphc.backends.cuda.templates.gemm_operand import affine
from graphc.backends.cuda.templates.gemm_plan import plan_product
from graphc.backends.cuda.templates.gemm_sizes import Sizes
from graphc.ir import dtypes
from graphc.ir.kernel import Kernel, Product, Template
from graphc.ir.kernel.templates.operand import panels_of

_TAKEN = (dtypes.bf16, dtypes.f16, dtypes.f32, dtypes.f64)


def takes(template: Template) -> bool:
    """Products of two floats of one dtype."""
    if not isinstance(template, Product) or panels_of(template.right.index) is not None:
        return False
    return template.left.dtype in _TAKEN and template.right.dtype is template.left.dtype


def render(kernel: Kernel, target: Target) -> Source:
    """See Renderer."""
    t = kernel.template
    assert isinstance(t, Product)
    sizes = Sizes(kernel.dims)
    extents = {name: sizes.argument(getattr(t, name)) for name in "mnk"}
    left = affine("left", t.left, "m", extents["m"], extents["k"], sizes)
    right = affine("right", t.right, "n", extents["n"], extents["k"], sizes)
    contraction = gemm_kernel.Contraction(
        t.batch, t.m, t.n, t.k, left, right, t.acc_dtype, t.epilogue, sizes
    )
    lines = left.along, right.along
    plan = plan_product(t.batch, t.m, t.n, t.k, t.left.dtype, target, lines, t.tf32)
    return gemm_kernel.source(kernel, contraction, plan)
