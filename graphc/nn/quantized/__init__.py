"""torch.nn.quantized: the operators of quantized models, in float; there are no integer layers."""

from __future__ import annotations

from typing import Any

from ... import cat as _cat
from ... import unsupported
from ...frontend.tensor import Tensor
from ..functional import relu as _relu
from ..modules.linear import Identity
from ..modules.module import Module

__all__ = ["FXFloatFunctional", "FloatFunctional"]


class FXFloatFunctional(Module):
    """Arithmetic as methods, which observers of quantization could see."""

    def forward(self, *args: Any) -> Tensor:
        """Raises RuntimeError: the methods are what is called."""
        raise RuntimeError("FloatFunctional is not intended to use the 'forward'. "
                           "Please use the underlying operation")

    def add(self, x: Tensor, y: Any) -> Tensor:
        """x + y."""
        return x + y

    def add_scalar(self, x: Tensor, y: float) -> Tensor:
        """x + y for a number y."""
        return x + y

    def mul(self, x: Tensor, y: Any) -> Tensor:
        """x * y."""
        return x * y

    def mul_scalar(self, x: Tensor, y: float) -> Tensor:
        """x * y for a number y."""
        return x * y

    def matmul(self, x: Tensor, y: Tensor) -> Tensor:
        """x @ y."""
        return x @ y

    def cat(self, x: Any, dim: int = 0) -> Tensor:
        """The tensors of x along a dimension."""
        joined: Tensor = _cat(x, dim=dim)
        return joined

    def add_relu(self, x: Tensor, y: Tensor) -> Tensor:
        """relu(x + y)."""
        return _relu(x + y)


class FloatFunctional(FXFloatFunctional):
    """Arithmetic as methods; `activation_post_process` is where an observer would be."""

    def __init__(self) -> None:
        super().__init__()
        self.activation_post_process = Identity()

    def add(self, x: Tensor, y: Any) -> Tensor:
        """x + y."""
        return self._observed(super().add(x, y))

    def add_scalar(self, x: Tensor, y: float) -> Tensor:
        """x + y for a number y."""
        return super().add_scalar(x, y)  # torch does not observe it

    def mul(self, x: Tensor, y: Any) -> Tensor:
        """x * y."""
        return self._observed(super().mul(x, y))

    def matmul(self, x: Tensor, y: Tensor) -> Tensor:
        """x @ y."""
        return self._observed(super().matmul(x, y))

    def cat(self, x: Any, dim: int = 0) -> Tensor:
        """The tensors of x along a dimension."""
        return self._observed(super().cat(x, dim))

    def add_relu(self, x: Tensor, y: Tensor) -> Tensor:
        """relu(x + y)."""
        return self._observed(super().add_relu(x, y))

    def _observed(self, result: Tensor) -> Tensor:
        observed: Tensor = self.activation_post_process(result)
        return observed


_CURE = "run the model in float32 or bfloat16"
globals().update(unsupported.table("torch.nn.quantized", _CURE, kinds="""
    QFunctional BatchNorm2d BatchNorm3d Conv1d Conv2d Conv3d ConvTranspose1d ConvTranspose2d
    ConvTranspose3d DeQuantize ELU Embedding EmbeddingBag GroupNorm Hardswish InstanceNorm1d
    InstanceNorm2d InstanceNorm3d LayerNorm LeakyReLU Linear MaxPool2d Quantize ReLU6 Sigmoid
    Softmax Dropout PReLU
"""))
