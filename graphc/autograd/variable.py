"""torch.autograd.Variable: the name that tensors with gradients had before PyTorch 0.4."""

from __future__ import annotations

from typing import Any

from ..frontend.tensor import Tensor


class _VariableMeta(type):
    def __instancecheck__(cls, instance: Any) -> bool:
        return isinstance(instance, Tensor)


class Variable(metaclass=_VariableMeta):
    """Variable(tensor, requires_grad): a leaf on the tensor's memory."""

    def __new__(cls, data: Tensor, requires_grad: bool = False) -> Any:
        if not isinstance(data, Tensor):
            raise TypeError(f"Variable data has to be a tensor, but got {type(data).__name__}")
        return data.detach().requires_grad_(requires_grad)
