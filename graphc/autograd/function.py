"""torch.autograd.function."""

from __future__ import annotations

from ..frontend.function import Function as Function
from ..frontend.function import FunctionCtx as FunctionCtx
from ..frontend.function import FunctionNode as BackwardCFunction
from ..frontend.function import once_differentiable as once_differentiable


class InplaceFunction(Function):
    """A Function with an `inplace` flag, as old code subclasses."""

    def __init__(self, inplace: bool = False) -> None:
        self.inplace = inplace


NestedIOFunction = Function

__all__ = [
    "BackwardCFunction", "Function", "FunctionCtx", "InplaceFunction", "NestedIOFunction",
    "once_differentiable",
]
