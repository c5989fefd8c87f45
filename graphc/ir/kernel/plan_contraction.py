"""`plan_contraction(template, machine)`: how a template is tiled, where its sizes are known."""

from __future__ import annotations

from collections.abc import Mapping

from ..dim import Dim, evaluate, substitute
from ..machine import Machine, Tiling
from .blocking import Blocking, Number, Request, quotient_up, reads_left, tiled
from .plan_attention import AttentionBlocking, plan_attention
from .plan_convolution import plan_convolution
from .program import Launch, Program, leaves
from .steps import machine_of, step_of
from .templates import Attention, Convolution, Product, SumTemplate, Template
from .templates.operand import base_and_strides, panels_of


def plan_template(
    template: Template, machine: Machine, dims: Mapping[str, int] | None = None
) -> Blocking | AttentionBlocking | None:
    """How any template is tiled; see plan_contraction."""
    if isinstance(template, Attention):
        return plan_attention(template, machine)
    return plan_contraction(template, machine, dims)


def plan_contraction(
    template: SumTemplate, machine: Machine, dims: Mapping[str, int] | None = None
) -> Blocking | None:
    """How a template is tiled on a machine, for these values of its kernel's named dims.

    None where a size is not known: then the plan is made in the call.
    """
    dims = dims or {}
    sizes: list[Number] = [substitute(size, dims) for size in template.sizes]
    if machine.tiling is None or any(isinstance(size, Dim) for size in sizes):
        return None
    if isinstance(template, Convolution):
        return plan_convolution(template, machine, dims)
    request = request_of(template, machine.tiling, sizes)
    machine = machine_of(machine, step_of(template, machine.tiling))
    return tiled(request, machine, template.acc_dtype.itemsize)


def scratch_bytes(
    program: Program, machine: Machine, dims: Mapping[str, int], workers: int
) -> int:
    """Scratch memory of a program's templates, for these values of its dims and so many chunks
    at a time: templates run one after the other, and each has all of it."""
    found = 0
    for step in leaves(program.steps):
        if isinstance(step, Launch) and step.kernel.template is not None:
            sizes = zip(step.kernel.dims, step.dims, strict=True)
            own = {name: evaluate(size, dims) for name, size in sizes}
            plan = plan_template(step.kernel.template, machine, own)
            found = max(found, 0 if plan is None else plan.scratch(workers))
    return found


# --- what a product asks for --------------------------------------------------------------------


def request_of(product: Product, tiling: Tiling, sizes: list[Number]) -> Request:
    """The request of a matrix product of these sizes: batch, m, n, k."""
    batch, m, n, k = sizes
    _, left_m, left_k = base_and_strides(product.left, "m", "k")
    panels = panels_of(product.right.index)
    _, _, right_n = (0, 0, 0) if panels else base_and_strides(product.right, "k", "n")
    step = step_of(product, tiling)
    left, right = product.left.dtype is step.left, product.right.dtype is step.right
    if step.group > 1:  # panels have words side by side; the left operand may, where it lies
        left, right, left_m = left and k % step.group == 0 and not step.centred, False, 0
    steps, itemsize = quotient_up(k, step.group), product.acc_dtype.itemsize
    direct = reads_left(left_k == 1, left_m == 1, (m, n, k), tiling, itemsize)
    plain = Request(
        batch, m, n, steps, terms=k, left_direct=left and direct,
        right_direct=right and right_n == 1, segment=steps, quantum=step.quantum,
        most_steps=tiling.product_steps(itemsize), dense=True, panels=panels is not None,
        window=False, pack_scratch=0, pack_scratch_column=0, heads=step.heads,
    )
    if not (is_dot(product, tiling) and (m <= tiling.dot_rows or n <= tiling.dot_columns)):
        return plain
    return Request(
        batch, m, n, 1, terms=k, left_direct=True, right_direct=False, segment=1, quantum=1,
        most_steps=tiling.block_k, dense=False, panels=False, window=False, pack_scratch=0,
        pack_scratch_column=0,
    )


def is_dot(product: Product, tiling: Tiling) -> bool:
    """Whether both operands are contiguous along k, so that few rows or columns need no packing."""
    if panels_of(product.right.index):
        return False
    _, _, left_k = base_and_strides(product.left, "m", "k")
    _, right_k, _ = base_and_strides(product.right, "k", "n")
    step = step_of(product, tiling)
    same = product.left.dtype is step.left and product.right.dtype is step.right
    dots = not step.centred and not step.matrix
    return dots and same and left_k == 1 and right_k == 1
