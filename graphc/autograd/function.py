"""torch.autograd.function."""

from ..frontend.function import Function as Function
from ..frontend.function import FunctionCtx as FunctionCtx
from ..frontend.function import once_differentiable as once_differentiable
