"""Activations: elementwise functions of neural networks, and softmax."""

from __future__ import annotations

from typing import Any

from .....frontend import functions as T
from .....frontend.tensor import Tensor
from .....nn import functional as F
from ..table import Node, operator


@operator("Relu", 6)
def relu(node: Node, x: Tensor) -> Any:
    return T.relu(x) if x.dtype.is_floating_point else T.clamp(x, min=0)


@operator("Sigmoid", 6)
def sigmoid(node: Node, x: Tensor) -> Any:
    return T.sigmoid(x)


@operator("Tanh", 6)
def tanh(node: Node, x: Tensor) -> Any:
    return T.tanh(x)


@operator("LeakyRelu", 6)
def leaky_relu(node: Node, x: Tensor) -> Any:
    return F.leaky_relu(x, node.get("alpha", 0.01))


@operator("ThresholdedRelu", 10)
def thresholded_relu(node: Node, x: Tensor) -> Any:
    return T.where(x > node.get("alpha", 1.0), x, T.zeros_like(x))


@operator("PRelu", 6)
def prelu_of_channels(node: Node, x: Tensor, slope: Tensor) -> Any:
    """A slope for each channel, or one for all."""
    return prelu(node, x, slope.reshape([-1] + [1] * (x.dim() - 2)))


@operator("PRelu", 7)
def prelu(node: Node, x: Tensor, slope: Tensor) -> Any:
    """The slope broadcasts to x, from the right."""
    return T.where(x < 0, x * slope, x)


@operator("Elu", 6)
def elu(node: Node, x: Tensor) -> Any:
    return F.elu(x, node.get("alpha", 1.0))


@operator("Celu", 12)
def celu(node: Node, x: Tensor) -> Any:
    return F.celu(x, node.get("alpha", 1.0))


@operator("Selu", 6)
def selu(node: Node, x: Tensor) -> Any:
    alpha, gamma = node.get("alpha", 1.67326319217681884765625), node.get("gamma", 1.05070102214813)
    return gamma * T.where(x > 0, x, alpha * T.expm1(T.clamp(x, max=0)))


@operator("Softplus", 1)
def softplus(node: Node, x: Tensor) -> Any:
    return F.softplus(x)


@operator("Softsign", 1)
def softsign(node: Node, x: Tensor) -> Any:
    return F.softsign(x)


@operator("HardSigmoid", 6)
def hard_sigmoid(node: Node, x: Tensor) -> Any:
    return T.clamp(node.get("alpha", 0.2) * x + node.get("beta", 0.5), 0, 1)


@operator("HardSwish", 14)
def hard_swish(node: Node, x: Tensor) -> Any:
    return F.hardswish(x)


@operator("Mish", 18)
def mish(node: Node, x: Tensor) -> Any:
    return F.mish(x)


@operator("Swish", 24)
def swish(node: Node, x: Tensor) -> Any:
    alpha = node.get("alpha", 1.0)
    return F.silu(x) if alpha == 1 else x * T.sigmoid(alpha * x)


@operator("SwiGLU", 28)
def swiglu(node: Node, gate: Tensor, x: Tensor) -> Any:
    if tuple(gate.shape) != tuple(x.shape):
        node.refuse(
            f"its inputs have the shapes {list(gate.shape)} and {list(x.shape)}",
            "give it inputs of one shape",
        )
    return swish(node, gate) * x


@operator("Gelu", 20)
def gelu(node: Node, x: Tensor) -> Any:
    return F.gelu(x, approximate=node.one_of("approximate", "none", ("none", "tanh")))


@operator("Shrink", 9)
def shrink(node: Node, x: Tensor) -> Any:
    bias, limit = node.get("bias", 0.0), node.get("lambd", 0.5)
    below = T.where(x < -limit, x + bias, T.zeros_like(x)).to(x.dtype)
    return T.where(x > limit, x - bias, below).to(x.dtype)


def _flat(node: Node, x: Tensor, function: Any) -> Any:
    """As of operator sets before 13: of a matrix, rows of all dims from `axis` on."""
    axis = node.get("axis", 1) % max(x.dim(), 1)
    rows = x.reshape(1, -1) if axis == 0 else x.flatten(axis) if x.dim() > axis + 1 else x
    return function(rows, -1).reshape(x.shape)


@operator("Softmax", 1)
def softmax_flat(node: Node, x: Tensor) -> Any:
    return _flat(node, x, T.softmax)


@operator("Softmax", 13)
def softmax(node: Node, x: Tensor) -> Any:
    return T.softmax(x, node.get("axis", -1))


@operator("LogSoftmax", 1)
def log_softmax_flat(node: Node, x: Tensor) -> Any:
    return _flat(node, x, T.log_softmax)


@operator("LogSoftmax", 13)
def log_softmax(node: Node, x: Tensor) -> Any:
    return T.log_softmax(x, node.get("axis", -1))


def _hardmax(x: Tensor, dim: int) -> Tensor:
    """1 at the first largest of each row."""
    largest = T.argmax(x, dim, keepdim=True)
    return T.zeros_like(x).scatter(dim, largest, 1)


@operator("Hardmax", 1)
def hardmax_flat(node: Node, x: Tensor) -> Any:
    return _flat(node, x, _hardmax)


@operator("Hardmax", 13)
def hardmax(node: Node, x: Tensor) -> Any:
    return _hardmax(x, node.get("axis", -1))
