"""A batch norm behind a convolution, whose numbers are constants, goes into the convolution's
weights: what is done to each channel by constants alone is y * scale + shift, and w * scale is a
constant, too.

Sums of products are then rounded after they are scaled, not before. (Freezing for inference does
the same elsewhere: pytorch.org/docs/stable/generated/torch.nn.utils.fusion.fuse_conv_bn_eval.html.)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...graph import Builder, Graph, Node
from ...op import get
from ...rewrite import rebuilt, with_inputs

Constants = Callable[[Graph], set[Node]]

_STEPS = frozenset({"add", "sub", "mul"})


class _Affine:
    """What a chain of steps does to each channel: value * scale + shift; None: nothing."""

    def __init__(self, builder: Builder, channels: int) -> None:
        self.builder, self.channels = builder, channels
        self.scale: Node | None = None
        self.shift: Node | None = None

    def step(self, name: str, number: Node, first: bool) -> None:
        """One more step, by a number for each channel. `first`: the value is the left operand."""
        if name == "mul":
            self.scale = number if self.scale is None else self._emit("mul", self.scale, number)
            if self.shift is not None:
                self.shift = self._emit("mul", self.shift, number)
            return
        if name == "sub" and not first:
            self.scale = None if self.scale is None else self._emit("neg", self.scale)
            if self.scale is None:
                one = self.builder.const(-1.0, number.dtype)
                self.scale = self._emit("expand", one, shape=(self.channels,))
            self.shift = number if self.shift is None else self._emit("sub", number, self.shift)
            return
        if self.shift is None:
            self.shift = self._emit("neg", number) if name == "sub" else number
            return
        self.shift = self._emit(name, self.shift, number)

    def _emit(self, name: str, *inputs: Node, **attrs: Any) -> Node:
        return self.builder.emit(get(name), *inputs, **attrs)


def fold_norms(graph: Graph, constants: Constants) -> Graph:
    """The graph with such steps in the weights of its convolutions."""
    convolutions = [node for node in graph.nodes if node.op.name == "conv"]
    if not convolutions:
        return graph
    constant, users = constants(graph), graph.users()
    builder = Builder(graph.env)
    ends: dict[Node, tuple[Node, _Affine]] = {}
    for conv in convolutions:
        if conv.inputs[1] in constant and conv not in graph.outputs:
            end, affine = _chain(graph, builder, conv, constant, users)
            if affine.scale is not None:
                ends[end] = conv, affine
    if not ends:
        return graph
    new: dict[Node, Node] = {}
    for node in graph.nodes:
        if node in ends:
            with builder.at(node.loc, node.backward):
                new[node] = _folded(builder, new, *ends[node])
        else:
            new[node] = with_inputs(node, [new[x] for x in node.inputs])
    return rebuilt(graph, new)


def _chain(
    graph: Graph, builder: Builder, conv: Node, constant: set[Node],
    users: dict[Node, list[Node]],
) -> tuple[Node, _Affine]:
    """The last of the steps behind a convolution, and what they come to."""
    channels = conv.shape[1]
    assert isinstance(channels, int)
    affine, end = _Affine(builder, channels), conv
    while True:
        if end in graph.outputs or len(users[end]) != 1:
            return end, affine
        (step,) = users[end]
        if step.op.name not in _STEPS or step.shape != conv.shape:
            return end, affine
        first = step.inputs[0] is end
        other = step.inputs[1 if first else 0]
        if other is end or other not in constant or step.dtype is not conv.dtype:
            return end, affine
        with builder.at(step.loc, step.backward):
            number = _by_channel(builder, other, len(conv.shape), channels)
        if number is None:
            return end, affine
        affine.step(step.op.name, number, first)
        end = step


def _by_channel(builder: Builder, value: Node, rank: int, channels: int) -> Node | None:
    """A value that is broadcast to a convolution's result as a vector of numbers, one for each
    channel; None where it has others."""
    while value.op.name == "expand" and len(value.inputs[0].shape) == len(value.shape):
        value = value.inputs[0]
    shape = (1,) * (rank - len(value.shape)) + value.shape
    if len(shape) != rank or any(s != 1 for d, s in enumerate(shape) if d != 1):
        return None
    flat = builder.emit(get("reshape"), value, shape=(shape[1],))
    return builder.emit(get("expand"), flat, shape=(channels,)) if shape[1] == 1 else flat


def _folded(builder: Builder, new: dict[Node, Node], conv: Node, affine: _Affine) -> Node:
    """The convolution with scaled weights, and the shift added."""
    x, weight = (new[each] for each in conv.inputs)
    rank, channels = len(conv.shape), affine.channels
    assert affine.scale is not None

    def spread(numbers: Node, dim: int) -> Node:
        shape = tuple([channels if d == dim else 1 for d in range(rank)])
        return builder.emit(get("reshape"), numbers, shape=shape)

    scaled = builder.emit(get("mul"), weight, spread(affine.scale, 0))
    result = builder.emit(conv.op, x, scaled, **conv.attrs)
    if affine.shift is None:
        return result
    return builder.emit(get("add"), result, spread(affine.shift, 1))
