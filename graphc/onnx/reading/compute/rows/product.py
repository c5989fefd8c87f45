"""Products of matrices."""

from __future__ import annotations

from typing import Any

from .....frontend import functions as T
from .....frontend.tensor import Tensor
from .....linalg.solves import det as determinant
from .....nn import functional as F
from ..table import Node, operator


@operator("MatMul", 1)
def matmul(node: Node, a: Tensor, b: Tensor) -> Any:
    return T.matmul(a, b)


@operator("Gemm", 6)
def gemm(node: Node, a: Tensor, b: Tensor, c: Tensor | None = None) -> Any:
    """alpha * A * B + beta * C."""
    a = a.t() if node.get("transA", 0) else a
    alpha, beta = node.get("alpha", 1.0), node.get("beta", 1.0)
    linear = alpha == 1 and beta == 1 and node.get("transB", 0)
    if linear and c is not None and c.dim() == 1 and c.shape[0] == b.shape[0]:
        return F.linear(a, b, c)
    product = T.matmul(a, b.t() if node.get("transB", 0) else b)
    if alpha != 1:
        product = _times(alpha, product)
    if c is None:
        return product
    return product + (c if beta == 1 else _times(beta, c))


def _times(factor: float, x: Tensor) -> Tensor:
    return x * factor if x.dtype.is_floating_point else (x * factor).to(x.dtype)


@operator("Einsum", 12)
def einsum(node: Node, *given: Tensor) -> Any:
    return T.NAMES["einsum"](node.get("equation", "").replace(" ", ""), *given)


@operator("Det", 11)
def det(node: Node, x: Tensor) -> Any:
    return determinant(x)
