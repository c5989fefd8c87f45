"""torch.autograd.Variable: the name that tensors with gradients had before PyTorch 0.4."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

from ..frontend.tensor import Tensor, from_array


class _VariableMeta(type):
    def __instancecheck__(cls, instance: Any) -> bool:
        return isinstance(instance, Tensor)


class Variable(metaclass=_VariableMeta):
    """Variable(tensor, requires_grad): a leaf on the tensor's memory."""

    def __new__(
        cls, data: Tensor | None = None, requires_grad: bool = False, volatile: bool | None = None
    ) -> Any:
        if data is None:
            data = from_array(np.zeros(0, np.float32))
        if not isinstance(data, Tensor):
            raise TypeError(f"Variable data has to be a tensor, but got {type(data).__name__}")
        if volatile is not None:
            warnings.warn(
                "volatile was removed (Variable.volatile is always False), please use with "
                "torch.no_grad() instead.", stacklevel=2,
            )
        return data.detach().requires_grad_(bool(requires_grad))
