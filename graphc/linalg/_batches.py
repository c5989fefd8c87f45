"""What the functions of torch.linalg share: checks, batches, and results of several tensors."""

from __future__ import annotations

from typing import Any

from graphc.frontend import promote
from graphc.frontend.dispatch import apply
from graphc.frontend.errors import located
from graphc.frontend.functions import return_types
from graphc.frontend.functions.arguments import broadcast_sizes, shape, with_out
from graphc.frontend.tensor import Tensor
from graphc.ir import ops

__all__ = [
    "Tensor", "apply", "as_batch", "check_floating", "located", "ops", "promote", "result",
    "same_dtype", "shape", "transpose", "with_out",
]


def result(name: str, *fields: str) -> Any:
    """The named tuple that torch.linalg.NAME gives."""
    full = f"linalg_{name}"
    found = getattr(return_types, full, None)
    if found is None:
        found = return_types._struct(full, *fields)
        setattr(return_types, full, found)
    return found


def check_floating(name: str, x: Tensor) -> None:
    """Raise TypeError for what is no tensor, RuntimeError for one that is no float or complex."""
    if not isinstance(x, Tensor):
        raise TypeError(located(
            f"{name}(): argument 'A' (position 1) must be Tensor, not {type(x).__name__}"
        ))
    if not x.dtype.differentiable:
        raise RuntimeError(located(
            f"{name}: Expected a floating point or complex tensor as input. Got "
            f"{promote._name(x.dtype)}"
        ))


def same_dtype(name: str, a: Tensor, b: Tensor) -> None:
    """Raise RuntimeError unless A and B have one dtype."""
    if a.dtype is not b.dtype:
        raise RuntimeError(located(
            f"{name}: Expected A and B to have the same dtype, but found A of type "
            f"{promote._name(a.dtype)} and B of type {promote._name(b.dtype)} instead"
        ))


def as_batch(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    """Two batches of matrices, expanded to their common batch dims."""
    sizes_a, sizes_b = shape(a), shape(b)
    lead = broadcast_sizes(sizes_a[:-2], sizes_b[:-2])
    if sizes_a[:-2] != lead:
        a = apply(ops.expand, a, shape=(*lead, *sizes_a[-2:]))
    if sizes_b[:-2] != lead:
        b = apply(ops.expand, b, shape=(*lead, *sizes_b[-2:]))
    return a, b


def transpose(x: Tensor) -> Tensor:
    """The matrices transposed."""
    return x.transpose(-2, -1)
