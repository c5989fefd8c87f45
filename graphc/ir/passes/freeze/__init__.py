"""freeze: what a program computes of inputs that hardly ever change (the weights and statistics of
a model that answers) becomes a program of its own, whose results are inputs of the other.

The caller runs the first, the prologue, when the constants have changed.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

from ...dim import DimEnv, product, unwrap
from ...graph import Builder, Graph, Node, input_
from ...machine import Machine
from ...rewrite import apart, rebuilt, with_inputs
from ...types import TensorType
from ..panels import narrowed
from .norms import fold_norms
from .panels import lay_out
from .products import pack_products

LEAST = 1 << 16  # elements that a prologue makes; fewer are made sooner than they are asked about

_FAMILIES = frozenset({"unary", "binary", "ternary", "compare", "cast", "reduce", "movement"})
_OTHERS = frozenset({"dot_general", "winograd_filter"})
_FREE = frozenset({"full", "iota", "const"})  # of no inputs: made where they are read
_LAID_OUT = frozenset({"conv_last", "winograd_filter"})
_VIEWS = frozenset({"reshape", "permute", "expand", "slice"})


class Frozen(NamedTuple):
    """A graph in two parts: `main` has the inputs of the whole graph, then one for each result of
    the `prologue`, which reads the inputs number `reads`."""

    prologue: Graph
    main: Graph
    reads: tuple[int, ...]


def freeze(
    graph: Graph, constants: Collection[int], machine: Machine, winograd: float = 0.0
) -> Frozen | None:
    """The graph in two parts; None where there is too little to gain. `constants`: the numbers of
    inputs that hardly ever change; `winograd`: the errors that convolutions may have."""
    given = frozenset([graph.inputs[i] for i in constants if is_static(graph.inputs[i])])
    if not given or any(node.graphs for node in graph.nodes):
        return None
    whole = fold_norms(apart(graph), lambda graph: constant_nodes(graph, given))
    whole = lay_out(whole, constant_nodes(whole, given), machine, winograd)
    whole, laid_out = pack_products(whole, constant_nodes(whole, _same(whole, given)), machine)
    return _split(whole, _same(whole, given), laid_out)


def _same(graph: Graph, given: Collection[Node]) -> set[Node]:
    """The inputs of a rewritten graph that were these."""
    return {graph.inputs[node.attrs["index"]] for node in given}


def is_static(node: Node) -> bool:
    """Whether a node is one value of a known shape."""
    return isinstance(node.type, TensorType) and all(isinstance(s, int) for s in node.shape)


def constant_nodes(graph: Graph, given: Collection[Node]) -> set[Node]:
    """The nodes that hang on constants and numbers alone, and cannot fail."""
    found: set[Node] = set()
    for node in graph.nodes:
        if node.op is input_:
            constant = node in given
        elif node.op.name in _FREE:
            constant = is_static(node)
        else:
            constant = (
                (node.op.family in _FAMILIES or node.op.name in _OTHERS)
                and not (node.op.divides and node.dtype.is_integer) and is_static(node)
                and all(x in found for x in node.inputs)
            )
        if constant:
            found.add(node)
    return found


def _split(graph: Graph, given: Collection[Node], laid_out: Collection[Node]) -> Frozen | None:
    """`laid_out`: values of their own, though they are views of others."""
    filters = {
        narrowed(node)[1] for node in graph.nodes if node.op.name == "conv_last"
    }
    made = _made(graph, constant_nodes(graph, given), {*laid_out, *filters})
    work = sum(_elements(node) for node in _behind(made) if node in made or not _is_view(node))
    if work < LEAST and not any(node.op.name in _LAID_OUT for node in graph.nodes):
        return None
    builder = Builder(graph.env)
    builder.inputs += graph.inputs
    new: dict[Node, Node] = {}
    for node in graph.nodes:
        if node in made:
            new[node] = builder.input(node.tensor_type, f"constant{len(builder.inputs)}")
        else:
            new[node] = with_inputs(node, [new[x] for x in node.inputs])
    main = rebuilt(graph, new)
    main = Graph(main.name, tuple(builder.inputs), main.outputs, main.env)
    reads = [i for i, node in enumerate(graph.inputs) if node in _behind(made, True)]
    return Frozen(_prologue(graph, made, reads), main, tuple(reads))


def _made(
    graph: Graph, constant: Collection[Node], laid_out: Collection[Node]
) -> dict[Node, None]:
    """The constant values that others are computed of. A view is no value; and what leaves the
    program belongs to whoever gets it."""
    leaves = {_source(output, laid_out) for output in graph.outputs}
    found: dict[Node, None] = {}
    for node in graph.nodes:
        if node in constant:
            continue
        for x in node.inputs:
            value = _source(x, laid_out)
            if value in constant and value.inputs and value not in leaves and _hangs(value):
                found[value] = None
    return found


def _source(node: Node, laid_out: Collection[Node]) -> Node:
    """What a view is a view of. What is widened is kept as narrow as it is."""
    while node not in laid_out and _is_view(node):
        node = node.inputs[0]
    return node


def _is_view(node: Node) -> bool:
    """Whether a value is another one seen differently: what is widened is kept as it is."""
    if node.op.name == "cast":
        return node.inputs[0].dtype.itemsize < node.dtype.itemsize
    return node.op.name in _VIEWS


def _hangs(node: Node) -> bool:
    """Whether a value hangs on some input."""
    return any(each.op is input_ for each in _behind({node: None}, True))


def _behind(made: Collection[Node], inputs: bool = False) -> set[Node]:
    """All that leads to these nodes, and they."""
    found: set[Node] = set()
    stack = list(made)
    while stack:
        node = stack.pop()
        if node not in found and (inputs or node.op is not input_):
            found.add(node)
            stack += node.inputs
    return found


def _elements(node: Node) -> int:
    size = unwrap(product(node.shape))
    return size if isinstance(size, int) else 0


def _prologue(graph: Graph, made: Collection[Node], reads: Collection[int]) -> Graph:
    builder = Builder(DimEnv())
    new: dict[Node, Node] = {}
    for i in reads:
        node = graph.inputs[i]
        new[node] = builder.input(node.tensor_type, node.attrs["name"])
    wanted = _behind(made)
    for node in graph.nodes:
        if node in wanted:
            new[node] = with_inputs(node, [new[x] for x in node.inputs])
    return builder.build([new[node] for node in made], f"{graph.name}_constants")
