"""torch.nn.grad: gradients of convolutions, by their own names."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..frontend.dispatch import apply
from ..frontend.tensor import Tensor
from ..ir import ops
from .functional.conv import tuple_of


def _input(spatial: int) -> Callable[..., Tensor]:
    def gradient(
        input_size: Any, weight: Tensor, grad_output: Tensor, stride: Any = 1, padding: Any = 0,
        dilation: Any = 1, groups: int = 1,
    ) -> Tensor:
        border = tuple_of(padding, spatial)
        result: Tensor = apply(
            ops.conv_input_grad, grad_output, weight, input_shape=tuple(input_size),
            stride=tuple_of(stride, spatial), pad_low=border, pad_high=border,
            dilation=tuple_of(dilation, spatial), groups=groups,
        )
        return result

    gradient.__name__ = f"conv{spatial}d_input"
    gradient.__doc__ = f"The gradient of conv{spatial}d with respect to its input."
    return gradient


def _weight(spatial: int) -> Callable[..., Tensor]:
    def gradient(
        input: Tensor, weight_size: Any, grad_output: Tensor, stride: Any = 1, padding: Any = 0,
        dilation: Any = 1, groups: int = 1,
    ) -> Tensor:
        border = tuple_of(padding, spatial)
        result: Tensor = apply(
            ops.conv_weight_grad, input, grad_output, weight_shape=tuple(weight_size),
            stride=tuple_of(stride, spatial), pad_low=border, pad_high=border,
            dilation=tuple_of(dilation, spatial), groups=groups,
        )
        return result

    gradient.__name__ = f"conv{spatial}d_weight"
    gradient.__doc__ = f"The gradient of conv{spatial}d with respect to its weight."
    return gradient


conv1d_input, conv2d_input, conv3d_input = _input(1), _input(2), _input(3)
conv1d_weight, conv2d_weight, conv3d_weight = _weight(1), _weight(2), _weight(3)
