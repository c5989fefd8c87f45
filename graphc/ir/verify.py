"""Check that a Graph is well formed: every type rule run again, sub-graphs included."""

from __future__ import annotations

from .dim import DimEnv
from .graph import Graph, Node, get_, input_
from .op import REGISTRY, OpError
from .text import print_lines
from .types import TensorType, TupleType

_CONTEXT = 10  # lines of text shown on each side of the fault


class VerifyError(Exception):
    """A malformed Graph; the message shows its text round the fault."""


def verify(graph: Graph, after: str = "") -> None:
    """Raise VerifyError unless the graph and its sub-graphs are well formed.

    `after` names the pass that made it. Checked: registered operators, arity, known attributes,
    types by the type rules (which may rely on no fact about sizes that is not among the guards),
    order, closed sub-graphs, inputs and outputs.
    """
    stack = [graph]
    seen: set[int] = set()
    while stack:
        current = stack.pop()
        if id(current) in seen:
            continue
        seen.add(id(current))
        _verify_one(current, after)
        for node in current.nodes:
            stack.extend(node.graphs)


def _verify_one(graph: Graph, after: str) -> None:
    if len(set(graph.inputs)) != len(graph.inputs):
        _fail(graph, None, "an input is listed twice", after)
    inputs = set(graph.inputs)
    for node in graph.inputs:
        if node.op is not input_:
            _fail(graph, node, f"an input of the graph is made by {node.op.name}", after)
    env = graph.env.copy()
    done: set[Node] = set()
    for node in graph.nodes:
        message = _fault(node, inputs, done, env)
        if message is None and len(env.guards) != len(graph.env.guards):
            guard = next(reversed(env.guards))
            message = f"its type relies on {guard.text()}, which is not among the graph's guards"
        if message is not None:
            _fail(graph, node, message, after)
        done.add(node)
    for node in graph.outputs:
        if not isinstance(node.type, TensorType):
            _fail(graph, node, "an output is a tuple; take its parts with get", after)


def _fault(node: Node, inputs: set[Node], done: set[Node], env: DimEnv) -> str | None:
    """What is wrong with one node, None if nothing is."""
    op = node.op
    if REGISTRY.get(op.name) is not op:
        return f"operator {op.name} is not the registered one"
    if op is input_ and node not in inputs:
        return "it reads a value that is not an input of its graph"
    for source in node.inputs:
        if source not in done:
            return f"it comes before its operand {source!r}"
        if isinstance(source.type, TupleType) and op is not get_:
            return f"it reads all the results of {source.op.name}; take one with get"
    if op.arity is not None and len(node.inputs) != op.arity:
        return f"{op.name} takes {op.arity} inputs, not {len(node.inputs)}"
    if set(node.attrs) - op.optional != set(op.attrs):
        unknown = sorted(set(node.attrs) - set(op.attrs) - op.optional)
        missing = sorted(set(op.attrs) - set(node.attrs))
        return f"{op.name} has unknown attributes {unknown} and lacks {missing}"
    attrs = dict(node.attrs)
    if node.graphs:
        attrs["graphs"] = node.graphs
    try:
        type_ = op.infer(tuple(source.type for source in node.inputs), attrs, env)  # type: ignore[misc]
    except (OpError, ValueError, TypeError, KeyError, IndexError, AttributeError) as error:
        return f"{op.name}: {type(error).__name__}: {error}"
    if type_ != node.type:
        return f"{op.name} gives {type_}, the node says {node.type}"
    return None


def _fail(graph: Graph, node: Node | None, message: str, after: str) -> None:
    where = f" after {after}" if after else ""
    text = f"graph {graph.name}{where}: {message}"
    if node is not None and node.loc is not None:
        text += f"\n  at {node.place}"
    lines, starts = print_lines(graph)
    if node is None or node not in starts:
        shown = lines[: 2 * _CONTEXT]
    else:
        at = starts[node]
        first = max(at - _CONTEXT, 0)
        shown = [
            f"{'>>' if i == at else '  '} {line}"
            for i, line in enumerate(lines[first : at + _CONTEXT + 1], first)
        ]
    raise VerifyError(text + "\n" + "\n".join(shown))
