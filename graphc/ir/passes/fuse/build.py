"""From groups to the fused graph: a `fusion` node with a sub-graph for each kernel."""

from __future__ import annotations

from ... import op
from ...graph import Builder, Graph, Node
from .group import Group
from .groups import Grouping


def build_fused(grouping: Grouping) -> Graph:
    """The graph of fusion nodes, aliasing reshapes and routines."""
    source = grouping.a.graph
    builder = Builder(source.env)
    new: dict[Node, Node] = {}
    for node in source.inputs:
        new[node] = builder.input(node.tensor_type, node.attrs["name"])
    for node in source.nodes:
        if node.op.name == "const":
            new[node] = builder.emit(node.op, value=node.attrs["value"])
    for group in _in_order(grouping):
        if not group.kind.computes:
            _plain(builder, group, new)
        else:
            _fusion(builder, grouping, group, new)
    outputs = tuple(new[n] for n in source.outputs)
    return Graph(source.name, tuple(new[n] for n in source.inputs), outputs, source.env)


def _in_order(grouping: Grouping) -> list[Group]:
    """Groups, each after those that it reads from."""
    order: list[Group] = []
    done: set[Group] = set()
    for start in grouping.groups:
        stack = [(start, False)]
        while stack:
            group, ready = stack.pop()
            if ready:
                order.append(group)
                continue
            if group in done or group.merged_into is not None or not group.orders:
                continue
            done.add(group)
            stack.append((group, True))
            for node in group.orders:
                for x in node.inputs:
                    made = grouping.stored_by.get(x)
                    if x not in group.orders and made is not None and made not in done:
                        stack.append((made, False))
    return order


def _plain(builder: Builder, group: Group, new: dict[Node, Node]) -> None:
    """A routine, or a reshape that is another name for a buffer."""
    for node in sorted(group.orders, key=lambda n: n.op.name == "get"):
        with builder.at(node.loc, node.backward):
            inputs = (new[x] for x in node.inputs)
            new[node] = builder.emit(node.op, *inputs, graphs=node.graphs, **node.attrs)


def _fusion(builder: Builder, grouping: Grouping, group: Group, new: dict[Node, Node]) -> None:
    members = _sorted_members(group)
    inside = set(members)
    body = Builder(builder.env)
    copies: dict[Node, Node] = {}
    sources: list[Node] = []
    for node in members:
        for x in node.inputs:
            if x not in inside and x not in copies:
                copies[x] = body.input(x.tensor_type)
                sources.append(x)
    for node in members:
        with body.at(node.loc, node.backward):
            copies[node] = body.emit(node.op, *(copies[x] for x in node.inputs), **node.attrs)
    outputs = [n for n in members if n in group.outputs]
    graph = Graph(
        group.kind.name, tuple(body.inputs), tuple(copies[n] for n in outputs), builder.env
    )
    with builder.at(outputs[-1].loc, outputs[-1].backward):
        fused = builder.emit(
            op.get("fusion"), *(new[x] for x in sources), graphs=(graph,), kind=group.kind.name
        )
        for node, result in zip(outputs, builder.results(fused), strict=True):
            new[node] = result


def _sorted_members(group: Group) -> list[Node]:
    """A group's nodes, inputs before users."""
    order: dict[Node, None] = {}
    for start in group.orders:
        stack: list[tuple[Node, bool]] = [(start, False)]
        while stack:
            node, ready = stack.pop()
            if ready:
                order[node] = None
            elif node not in order:
                stack.append((node, True))
                stack.extend((x, False) for x in node.inputs if x in group.orders)
    return list(order)
