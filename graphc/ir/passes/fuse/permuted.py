"""A product that is read both as it is and permuted is stored permuted only: attention's result
goes to memory once, in the layout that the next product wants."""

from __future__ import annotations

from ... import op
from ...graph import Builder, Graph, Node
from ...rewrite import rebuilt, with_inputs


def store_permuted(graph: Graph) -> Graph:
    """Let the other readers of such products read them back through the inverse permutation."""
    users = graph.users()
    outputs = set(graph.outputs)
    chosen: dict[Node, Node] = {}
    for node in graph.nodes:
        if _is_product(node) and len(users[node]) > 1 and node not in outputs:
            permuted = [u for u in users[node] if u.op.name == "permute"]
            if len(permuted) == 1 and _wanted(permuted[0], users):
                chosen[node] = permuted[0]
    return _rebuilt(graph, chosen) if chosen else graph


def _is_product(node: Node) -> bool:
    """Whether a kernel may store a node permuted: a product, or the result of an attention."""
    if node.op.name == "get":
        return node.inputs[0].op.name == "attention" and node.attrs["index"] == 0
    return node.op.name == "dot_general"


def _wanted(permuted: Node, users: dict[Node, list[Node]]) -> bool:
    """Whether a permutation keeps rows whole and feeds a product."""
    rank = len(permuted.shape)
    if permuted.attrs["dims"][-1] != rank - 1:
        return False
    readers = list(users[permuted])
    for reader in users[permuted]:
        if reader.op.name == "reshape":
            readers += users[reader]
    return any(r.op.family == "contract" for r in readers)


def _rebuilt(graph: Graph, chosen: dict[Node, Node]) -> Graph:
    builder = Builder(graph.env)
    new: dict[Node, Node] = {}
    back: dict[Node, Node] = {}  # products, read through their stored permutations
    for node in graph.nodes:
        if node in new:
            continue
        inputs = [new[x] if x not in chosen else back[x] for x in node.inputs]
        new[node] = with_inputs(node, inputs)
        if node in chosen:
            stored = new[chosen[node]] = with_inputs(chosen[node], [new[node]])
            dims: tuple[int, ...] = stored.attrs["dims"]
            inverse = tuple(sorted(range(len(dims)), key=dims.__getitem__))
            with builder.at(node.loc, node.backward):
                back[node] = builder.emit(op.get("permute"), stored, dims=inverse)
    return rebuilt(graph, new)
