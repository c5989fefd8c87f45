"""alone: the gradient of a depthwise convolution for its image is a depthwise convolution itself.

Each channel of the image gets the sum of what its positions gave to the results: the results'
gradient, under the window turned around. As products these are of one row each; as a convolution
they go plane by plane, several lines at a time. Where results lie two apart, zeros come between
their gradients: a quarter of the terms are wanted then, which still takes a fraction of the time.
"""

from __future__ import annotations

from typing import NamedTuple

from .. import dtypes
from ..graph import Builder, Graph, Node
from ..machine import Machine
from ..op import get
from ..rewrite import everywhere, rebuilt, with_inputs

MOST_STRIDE = 2
MOST_TAPS = 49
LEAST_LANES = 8  # of float32 in a register


class _Turned(NamedTuple):
    """The padding of the convolution, before and behind each dim, and the results' strides."""

    low: tuple[int, ...]
    high: tuple[int, ...]
    stride: tuple[int, ...]


def alone(graph: Graph, machine: Machine) -> Graph:
    """The graph with such gradients as convolutions; itself where it has none, or the machine has
    no tiles."""
    tiling = machine.tiling
    if tiling is None or tiling.lanes(dtypes.f32.itemsize) < LEAST_LANES:
        return graph

    def one(part: Graph) -> Graph:
        found = {node: turned for node in part.nodes if (turned := _turned(node)) is not None}
        return _rewritten(part, found) if found else part

    return everywhere(graph, one)


def _turned(node: Node) -> _Turned | None:
    """How a gradient is computed so; None where it is not."""
    if node.op.name != "conv_input_grad" or node.dtype not in (dtypes.f32, dtypes.f64):
        return None
    (g, weight), attrs = node.inputs, node.attrs
    image, results, window = node.shape[2:], g.shape[2:], weight.shape[2:]
    channels, rank = attrs["groups"], len(image)
    if not channels == node.shape[1] == g.shape[1] or channels == 1 or rank > 2:
        return None
    low, high, taps = [], [], 1
    for size, count, extent, stride, before, dilation in zip(
        image, results, window, attrs["stride"], attrs["pad_low"], attrs["dilation"], strict=True
    ):
        if not (isinstance(size, int) and isinstance(count, int) and isinstance(extent, int)):
            return None
        if not 1 <= stride <= MOST_STRIDE or min(size, count, extent) < 1:
            return None
        reach = (extent - 1) * dilation
        low.append(reach - before)
        high.append(size + before - ((count - 1) * stride + 1))
        taps *= extent
    if min(*low, *high) < 0 or taps > MOST_TAPS:
        return None
    return _Turned(tuple(low), tuple(high), tuple(attrs["stride"]))


def _rewritten(graph: Graph, found: dict[Node, _Turned]) -> Graph:
    builder = Builder(graph.env)
    new: dict[Node, Node] = {}
    for node in graph.nodes:
        inputs = [new[x] for x in node.inputs]
        turned = found.get(node)
        if turned is None:
            new[node] = with_inputs(node, inputs)
            continue
        with builder.at(node.loc, node.backward):
            new[node] = _convolved(builder, node, inputs, turned)
    return rebuilt(graph, new)


def _convolved(builder: Builder, node: Node, inputs: list[Node], turned: _Turned) -> Node:
    g, weight = inputs
    rank = len(turned.low)
    if max(turned.stride) > 1:
        none = (0,) * (2 + rank)
        between = (0, 0, *(stride - 1 for stride in turned.stride))
        g = builder.emit(get("pad"), g, low=none, high=none, interior=between, value=0.0)
    flipped = builder.emit(get("flip"), weight, dims=tuple(range(2, 2 + rank)))
    return builder.emit(
        get("conv"), g, flipped, stride=(1,) * rank, pad_low=turned.low, pad_high=turned.high,
        dilation=node.attrs["dilation"], groups=node.attrs["groups"],
    )
