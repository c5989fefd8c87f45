"""Numbers that differ between equal kernels are read from memory, so that one code does for all.

What a training step keeps of a batch norm's moments hangs on how many values each channel has: in
the text of a kernel, such a number would make one kernel more for each size of an image.
"""

from __future__ import annotations

from collections.abc import Hashable

from ...graph import Builder, Graph, Node
from ..lower import structure
from ..lower.kinds import KERNELS, LOOP
from ..lower.loops import is_flat

# Operators whose code is the same whatever number they take, and no slower for not knowing it.
_ANY = {"add", "sub", "mul", "div"}
_MOST = 4  # numbers that a kernel takes: each is in a register all the time


def share_numbers(fused: Graph) -> Graph:
    """Pointwise groups over buffers of one length that are equal but for numbers take these as
    constants, of one element."""
    alike: dict[Hashable, list[tuple[Node, list[Node]]]] = {}
    for node in fused.nodes:
        if node.op.name == "fusion" and KERNELS[node.attrs["kind"]] is LOOP:
            numbers = _numbers(node.graphs[0])
            if numbers:
                key = tuple([x.op.name for x in node.graphs[0].nodes])
                alike.setdefault(key, []).append((node, numbers))
    taken: dict[Node, list[Node]] = {}
    for some in alike.values():
        if any(_differ(some)):
            taken |= _taken(some)
    return _taking(fused, taken) if taken else fused


def _differ(alike: list[tuple[Node, list[Node]]]) -> list[bool]:
    """Which of the numbers do."""
    values = [[x.attrs["value"].array.tobytes() for x in numbers] for _, numbers in alike]
    return [len(set(column)) > 1 for column in zip(*values, strict=False)]


def _taken(alike: list[tuple[Node, list[Node]]]) -> dict[Node, list[Node]]:
    """What groups of the same operators take."""
    found: dict[Hashable, list[tuple[Node, list[Node]]]] = {}
    for node, numbers in alike:
        found.setdefault(_key(node.graphs[0], numbers), []).append((node, numbers))
    taken: dict[Node, list[Node]] = {}
    for some in found.values():
        differ = _differ(some)
        if 0 < sum(differ) <= _MOST:
            for node, numbers in some:
                taken[node] = [x for x, own in zip(numbers, differ, strict=True) if own]
    return taken


def _numbers(graph: Graph) -> list[Node]:
    """Those that may be read from memory."""
    found = [
        node for node in graph.nodes
        if node.op.name == "const" and node.shape == () and node.dtype.is_float
        and node.dtype.bits >= 32 and node not in graph.outputs
    ]
    if not found or not is_flat(graph):
        return []
    kept = {x for node in graph.nodes if node.op.name not in _ANY for x in node.inputs}
    return [node for node in found if node not in kept]


def _key(graph: Graph, numbers: list[Node]) -> Hashable:
    """All of a body but these numbers."""
    rows, outputs = structure(graph, shapes=False)
    apart = set(numbers)
    known = [
        row[:-1] if node in apart else row for node, row in zip(graph.nodes, rows, strict=True)
    ]
    return tuple(known), outputs


def _taking(fused: Graph, taken: dict[Node, list[Node]]) -> Graph:
    """The graph whose nodes take these numbers; what does not hang on them is as it was."""
    builder = Builder(fused.env)
    new: dict[Node, Node] = {}
    for node in fused.nodes:
        numbers = taken.get(node)
        if numbers is None and not any(x in new for x in node.inputs):
            continue
        inputs, graphs = [new.get(x, x) for x in node.inputs], node.graphs
        if numbers is not None:
            inputs += [builder.emit(x.op, value=x.attrs["value"]) for x in numbers]
            graphs = (_with_inputs(graphs[0], numbers),)
        with builder.at(node.loc, node.backward):
            new[node] = builder.emit(node.op, *inputs, graphs=graphs, **node.attrs)
    return Graph(fused.name, fused.inputs, tuple(new.get(n, n) for n in fused.outputs), fused.env)


def _with_inputs(graph: Graph, numbers: list[Node]) -> Graph:
    """The body with the numbers as its last inputs."""
    builder = Builder(graph.env)
    new = {node: builder.input(node.tensor_type, node.attrs["name"]) for node in graph.inputs}
    new |= {node: builder.input(node.tensor_type) for node in numbers}
    for node in graph.nodes:
        if node not in new:
            with builder.at(node.loc, node.backward):
                new[node] = builder.emit(node.op, *(new[x] for x in node.inputs), **node.attrs)
    return Graph(
        graph.name, tuple(builder.inputs), tuple(new[n] for n in graph.outputs), graph.env
    )
