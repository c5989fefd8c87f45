"""Whether the rows of a batch are independent: whether each row of every result hangs on the same
row of the arguments alone. Only then may requests of different people be computed as one batch.

A forward walk over the graph says of each value where the rows lie in it (`Rows`), or that it is
the same for all of them (None), by a rule for each operator (`rules.py`, `bodies.py`). What mixes
rows, draws, computes with the size of the batch, or has no rule ends the walk: rows are independent
where that is proven, and nowhere else. Bits are another matter: a sum may go another way in a batch
of another size.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

from ..dim import Dim, product
from ..graph import Graph, Node
from ..types import TupleType
from .bodies import BODIES
from .call import Call, Mixed, Result, Rows, State, element_types, mentions, mixed
from .rules import FAMILIES, RULES, SIZES

__all__ = ["Dependence", "dependence"]


@dataclass(frozen=True)
class Dependence:
    """Why rows are not proven independent, and the user's line ("" if there is none)."""

    reason: str
    place: str = ""

    def __str__(self) -> str:
        return f"{self.reason} ({self.place})" if self.place else self.reason


def dependence(graph: Graph, batch: str, shared: Collection[int]) -> Dependence | None:
    """Why rows are not proven independent; None where they are.

    `batch`: the named dim of which each row has one, dim 0 of the arguments and the results.
    `shared`: the numbers of the graph's inputs that are the same in every call (weights).
    """
    for guard in graph.env.guards:
        if guard.relation == "eq" and guard.holds and mentions((guard.left, guard.right), batch):
            return Dependence(f"the program holds only where {guard.text()}")
    size = Dim.var(batch)
    states: list[State] = []
    for number, node in enumerate(graph.inputs):
        if number in shared:
            states.append(None)
        elif node.shape[:1] == (size,) and not mentions(node.shape[1:], batch):
            states.append(Rows(0))
        else:
            name = node.attrs.get("name") or number
            return Dependence(f"the argument {name} is {node.type}: its rows are not its dim 0")
    walk = _Walk(batch)
    try:
        results = walk.graph(graph, states)
    except Mixed as error:
        return Dependence(str(error), walk.place)
    for node, state in zip(graph.outputs, results, strict=True):
        if state != Rows(0):
            has = "has no rows" if state is None else "does not have its rows as they came in"
            return Dependence(f"a result, {node.type}, {has}", node.place)
    return None


class _Walk:
    """The states of graphs' values, node by node."""

    def __init__(self, batch: str) -> None:
        self.batch, self.size = batch, Dim.var(batch)
        self.place = ""  # of the last node that says one

    def graph(self, graph: Graph, inputs: Sequence[State]) -> tuple[State, ...]:
        """The states of a graph's outputs. Each of its nodes is needed by one of them: the first
        that mixes rows settles it."""
        values: dict[Node, Any] = dict(zip(graph.inputs, inputs, strict=True))
        for node in graph.nodes:
            if node in values:
                continue
            if node.op.name == "get":
                values[node] = values[node.inputs[0]][node.attrs["index"]]
                continue
            self.place = node.place or self.place
            call = Call(node, tuple(values[x] for x in node.inputs), self.size)
            values[node] = self._checked(node, self._result(call))
        return tuple(values[node] for node in graph.outputs)

    def _result(self, call: Call) -> Result:
        node, op = call.node, call.node.op
        if op.impure:
            mixed(f"{op.name} draws random numbers, one stream for all rows")
        for name, value in node.attrs.items():
            if SIZES.get(op.name) != name and mentions(value, self.batch):
                mixed(f"{op.name} computes with the size of the batch (its {name})")
        if node.graphs:
            body = BODIES.get(op.name)
            return body(call, self.graph) if body else mixed(f"there is no rule for {op.name}")
        types = element_types(node.type)
        if not any(call.states) and not any(mentions(t.shape, self.batch) for t in types):
            return (None,) * len(types) if isinstance(node.type, TupleType) else None
        rule = RULES.get(op.name) or FAMILIES.get("pointwise" if op.pointwise else op.family)
        return rule(call) if rule else mixed(f"there is no rule for {op.name}")

    def _checked(self, node: Node, result: Result) -> Result:
        """The result, whose type must bear it out: the size of the batch is where rows are, and
        nowhere else."""
        states = result if isinstance(result, tuple) else (result,)
        for type_, state in zip(element_types(node.type), states, strict=True):
            rest = type_.shape
            if state is not None:
                if rest[state.dim] != product((state.outer, self.size, state.inner)):
                    mixed(f"{node.op.name} gives {type_}, in which its rows are not to be found")
                rest = rest[: state.dim] + rest[state.dim + 1 :]
            if mentions(rest, self.batch):
                mixed(f"{node.op.name} gives {type_}, in which rows meet rows")
        return result
