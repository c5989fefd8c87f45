"""zero_grad(set_to_none=False) of one tensor."""

from __future__ import annotations

from .context import local
from .plain import fill_with_zeros
from .tensor import Tensor, current


def clear_grad(tensor: Tensor) -> None:
    """Make a gradient zeros, if there is one: to a recording, none and zeros are alike here."""
    trace = local.trace
    grad = tensor.grad if trace is None else trace.get_grad(current(tensor))
    if grad is None:
        return
    if grad.grad_fn is not None:
        grad.detach_()
    else:
        grad.requires_grad_(False)
    if not fill_with_zeros(grad):
        grad.zero_()
