"""Several of our nodes that ONNX has as one: what runtimes know well, and then fold further.

A batch norm in eval mode is (x - mean) * (rsqrt(var + eps) * weight) + bias here, by channel; the
bias of a convolution or a matrix product is an addition.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from graphc.ir import dtypes
from graphc.ir.graph import Graph, Node
from graphc.ir.rewrite import scalar_value

from . import recurrent
from .rules import RULES, attributes

if TYPE_CHECKING:
    from .writer import Writer


@dataclass(frozen=True)
class Match:
    """`inputs`: the nodes that `write` wants the names of."""

    inputs: tuple[Node, ...]
    write: Callable[..., str | tuple[str, ...]]


@dataclass
class Found:
    """Matches by the node that they end in, and the nodes that are written with those alone."""

    ends: dict[Node, Match] = field(default_factory=dict)
    inside: set[Node] = field(default_factory=set)


def find(w: Writer, graph: Graph) -> Found:
    """The patterns of a graph."""
    found, users, outputs = Found(), graph.users(), set(graph.outputs)

    def alone(node: Node) -> bool:
        return len(users[node]) == 1 and node not in outputs

    for node in graph.nodes:
        for pattern in (_batch_norm, _biased, _layer_over_time):
            match = pattern(node, alone)
            if match is not None:
                found.ends[node] = match[0]
                found.inside.update(match[1])
                break
    for end in [end for end in found.ends if end in found.inside]:
        del found.ends[end]  # part of a larger one
    return found


Alone = Callable[[Node], bool]
Result = tuple[Match, list[Node]] | None


def _sides(node: Node, op: str) -> list[tuple[Node, Node]]:
    """The operands of a commutative operator, either way round."""
    if node.op.name != op:
        return []
    a, b = node.inputs
    return [(a, b), (b, a)]


def _by_channel(node: Node, rank: int, channels: Any) -> Node | None:
    """The vector that is laid along dim 1 of `rank` dims."""
    if node.op.name != "reshape" or len(node.inputs[0].shape) != 1:
        return None
    (vector,) = node.inputs
    along = (1,) * (rank - len(node.shape)) + node.shape
    wanted = tuple(channels if d == 1 else 1 for d in range(rank))
    return vector if along == wanted and vector.shape == (channels,) else None


# --- batch norm --------------------------------------------------------------------------------


def _batch_norm(node: Node, alone: Alone) -> Result:
    """With a bias: without one nothing of it is lost by two operators."""
    for scaled, shift in _sides(node, "add"):
        for centred, scale in _sides(scaled, "mul"):
            if centred.op.name == "sub" and alone(scaled) and alone(centred):
                match = _normalised(centred, scale, shift)
                if match is not None and node.shape == centred.inputs[0].shape:
                    return match, [scaled, centred]
    return None


def _normalised(centred: Node, scale: Node, shift: Node) -> Match | None:
    x, mean = centred.inputs
    rank = len(x.shape)
    if rank < 2 or not isinstance(x.shape[1], int) or x.dtype is dtypes.f64:
        return None
    vectors = [_by_channel(each, rank, x.shape[1]) for each in (mean, scale, shift)]
    if any(each is None or each.dtype is not x.dtype for each in vectors):
        return None
    means, scales, shifts = vectors
    assert means is not None and scales is not None and shifts is not None
    for root, weight in _sides(scales, "mul"):
        if root.op.name != "rsqrt":
            continue
        for variance, small in _sides(root.inputs[0], "add"):
            number = scalar_value(small)
            if number is not None and variance.shape == means.shape:
                return Match((x, weight, shifts, means, variance), _norm(float(number)))
    return None


def _norm(epsilon: float) -> Callable[..., str]:
    def write(w: Writer, *names: str) -> str:
        found: str = w.emit("BatchNormalization", *names, epsilon=epsilon)
        return found

    return write


# --- loops over time ---------------------------------------------------------------------------


def _layer_over_time(node: Node, alone: Alone) -> Result:
    found = recurrent.match(node, alone)
    if found is None:
        return None
    inputs, write, inside = found
    return Match(inputs, write), inside


# --- biases ------------------------------------------------------------------------------------

_BIASED = ("conv", "conv_input_grad", "dot_general")


def _biased(node: Node, alone: Alone) -> Result:
    for product, bias in _sides(node, "add"):
        if product.op.name not in _BIASED or not alone(product) or node.shape != product.shape:
            continue
        if node.dtype not in (dtypes.f32, dtypes.f64, dtypes.f16, dtypes.bf16):
            continue
        vector = _bias(product, bias)
        if vector is not None:
            return Match((*product.inputs, vector, bias), _with_bias(product)), [product]
    return None


def _bias(product: Node, bias: Node) -> Node | None:
    rank = len(product.shape)
    if product.op.name != "dot_general":
        return _by_channel(bias, rank, product.shape[1])
    attrs = attributes(product)
    plain = (
        rank == 2 and not attrs["batch_a"] and all(len(x.shape) == 2 for x in product.inputs)
    )
    return bias if plain and bias.shape == product.shape[1:] else None


def _with_bias(product: Node) -> Callable[..., str]:
    """The product's own rule, whose last node then takes one more input."""

    def write(w: Writer, a: str, b: str, vector: str, bias: str) -> str:
        name = RULES[product.op.name](w, product, a, b)
        assert isinstance(name, str)
        last: Any = w.nodes[-1]
        if last.op_type not in ("Conv", "ConvTranspose", "Gemm"):  # in another dtype
            added: str = w.emit("Add", name, bias)
            return added
        last.input.append(vector)
        return name

    return write
