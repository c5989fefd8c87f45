"""Activations: elementwise functions of neural networks, and softmax."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .....frontend import functions as T
from .....frontend.tensor import Tensor
from .....nn import functional as F
from ..table import Node, operator
from .arithmetic import unary


@operator("Relu", 6)
def relu(node: Node, x: Tensor) -> Any:
    return T.relu(x) if x.dtype.is_floating_point else T.clamp(x, min=0)


unary("Sigmoid", 6, T.sigmoid)
unary("Tanh", 6, T.tanh)
unary("Softplus", 1, F.softplus)
unary("Softsign", 1, F.softsign)
unary("HardSwish", 14, F.hardswish)
unary("Mish", 18, F.mish)


def _sloped(name: str, since: int, compute: Callable[..., Any], alpha: float) -> None:
    """`alpha`: where a node does not say it."""
    def row(node: Node, x: Tensor) -> Any:
        return compute(x, node.get("alpha", alpha))

    operator(name, since)(row)


_sloped("LeakyRelu", 6, F.leaky_relu, 0.01)
_sloped("Elu", 6, F.elu, 1.0)
_sloped("Celu", 12, F.celu, 1.0)


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


@operator("Selu", 6)
def selu(node: Node, x: Tensor) -> Any:
    alpha, gamma = node.get("alpha", 1.67326319217681884765625), node.get("gamma", 1.05070102214813)
    return gamma * T.where(x > 0, x, alpha * T.expm1(T.clamp(x, max=0)))


@operator("HardSigmoid", 6)
def hard_sigmoid(node: Node, x: Tensor) -> Any:
    return T.clamp(node.get("alpha", 0.2) * x + node.get("beta", 0.5), 0, 1)


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


def _rows(name: str, compute: Callable[[Tensor, int], Tensor]) -> None:
    """A function of the rows along `axis`."""
    def flat(node: Node, x: Tensor) -> Any:
        """Of operator sets before 13: of a matrix, whose rows are all dims from `axis` on."""
        axis = node.get("axis", 1) % max(x.dim(), 1)
        rows = x.reshape(1, -1) if axis == 0 else x.flatten(axis) if x.dim() > axis + 1 else x
        return compute(rows, -1).reshape(x.shape)

    def row(node: Node, x: Tensor) -> Any:
        return compute(x, node.get("axis", -1))

    operator(name, 1)(flat)
    operator(name, 13)(row)


def _hardmax(x: Tensor, dim: int) -> Tensor:
    """1 at the first largest of each row."""
    largest = T.argmax(x, dim, keepdim=True)
    return T.zeros_like(x).scatter(dim, largest, 1)


_rows("Softmax", T.softmax)
_rows("LogSoftmax", T.log_softmax)
_rows("Hardmax", _hardmax)
