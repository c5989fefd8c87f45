"""Batch normalisation of evaluation mode, merged into the layer before it."""

from __future__ import annotations

import copy
from typing import Any

from ...frontend import functions as T
from ...frontend.tensor import Parameter, Tensor


def fuse_conv_bn_eval(conv: Any, bn: Any, transpose: bool = False) -> Any:
    """A convolution that does what conv and then bn do."""
    if conv.training or bn.training:
        raise AssertionError("Fusion only for eval!")
    fused = copy.deepcopy(conv)
    fused.weight, fused.bias = fuse_conv_bn_weights(
        fused.weight, fused.bias, bn.running_mean, bn.running_var, bn.eps, bn.weight, bn.bias,
        transpose,
    )
    return fused


def fuse_conv_bn_weights(
    conv_w: Tensor, conv_b: Tensor | None, bn_rm: Tensor, bn_rv: Tensor, bn_eps: float,
    bn_w: Tensor | None, bn_b: Tensor | None, transpose: bool = False,
) -> tuple[Parameter, Parameter]:
    """The weight and bias of the fused convolution."""
    bias = T.zeros_like(bn_rm) if conv_b is None else conv_b
    scale = (T.ones_like(bn_rm) if bn_w is None else bn_w) * T.rsqrt(bn_rv + bn_eps)
    shift = T.zeros_like(bn_rm) if bn_b is None else bn_b
    shape = [1] * conv_w.dim()
    shape[1 if transpose else 0] = -1
    return _parameters(
        (conv_w * scale.reshape(shape)).to(conv_w.dtype),
        ((bias - bn_rm) * scale + shift).to(bias.dtype), conv_w.requires_grad,
        conv_w.requires_grad if conv_b is None else conv_b.requires_grad,
    )


def _parameters(
    weight: Tensor, bias: Tensor, weight_grad: bool, bias_grad: bool
) -> tuple[Parameter, Parameter]:
    return Parameter(weight.detach(), weight_grad), Parameter(bias.detach(), bias_grad)


def fuse_linear_bn_eval(linear: Any, bn: Any) -> Any:
    """A linear layer that does what linear and then bn do."""
    if linear.training or bn.training:
        raise AssertionError("Fusion only for eval!")
    if not (linear.out_features == bn.num_features or bn.num_features == 1):
        raise AssertionError(
            "To fuse, linear.out_features == bn.num_features or bn.num_features == 1"
        )
    fused = copy.deepcopy(linear)
    fused.weight, fused.bias = fuse_linear_bn_weights(
        fused.weight, fused.bias, bn.running_mean, bn.running_var, bn.eps, bn.weight, bn.bias
    )
    return fused


def fuse_linear_bn_weights(
    linear_w: Tensor, linear_b: Tensor | None, bn_rm: Tensor, bn_rv: Tensor, bn_eps: float,
    bn_w: Tensor, bn_b: Tensor,
) -> tuple[Parameter, Parameter]:
    """The weight and bias of the fused linear layer."""
    bias = T.zeros_like(bn_rm) if linear_b is None else linear_b
    scale = bn_w * T.rsqrt(bn_rv + bn_eps)
    return _parameters(
        linear_w * scale.unsqueeze(-1), (bias - bn_rm) * scale + bn_b, linear_w.requires_grad,
        linear_w.requires_grad if linear_b is None else linear_b.requires_grad,
    )
