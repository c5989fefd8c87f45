"""What identifies a recording: its graph and its tape as one hashable key, with values apart.

Two recordings with equal keys are the same operators on the same operands. `numbers` are what
may differ: sizes and positions (ints), and one-element constants (bytes). Constants of more
elements are inputs of what is compiled.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from graphc.ir.autodiff import saved_values
from graphc.ir.graph import Graph, Node, attr_key, toposort
from graphc.ir.late import late
from graphc.ir.types import TensorType

from .nodes import AccumulateGrad, Edge, OpNode
from .nodes import Node as GradNode
from .tape_order import order_of
from .tensor import Tensor
from .views import Chain
from .write_nodes import AsStridedBackward, CopyBackwards, CopySlices

_texts = late("graphc.ir.text")

_STEPS = (AsStridedBackward, CopySlices)


def tape_of(roots: Sequence[GradNode]) -> list[GradNode]:
    """Every node of the tape under these, after those that it has edges to."""
    return list(reversed(order_of(roots))) if roots else []


def broken_nodes(tape: Sequence[GradNode]) -> dict[GradNode, str]:
    """The nodes from which a backward pass would meet a value that was overwritten since, with
    what it would say."""
    found: dict[GradNode, str] = {}
    for node in tape:
        if isinstance(node, OpNode):
            try:
                node.check_saved()
            except RuntimeError as error:
                found[node] = str(error)
                continue
        for place in node.edges:
            if place is not None and place[0] in found:
                found[node] = found[place[0]]
    return found


def nodes_read(roots: list[GradNode]) -> set[Node]:
    """The values that the gradient rules of a recorded tape read."""
    found: set[Node] = set()
    for entry in order_of(roots):
        if isinstance(entry, OpNode) and entry.saved_in is not None and not entry.packed:
            assert entry.saved_out is not None
            needs = [e is not None for e in entry.edges]
            inputs, outs = saved_values(entry.op, entry.in_types, entry.attrs, needs)
            found.update(entry.saved_in[i][0] for i in inputs)
            found.update(entry.saved_out[i][0] for i in outs)
    return found


def light_key(
    inputs: Sequence[Node], outputs: Sequence[Node], roots: Sequence[Edge],
    leaves: dict[Edge, int], tape: Sequence[GradNode], written: bool,
) -> Any:
    """Equal for recordings that are made of the same nodes, and hold the same tape; quickly found.

    None where it does not tell. `written`: memory was written to.
    """
    places: dict[GradNode, int] = {}
    parts: list[Any] = []
    for entry in tape:
        places[entry] = len(places)
        leaf = leaves.get((entry, 0))
        if leaf is not None:
            parts.append(leaf)
        elif isinstance(entry, OpNode) and not entry.packed and (
            known := _result(entry)
        ) is not None:
            if written:
                saved = (*(entry.saved_in or ()), *(entry.saved_out or ()))
                if any(len(s) > 1 and s[1].writes != s[2] for s in saved):
                    return None
            # nodes with the same operator and inputs are one node: a result tells them all
            parts.append(known)
            for place in entry.edges:
                if place is None:
                    parts.append(None)
                else:
                    parts += (places[place[0]], place[1])
        elif not isinstance(entry, AccumulateGrad):
            return None
        else:
            parts.append(None)
    ends = tuple([(places[node], output) for node, output in roots])
    return tuple(inputs), tuple(outputs), ends, tuple(parts)


def _result(entry: OpNode) -> Node | None:
    """The first value that an operation made; None where nothing is saved."""
    if entry.known is not None:
        return entry.known.results[0]
    return entry.saved_out[0][0] if entry.saved_out else None


def script_key(script: Sequence[Any], roots: Sequence[Tensor]) -> Any:
    """Equal for recordings whose tapes are the same known operations in the same order; None where
    there is more under the roots. Memory was not written to."""
    places: list[Any] = []
    for tensor in roots:
        node = tensor._graphc_node
        if node is None or node.position is None:
            return None
        places += node.position, tensor._graphc_output
    return tuple(script), tuple(places)


class Fingerprint:
    """The key of a graph with these inputs and outputs, and of the tape under `roots`."""

    def __init__(
        self, inputs: Sequence[Node], outputs: Sequence[Node], roots: Sequence[Edge],
        leaves: dict[Edge, int], tape: Sequence[GradNode], within: Fingerprint | None = None,
    ) -> None:
        """`within`: only its constants are set apart; others are part of the key."""
        self.numbers: list[Any] = []
        # where the shape of an input, or of a constant of several elements, is in `numbers`
        self.shapes: dict[Node, int] = {}
        self.scalars: dict[int, Node] = {}  # by place in `numbers`
        # a custom Function, packed values: what the backward records is known when it runs
        self.opaque = False
        self._parts: list[Any] = []
        self._places: dict[GradNode, int] = {}
        nodes = toposort([*outputs, *self._saved(tape)], inputs)
        self.nodes = nodes
        self.index = {node: i for i, node in enumerate(nodes)}
        self._within = within
        for node in nodes:
            self._node(node)
        self._parts.append(tuple([self.index[node] for node in outputs]))
        for entry in tape:
            self._entry(entry, leaves)
        self._parts.append(tuple([(self._places[node], output) for node, output in roots]))
        self.key = tuple(self._parts)

    def _saved(self, tape: Sequence[GradNode]) -> list[Node]:
        found: list[Node] = []
        for entry in tape:
            if isinstance(entry, OpNode) and entry.saved_in is not None and not entry.packed:
                assert entry.saved_out is not None
                found += [s[0] for s in (*entry.saved_in, *entry.saved_out) if s is not None]
        return found

    def _node(self, node: Node) -> None:
        name = node.op.name
        if name == "input":
            self._shape(node)
            self._parts.append(("input", node.dtype.name, len(node.shape)))
        elif name == "const":
            array: np.ndarray = node.attrs["value"].array
            if self._within is not None and node not in self._within.index:
                self._parts.append(("const", node.dtype.name, array.shape, array.tobytes()))
            elif array.size == 1:
                self.scalars[len(self.numbers)] = node
                self.numbers.append(array.tobytes())
                self._parts.append(("scalar", node.dtype.name, array.shape))
            else:
                self._shape(node)
                self._parts.append(("data", node.dtype.name, array.ndim))
        else:
            attrs = tuple([(k, self._attribute(v)) for k, v in node.attrs.items()])
            inputs = tuple([self.index[n] for n in node.inputs])
            graphs = tuple([_text(g) for g in node.graphs])
            self._parts.append((name, inputs, attrs, graphs))

    def _shape(self, node: Node) -> None:
        self.shapes[node] = len(self.numbers)
        self.numbers.extend(node.shape)

    def _attribute(self, value: Any) -> Any:
        kind = type(value)
        if kind is int:
            self.numbers.append(value)
            return None
        if kind is tuple:
            return tuple([self._attribute(v) for v in value])
        if isinstance(value, TensorType):
            self.numbers.extend(value.shape)
            return value.dtype.name, len(value.shape)
        return attr_key(value)

    def _entry(self, entry: GradNode, leaves: dict[Edge, int]) -> None:
        """A node of the tape after those that it has edges to; the caller numbers `leaves`."""
        self._places[entry] = len(self._places)
        edges = tuple([
            None if e is None else (self._places[e[0]], e[1]) for e in entry.edges
        ])
        if (entry, 0) in leaves:
            self._parts.append(("leaf", leaves[entry, 0]))
        elif isinstance(entry, OpNode) and not entry.packed:
            values = (*(entry.saved_in or ()), *(entry.saved_out or ()))  # none: it was released
            saved = tuple([None if s is None else self.index[s[0]] for s in values])
            if any(s is not None and len(s) > 1 and s[1].writes != s[2] for s in values):
                self.opaque = True  # `.data` was written to
            self._parts.append((entry.op.name, saved, edges, self._types(entry)))
        elif isinstance(entry, _STEPS):
            self._parts.append((type(entry).__name__, edges, self._chain(entry.chain)))
        elif isinstance(entry, CopyBackwards):
            self._parts.append(("copy", edges))
        elif not isinstance(entry, AccumulateGrad):
            self.opaque = True

    def _types(self, entry: OpNode) -> Any:
        return tuple([(k, self._attribute(v)) for k, v in entry.attrs.items() if k != "graphs"])

    def _chain(self, chain: Chain) -> Any:
        return tuple([
            (op.name, tuple([(k, self._attribute(v)) for k, v in attrs.items()]))
            for op, attrs in chain
        ])


def _text(graph: Graph) -> str:
    printed: str = _texts.print_graph(graph, places=False)
    return printed
