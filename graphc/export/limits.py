"""What a file may ask of the machine that loads it: how many nodes, how large, how much memory.

A file is some other person's program. Its text bounds what reading it costs; what *running* it
costs is asked of the graph's types before anything is compiled, and again for the sizes of a call.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from typing import NamedTuple

from graphc.export.contents import Variant
from graphc.export.errors import ExportError
from graphc.ir import dim
from graphc.ir.graph import Graph, Node, const, input_
from graphc.ir.types import TensorType, TupleType

# Made by passes alone; what they hold of the packed operands, type rules do not ask.
PASSES_ONLY = frozenset({
    "fusion", "conv_last", "winograd_input", "winograd_filter", "winograd_output",
})
_VIEWS = frozenset({"reshape", "permute", "expand", "slice", "as_strided", "get"})


class Limits(NamedTuple):
    """What a graph of a file may be. `memory`: bytes that the values of a call take together where
    one operator runs after another, as in eager mode; None: what the machine has. `elements`: of
    one value, views that take no memory included. `work`: scalar steps of one call, loops counted
    once. `nodes` bounds the time that compiling takes."""

    nodes: int = 50_000
    depth: int = 32  # of sub-graphs
    rank: int = 32
    memory: int | None = None
    elements: int = 1 << 40
    work: int = 1 << 56
    text: int = 1 << 26  # bytes of a graph's text

    @property
    def bytes(self) -> int:
        """The memory that values may have together."""
        return machine_memory() if self.memory is None else self.memory


DEFAULT = Limits()
_MOST_SIZES = 4096


def machine_memory() -> int:
    """Bytes of the machine; 64 GiB where it does not say."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return 1 << 36


class Allowed:
    """The sizes of calls of which is known that a program was exported for them, and that they are
    within the limits."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._known: set[tuple[int, ...]] = set()

    def check(self, variant: Variant, dims: Mapping[str, int]) -> None:
        """Raise ValueError for sizes that a graph was not recorded for, ExportError for those that
        are too large."""
        sizes = tuple(dims.values())
        if sizes in self._known:
            return
        check_guards(variant, dims)
        check_sizes(variant.graph, dims, self._limits, "the exported model")
        if len(self._known) < _MOST_SIZES:
            self._known.add(sizes)


def check_guards(variant: Variant, dims: Mapping[str, int]) -> None:
    """Raise ValueError where a graph was recorded for other sizes than these."""
    for guard in variant.graph.env.guards:
        if not guard.check(dims):
            sizes = ", ".join(f"{k} = {v}" for k, v in dims.items())
            ranges = ", ".join(
                f"{name!r} is {bounds}" for name, bounds in variant.signature.ranges.items()
            )
            raise ValueError(
                f"the exported model holds only where {guard.text()}; here {sizes} ({ranges}). "
                "Cure: export it again with an example of these sizes"
            )


def check_form(graph: Graph, limits: Limits, where: str) -> None:
    """Raise ExportError for a graph with too many nodes, dims or levels, or of operators that are
    none of a file's."""
    count = 0
    stack = [(graph, 0)]
    while stack:
        part, depth = stack.pop()
        count += len(part.nodes)
        if count > limits.nodes:
            raise ExportError(f"{where} has more than {limits.nodes} nodes")
        if depth > limits.depth:
            raise ExportError(f"{where} has graphs inside graphs, more than {limits.depth} deep")
        for node in part.nodes:
            if node.op.name in PASSES_ONLY:
                raise ExportError(
                    f"{where} holds the operator {node.op.name}, which only passes make"
                )
            for type_ in _types(node):
                if type_.rank > limits.rank:
                    raise ExportError(f"{where} has a value of {type_.rank} dims; the most is "
                                      f"{limits.rank}")
            stack.extend((inner, depth + 1) for inner in node.graphs)


def check_sizes(graph: Graph, dims: Mapping[str, int], limits: Limits, where: str) -> None:
    """Raise ExportError where a value, all memory, or all the work is too large at these sizes."""
    stack = [graph]
    while stack:
        for node in stack.pop().nodes:
            for type_ in _types(node):
                count = elements(type_, dims)
                if count > limits.elements:
                    raise ExportError(f"{where}: {_named(node)} has {count:,} elements"
                                      f"{_at(dims)}; the most is {limits.elements:,}")
            stack.extend(node.graphs)
    most = limits.bytes
    size, at = peak(graph, dims)
    if size > most and at is not None:
        raise ExportError(
            f"{where} needs {size:,} bytes{_at(dims)}, at {_named(at)}, and the limit is "
            f"{most:,}. Cure: smaller arguments, or load(path, limits=Limits(memory=...)) on a "
            "machine that has them"
        )
    steps = work(graph, dims)
    if steps > limits.work:
        raise ExportError(f"{where} takes {steps:,} scalar steps{_at(dims)}; the limit is "
                          f"{limits.work:,}")


def peak(graph: Graph, dims: Mapping[str, int]) -> tuple[int, Node | None]:
    """The most bytes that the values computed by a graph take together, and the node at which.

    A value lives until its last use, by way of views too; arguments and weights are not counted.
    """
    owner: dict[Node, Node] = {}
    last: dict[Node, int] = {}
    for at, node in enumerate(graph.nodes):
        views = node.op.name in _VIEWS and node.inputs
        owner[node] = owner[node.inputs[0]] if views else node
        for source in node.inputs:
            last[owner[source]] = at
    last.update((owner[node], len(graph.nodes)) for node in graph.outputs)
    ends: dict[int, list[Node]] = {}
    for node, at in last.items():
        ends.setdefault(at, []).append(node)
    live, most, where = 0, 0, None
    for at, node in enumerate(graph.nodes):
        if owner[node] is node and node.op is not input_:
            live += _bytes(node, dims)
        inner = max((peak(part, dims)[0] for part in node.graphs), default=0)
        if live + inner > most:
            most, where = live + inner, node
        for ended in ends.get(at, ()):
            live -= 0 if ended.op is input_ else _bytes(ended, dims)
        if owner[node] is node and node not in last and node.op is not input_:
            live -= _bytes(node, dims)
    return most, where


def _bytes(node: Node, dims: Mapping[str, int]) -> int:
    return sum(elements(type_, dims) * type_.dtype.itemsize for type_ in _types(node))


def elements(type_: TensorType, dims: Mapping[str, int]) -> int:
    """How many elements a value of a type has at these sizes."""
    return math.prod(dim.evaluate(size, dims) for size in type_.shape)


def work_of(node: Node, dims: Mapping[str, int]) -> int:
    """Scalar steps of a node, roughly: results and operands read, sums of products counted out."""
    if node.op is input_ or node.op is const or node.op.name in _VIEWS:
        return 0
    count = sum(elements(type_, dims) for type_ in _types(node))
    reads = sum(elements(x.tensor_type, dims) for x in node.inputs
                if isinstance(x.type, TensorType))
    if node.op.name == "dot_general":
        shape = node.inputs[0].shape
        return count * math.prod(
            dim.evaluate(shape[each], dims) for each in node.attrs["contract_a"]
        )
    if node.op.name == "conv":
        return count * math.prod(dim.evaluate(s, dims) for s in node.inputs[1].shape[1:])
    if node.op.name in ("conv_input_grad", "conv_weight_grad"):
        other = node.inputs[1].shape if node.op.name == "conv_input_grad" else node.shape
        given = node.inputs[0 if node.op.name == "conv_input_grad" else 1]
        return elements(given.tensor_type, dims) * math.prod(
            dim.evaluate(s, dims) for s in other[1:]
        )
    if node.op.family == "window" and "window" in node.attrs:
        return count * math.prod(int(w) for w in node.attrs["window"])
    if node.op.name in ("attention", "attention_grad"):
        return count * dim.evaluate(node.inputs[1].shape[-2], dims)
    return count + reads


def work(graph: Graph, dims: Mapping[str, int]) -> int:
    """Scalar steps of a graph at these sizes, its loops counted once."""
    total, stack = 0, [graph]
    while stack:
        part = stack.pop()
        total += sum(work_of(node, dims) for node in part.nodes)
        for node in part.nodes:
            stack.extend(node.graphs)
    return total


def _types(node: Node) -> tuple[TensorType, ...]:
    return node.type.elements if isinstance(node.type, TupleType) else (node.type,)


def _named(node: Node) -> str:
    return f"{node.op.name} ({node.place})" if node.loc is not None else node.op.name


def _at(dims: Mapping[str, int]) -> str:
    return " at " + ", ".join(f"{k} = {v}" for k, v in dims.items()) if dims else ""
