"""Loops over time that are ONNX's LSTM, GRU or RNN: runtimes have code of their own for these.

A scan's body is written as a text, in which commutative operands are sorted; where the texts of
what it hands on are those of a layer's step, and what it scans is an input through weights, the
loop is that operator. Anything else stays a Scan.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from graphc.ir import dtypes
from graphc.ir.graph import Graph, Node

from .rules import attributes

if TYPE_CHECKING:
    from .writer import Writer

Alone = Callable[[Node], bool]
Written = Callable[..., tuple[str, ...]]


def _of(op: str, *operands: str) -> str:
    return f"{op}({', '.join(sorted(operands) if op in _COMMUTE else operands)})"


_COMMUTE = frozenset({"add", "mul"})
_ELEMENTWISE = frozenset({"add", "mul", "sub", "sigmoid", "tanh", "relu"})


def _parts(x: str, count: int) -> list[str]:
    return [f"part {i} of {count} of {x}" for i in range(count)]


def _lstm() -> tuple[str, ...]:
    enter, forget, new, show = _parts(_of("add", "row", "linear(0, 2)"), 4)
    kept = _of("mul", _of("sigmoid", forget), "1")
    cell = _of("add", kept, _of("mul", _of("sigmoid", enter), _of("tanh", new)))
    return _of("mul", _of("sigmoid", show), _of("tanh", cell)), cell


def _gru(bias: bool) -> tuple[str, ...]:
    hidden = "linear(0, 1)"
    reset, update, new = _parts(_of("add", hidden, "2") if bias else hidden, 3)
    reset_in, update_in, new_in = _parts("row", 3)
    inner = _of("mul", _of("sigmoid", _of("add", reset_in, reset)), new)
    candidate = _of("tanh", _of("add", new_in, inner))
    update = _of("sigmoid", _of("add", update_in, update))
    return (_of("add", _of("mul", _of("sub", "0", candidate), update), candidate),)


def _plain(activation: str) -> tuple[str, ...]:
    return (_of(activation, _of("add", "row", "linear(0, 1)")),)


@dataclass(frozen=True)
class Layer:
    """An ONNX operator: how its step reads, the order of its gates in ours, its attributes."""

    op: str
    states: int
    order: tuple[int, ...]
    steps: tuple[tuple[str, ...], ...]
    attributes: tuple[tuple[str, Any], ...] = ()


_LAYERS = (
    Layer("LSTM", 2, (0, 3, 1, 2), (_lstm(),)),
    Layer("GRU", 1, (1, 0, 2), (_gru(True), _gru(False)), (("linear_before_reset", 1),)),
    Layer("RNN", 1, (0,), (_plain("tanh"),), (("activations", ("Tanh",)),)),
    Layer("RNN", 1, (0,), (_plain("relu"),), (("activations", ("Relu",)),)),
)


def match(node: Node, alone: Alone) -> tuple[tuple[Node, ...], Written, list[Node]] | None:
    """What a scan reads as one of these operators, how that is written, and the nodes inside."""
    if node.op.name != "scan" or node.inputs[0].dtype is not dtypes.f32:
        return None
    (body,) = node.graphs
    found = _layer(node, body)
    if found is None:
        return None
    layer, inner = found
    inside: list[Node] = []
    projected = node.inputs[-1]
    while _moves_nothing(projected) and alone(projected):
        inside.append(projected)
        (projected,) = projected.inputs
    bias: Node | None = None
    if projected.op.name == "add" and alone(projected):
        product, bias = projected.inputs
        if product.op.name != "dot_general":
            product, bias = bias, product
        inside.append(projected)
    else:
        product = projected
    if product.op.name != "dot_general" or not alone(product):
        return None
    gates = projected.shape[-1]
    attrs = attributes(product)
    x, weight = product.inputs
    fits = (
        not attrs["batch_a"] and tuple(attrs["contract_a"]) == (2,)
        and tuple(attrs["contract_b"]) == (1,) and len(x.shape) == 3 and len(weight.shape) == 2
        and (bias is None or bias.shape == (gates,)) and isinstance(gates, int)
    )
    if not fits:
        return None
    biases = tuple(each for each in (bias,) if each is not None)
    given = (x, weight, *biases, *node.inputs[:-1])
    write = _writer(node, layer, len(biases), inner)
    return given, write, [*inside, product]


def _moves_nothing(node: Node) -> bool:
    dims = node.attrs.get("dims", ())
    return node.op.name == "permute" and list(dims) == sorted(dims)


def _layer(node: Node, body: Graph) -> tuple[Layer, bool] | None:
    """The operator whose step the body is, and whether that adds a bias to the hidden state's
    share."""
    carried = node.attrs["n_carried"]
    if len(body.inputs) != carried + 1 or len(body.outputs) != carried + 1:
        return None
    names: dict[Node, str] = {each: str(i) for i, each in enumerate(body.inputs[:-1])}
    names[body.inputs[-1]] = "row"
    texts = [_text(each, names) for each in body.outputs]
    for layer in _LAYERS:
        for step in layer.steps:
            bias = layer.op == "GRU" and step is layer.steps[0]
            weights = [str(i) for i in range(layer.states, layer.states + 1 + bias)]
            if texts == [*step, *weights, step[0]] and len(body.inputs[0].shape) == 2:
                return layer, bias
    return None


def _text(node: Node, names: dict[Node, str]) -> str:
    """How a value is computed of the body's inputs."""
    if node not in names:
        names[node] = _spelled(node, names)
    return names[node]


def _spelled(node: Node, names: dict[Node, str]) -> str:
    op = node.op.name
    if op in _ELEMENTWISE:
        return _of(op, *[_text(each, names) for each in node.inputs])
    if op == "dot_general":
        attrs = attributes(node)
        plain = (
            not attrs["batch_a"] and tuple(attrs["contract_a"]) == (1,)
            and tuple(attrs["contract_b"]) == (1,)
            and all(len(each.shape) == 2 for each in node.inputs)
        )
        if plain:
            a, b = (_text(each, names) for each in node.inputs)
            return f"linear({a}, {b})"
    if op == "slice" and len(node.shape) == 2:
        have, want = node.inputs[0].shape, node.shape
        first, last = node.attrs["starts"]
        whole = have[0] == want[0] and first == 0 and tuple(node.attrs["steps"]) == (1, 1)
        if whole and isinstance(have[1], int) and have[1] % want[1] == 0 == last % want[1]:
            count = have[1] // want[1]
            return f"part {last // want[1]} of {count} of {_text(node.inputs[0], names)}"
    return f"{op} number {len(names)}"


def _writer(node: Node, layer: Layer, biases: int, inner: bool) -> Written:
    """Writes the operator: given x, its weights, its bias if any, and the scan's own inputs but the
    last."""

    def write(w: Writer, x: str, weight: str, *rest: str) -> tuple[str, ...]:
        bias, rest = rest[:biases], rest[biases:]
        states, (recurrent, *inner_bias) = rest[: layer.states], rest[layer.states :]
        front = w.ints([0])
        hidden = int(node.inputs[0].shape[1])  # type: ignore[arg-type]

        def gates(name: str) -> str:
            return _ordered(w, name, hidden, layer.order)

        both = ""
        if bias or inner_bias:
            zeros = w.constant(np.zeros(hidden * len(layer.order), np.float32), dtypes.f32)
            parts = [gates(each[0]) if each else zeros for each in (bias, inner_bias)]
            both = w.emit("Unsqueeze", w.emit("Concat", *parts, axis=0), front)
        matrices = [w.emit("Unsqueeze", gates(each), front) for each in (weight, recurrent)]
        begin = [w.emit("Unsqueeze", each, front) for each in states]
        every, *ends = w.emit(
            layer.op, x, *matrices, both, "", *begin, outputs=1 + layer.states,
            hidden_size=hidden, direction="reverse" if node.attrs["reverse"] else "forward",
            **{name: _plain_value(value) for name, value in layer.attributes},
        )
        last = [w.emit("Squeeze", each, front) for each in ends]
        return (*last, *rest[layer.states :], w.emit("Squeeze", every, w.ints([1])))

    return write


def _plain_value(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


def _ordered(w: Writer, x: str, hidden: int, order: Sequence[int]) -> str:
    """The rows of gates in ONNX's order."""
    if len(order) == 1:
        return x
    parts = w.emit("Split", x, w.ints([hidden] * len(order)), outputs=len(order), axis=0)
    found: str = w.emit("Concat", *[parts[i] for i in order], axis=0)
    return found
