"""Composite operators that ONNX has whole. A node that no rule takes is written in primitives."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from graphc.ir import dtypes
from graphc.ir.dim import is_static
from graphc.ir.graph import Builder, Node
from graphc.ir.late import late

from .movement import transpose
from .rules import rule
from .walk import write

if TYPE_CHECKING:
    from .writer import Writer

_decompose = late("graphc.ir.passes.decompose")
_GELU = 20  # the opset from which on there is Gelu (whose constants are of float32)
_LAYER_NORM = 17  # and LayerNormalization
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
        w.opset >= _LAYER_NORM and node.dtype is not dtypes.f64
        and is_static(normalized) and 0 not in normalized
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


_ATTENTION = 23  # the opset from which on there is Attention
_TRIANGLES = 14  # and Trilu


def _plain_attention(w: Writer, node: Node) -> bool:
    """In float32, without dropout, on [batch, heads, length, width], or fewer dims."""
    q, k = node.inputs[:2]
    if "dropout" in node.attrs or q.dtype is not dtypes.f32:
        return False
    causal = node.attrs["causal"]
    if w.opset >= _ATTENTION:
        # where lengths differ, runtimes do not agree on which keys are earlier
        return 2 <= len(q.shape) <= 4 and (not causal or q.shape[-2] == k.shape[-2])
    # a mask may leave a query without keys, for which Softmax is not defined
    return len(node.inputs) == 3 and not (causal and w.opset < _TRIANGLES)


@rule("attention", takes=_plain_attention)
def _attention(w: Writer, node: Node, q: str, k: str, v: str, mask: str = "") -> Any:
    if w.reads(node, 1):
        return _in_primitives(w, node, *filter(None, (q, k, v, mask)))
    if w.opset < _ATTENTION:
        return _of_products(w, node, q, k, v), ""
    rank = len(node.inputs[0].shape)
    front = w.ints(list(range(4 - rank)))
    if rank < 4:
        q, k, v = (w.emit("Unsqueeze", each, front) for each in (q, k, v))
    if mask and len(node.inputs[3].shape) < 2:
        mask = w.emit("Unsqueeze", mask, w.ints([0]))
    causal = {"is_causal": 1} if node.attrs["causal"] else {}
    found = w.emit("Attention", q, k, v, mask, scale=float(node.attrs["scale"]), **causal)
    return (found if rank == 4 else w.emit("Squeeze", found, front)), ""


def _in_primitives(w: Writer, node: Node, *inputs: str) -> tuple[str, ...]:
    """All results of a node, by its decomposition."""
    builder = Builder()
    given = [builder.input(each.tensor_type) for each in node.inputs]
    graph = builder.build(builder.results(builder.emit(node.op, *given, **node.attrs)), "parts")
    return tuple(write(w, _decompose.decompose(graph), inputs))


def _of_products(w: Writer, node: Node, q: str, k: str, v: str) -> str:
    """Two products and a softmax: every query sees a key."""
    queries, keys = node.inputs[0].shape, node.inputs[1].shape
    rank = len(queries)
    turned = transpose(w, k, [*range(rank - 2), rank - 1, rank - 2])
    scores = w.emit("MatMul", w.emit("Mul", q, w.like(node.attrs["scale"], q)), turned)
    if node.attrs["causal"]:
        never = w.emit(
            "Expand", w.like(-np.inf, scores), w.shape((queries[-2], keys[-2]))
        )
        after = w.emit("Trilu", never, w.constant(1, dtypes.i64), upper=1)
        scores = w.emit("Add", scores, after)
    found: str = w.emit("MatMul", w.emit("Softmax", scores, axis=rank - 1), v)
    return found
