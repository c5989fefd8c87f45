"""A graph made again with other inputs: nodes replaced, dropped or emitted anew."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from graphc.ir.graph import Builder, Graph, Node

Attrs = Mapping[str, object]


def rebuild(
    graph: Graph,
    keep: Sequence[Node],
    outputs: Sequence[Node] | None = None,
    replace: Mapping[Node, Node] | None = None,
    change: Callable[[Node], tuple[object, Attrs]] | None = None,
) -> tuple[Graph, dict[Node, Node]]:
    """A new graph whose inputs stand for the nodes `keep` (of any kind), and what became of each.

    `replace` maps nodes to nodes that take their place; `change` gives an input's type and any
    node's attributes. Raises OpError where the new operands do not fit.
    """
    builder = Builder(graph.env.copy())
    replace = replace or {}
    table: dict[Node, Node] = {}
    for node in keep:
        type_ = change(node)[0] if change is not None else node.type
        table[node] = builder.input(type_, f"x{len(builder.inputs)}")  # type: ignore[arg-type]
    wanted = [replace.get(n, n) for n in (graph.outputs if outputs is None else outputs)]
    stack = list(reversed(wanted))
    while stack:
        node = stack[-1]
        sources = [replace.get(x, x) for x in node.inputs]
        missing = [x for x in sources if x not in table]
        if node in table or not missing:
            stack.pop()
            if node not in table:
                attrs = change(node)[1] if change is not None else node.attrs
                with builder.at(node.loc, node.backward):
                    table[node] = builder.emit(
                        node.op, *(table[x] for x in sources), graphs=node.graphs, **attrs
                    )
        else:
            stack.extend(missing)
    new = Graph(graph.name, tuple(builder.inputs), tuple(table[n] for n in wanted), builder.env)
    return new, table
