"""Random numbers, from graphc's generator. A file's seed is another program's: it is not used."""

from __future__ import annotations

from typing import Any

from .....frontend import functions as T
from .....frontend.tensor import Tensor
from ..table import Node, operator
from .arithmetic import dtype_of
from .limits import check_count


def _dtype(node: Node, like: Any) -> Any:
    return dtype_of(node, node.get("dtype")) if node.get("dtype") else like


def _normal(node: Node, shape: Any, dtype: Any) -> Tensor:
    check_count(node, shape)
    return T.randn(shape, dtype=dtype) * node.get("scale", 1.0) + node.get("mean", 0.0)


def _uniform(node: Node, shape: Any, dtype: Any) -> Tensor:
    check_count(node, shape)
    low, high = node.get("low", 0.0), node.get("high", 1.0)
    return T.rand(shape, dtype=dtype) * (high - low) + low


@operator("RandomNormal", 1)
def normal(node: Node) -> Any:
    return _normal(node, list(node.get("shape", ())), _dtype(node, T.float32))


@operator("RandomUniform", 1)
def uniform(node: Node) -> Any:
    return _uniform(node, list(node.get("shape", ())), _dtype(node, T.float32))


@operator("RandomNormalLike", 1)
def normal_like(node: Node, x: Tensor) -> Any:
    return _normal(node, x.shape, _dtype(node, x.dtype))


@operator("RandomUniformLike", 1)
def uniform_like(node: Node, x: Tensor) -> Any:
    return _uniform(node, x.shape, _dtype(node, x.dtype))


@operator("Bernoulli", 15)
def bernoulli(node: Node, x: Tensor) -> Any:
    return T.bernoulli(x).to(_dtype(node, x.dtype))


@operator("Multinomial", 7)
def multinomial(node: Node, x: Tensor) -> Any:
    """Of unnormalised log-probabilities."""
    found = T.multinomial(T.softmax(x, -1), node.get("sample_size", 1), True)
    return found.to(_dtype(node, T.int32))
