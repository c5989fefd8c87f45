"""Numbers that stay on the host beside a recording on a device: an optimizer's counts of steps.

A call may write to CPU tensors without dimensions. The device's code computes what is written, but
for the host to read it back is to wait for all that is queued. Where it comes of numbers that the
host has, the host computes it as well.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from graphc.backends.numpy.ops import TABLE
from graphc.ir import interpret
from graphc.ir.graph import Graph, Node
from graphc.ir.memory import Array, Buffer, DeviceArray
from graphc.ir.op import ELEMENTWISE


class OnHost:
    """The outputs of a graph that the host knows: `written` are those that go into CPU tensors, and
    the inputs that these are."""

    def __init__(self, graph: Graph, written: Mapping[int, int], arrays: Sequence[Buffer]) -> None:
        numbers = {
            # gradients that come in later are inputs behind these
            node: i for i, (node, array) in enumerate(zip(graph.inputs, arrays, strict=False))
            if not isinstance(array, DeviceArray) and array.ndim == 0
        }
        known = set(numbers)
        for node in graph.nodes:
            if _is_number(node) and known.issuperset(node.inputs):
                known.add(node)
        here = set(numbers.values())
        self._outputs = [i for i, of in written.items() if graph.outputs[i] in known and of in here]
        kept = tuple(graph.outputs[i] for i in self._outputs)
        needed = set(Graph(graph.name, (), kept, graph.env).nodes)
        read = {node: i for node, i in numbers.items() if node in needed}
        self._inputs = list(read.values())
        self._graph = Graph(graph.name, tuple(read), kept, graph.env)

    def values(self, arrays: Sequence[Buffer]) -> dict[int, Array]:
        """What is written, by the output's number; nothing where a number is on the device this
        time."""
        given = [arrays[i] for i in self._inputs]
        if not self._outputs or any(isinstance(array, DeviceArray) for array in given):
            return {}
        found = interpret.evaluate(self._graph, given, TABLE)
        return dict(zip(self._outputs, found, strict=True))


def _is_number(node: Node) -> bool:
    if node.op.name == "full" and not isinstance(node.attrs["value"], int | float):
        return False
    numeric = node.op.family in ELEMENTWISE or node.op.name in ("const", "full")
    return numeric and node.shape == ()
