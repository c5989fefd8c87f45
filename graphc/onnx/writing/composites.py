"""Composite operators that ONNX has whole. A node that no rule takes is written in primitives."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from graphc.ir import dtypes
from graphc.ir.dim import is_static
from graphc.ir.graph import Node

from .rules import rule

if TYPE_CHECKING:
    from .writer import Writer

_GELU = 20  # the opset from which on there is Gelu (whose constants are of float32)
_AS_SOFTPLUS = 15.0  # from here on log(1 + exp(x)) is x in float32


def _has_elements(w: Writer, node: Node) -> bool:
    return bool(node.shape) and node.shape[node.attrs["dim"]] != 0


def in_32_bits(w: Writer, node: Node, x: str, op: str, **attrs: Any) -> str:
    """An operator that we compute in float32 at least, and runtimes in the dtype given."""
    if node.dtype.bits < 32:
        x = w.cast(x, dtypes.f32)
    return w.cast(w.emit(op, x, **attrs), node.dtype)


@rule("softmax", takes=_has_elements)
def _softmax(w: Writer, node: Node, x: str) -> Any:
    return in_32_bits(w, node, x, "Softmax", axis=node.attrs["dim"])


@rule("log_softmax", takes=_has_elements)
def _log_softmax(w: Writer, node: Node, x: str) -> Any:
    return in_32_bits(w, node, x, "LogSoftmax", axis=node.attrs["dim"])


@rule("gelu", takes=lambda w, node: w.opset >= _GELU and node.dtype is not dtypes.f64)
def _gelu(w: Writer, node: Node, x: str) -> Any:
    return in_32_bits(w, node, x, "Gelu", approximate=node.attrs["approximate"])


def _plain_softplus(w: Writer, node: Node) -> bool:
    attrs = node.attrs
    return (
        node.dtype.bits <= 32 and attrs["beta"] == 1.0 and attrs["threshold"] >= _AS_SOFTPLUS
    )


@rule("softplus", takes=_plain_softplus)
def _softplus(w: Writer, node: Node, x: str) -> Any:
    return in_32_bits(w, node, x, "Softplus")


def _plain_layer_norm(w: Writer, node: Node) -> bool:
    """In float32 inside, of parameters of one dtype."""
    normalized = [node.shape[d] for d in node.attrs["normalized_dims"]]
    return (
        node.dtype is not dtypes.f64 and is_static(normalized) and 0 not in normalized
        and all(each.dtype is node.dtype for each in node.inputs)
    )


@rule("layer_norm", takes=_plain_layer_norm)
def _layer_norm(w: Writer, node: Node, x: str, *parameters: str) -> Any:
    dims = node.attrs["normalized_dims"]
    if not parameters:
        sizes = [node.shape[d] for d in dims]
        parameters = (w.constant(np.ones(sizes), node.dtype),)
    return w.emit(
        "LayerNormalization", x, *parameters, axis=dims[0], epsilon=node.attrs["eps"],
        stash_type=1,
    )
