"""The gradient of scan: a scan the other way round, which carries the carried values' gradients.

A step of it computes the body again, from what the step began with, and differentiates it. What
the body hands out as a stacked result is read from there and not computed again; the frontend has
it hand out what steps begin with and the results of contractions (`saved_for_backward`). Where
those are missing the forward runs once more. A value that every step reads unchanged (a weight)
gets one contribution per step: where that is a product or a sum, its operands are stacked and the
product is taken once, behind the loop; else it is added up from step to step.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from .. import autodiff
from ..dtypes import f32
from ..graph import Builder, Graph, Node
from ..types import TensorType
from ._rules import filled, ops
from .control_gradients import copied, packed

Behind = Callable[[Sequence[Any]], Any]  # (stacked operands) -> the sum over all steps


def unchanged(body: Graph, n_carried: int) -> list[bool]:
    """Which carried values every step hands on as they are."""
    return [body.outputs[i] is body.inputs[i] for i in range(n_carried)]


def saved_for_backward(body: Graph, n_carried: int) -> list[Node]:
    """What a body should hand out for its gradient: what steps begin with, and contractions."""
    same = unchanged(body, n_carried)
    began = [x for x, keep in zip(body.inputs, same, strict=False) if not keep]
    readers: dict[Node, list[Node]] = {}
    for node in body.nodes:
        for value in node.inputs:
            readers.setdefault(value, []).append(node)
    contractions = [node for node in body.nodes if node.op.family == "contract"]
    return [*began, *(_summed(node, readers, body.outputs) for node in contractions)]


def _summed(node: Node, readers: dict[Node, list[Node]], outputs: Sequence[Node]) -> Node:
    """What a contraction alone goes into by additions, whose gradients do not read it: one value
    then stands for all the terms."""
    while node not in outputs:
        (reader, *others) = readers.get(node, [node])
        if others or reader.op.name != "add" or reader.type != node.type:
            break
        node = reader
    return node


def scan_vjp(
    grads: Any, inputs: Any, outs: Any, needs: Any, *, n_carried: int, reverse: bool,
    graphs: tuple[Graph, ...],
) -> list[Any]:
    """The gradients of carried values and sequences; see the module's docstring."""
    (body,) = graphs
    step = _Step(body, n_carried, grads, inputs, needs)
    step.differentiate()
    return step.run(grads, inputs, outs, reverse)


class _Step:
    """One step of the backward loop in the making."""

    def __init__(self, body: Graph, n: int, grads: Any, inputs: Any, needs: Any) -> None:
        self.body, self.n = body, n
        same = unchanged(body, n)
        self.constants = [i for i in range(n) if same[i]]
        self.slopes = [i for i in range(n) if not same[i] and inputs[i].type.dtype.is_float]
        self.weights = [i for i in self.constants if needs[i]]
        self.rows = [i for i in range(n, len(inputs)) if needs[i]]
        self.given = [j for j in range(n, len(body.outputs)) if grads[j] is not None]
        self.builder = Builder(body.env)
        self.at = [self._input(node) for node in body.inputs]
        self.carried = {i: self._input(body.inputs[i]) for i in self.slopes}
        self.cotangents = {j: self._input(body.outputs[j]) for j in self.given}
        self.saved: dict[int, Node] = {}  # results that are read instead of computed
        self.running: dict[int, Node] = {}  # sums of weights' gradients, so far
        self.sums: dict[int, Node] = {}  # and with this step's
        self.behind: dict[int, Behind] = {}
        self.operands: list[Node] = []  # stacked for what is done behind the loop

    def _input(self, like: Node) -> Node:
        return self.builder.input(like.tensor_type)

    def differentiate(self) -> None:
        """Find what one step computes: `outputs`, carried values first."""
        wanted = [*self.slopes, *self.weights, *self.rows]
        results = copied(self.builder, self.body, self.at)
        found = dict(zip(wanted, autodiff.backward(
            self.builder, [results[j] for j in (*self.slopes, *self.given)],
            [*self.carried.values(), *self.cotangents.values()], [self.at[i] for i in wanted],
        ), strict=True))
        for i in self.weights:
            self._contribution(i, found[i])
        carried = [*(self._some(i, found[i]) for i in self.slopes), *self.sums.values()]
        stacked = [*(self._some(i, found[i]) for i in self.rows), *self.operands]
        outputs = self._without_saved([*carried, *stacked], results)
        self.carried_out, self.stacked_out = outputs[: len(carried)], outputs[len(carried) :]

    def _some(self, i: int, gradient: Node | None) -> Node:
        """A gradient, or zeros."""
        if gradient is not None:
            return gradient
        type_ = self.body.inputs[i].tensor_type
        value = 0.0 if type_.dtype.is_float else 0
        return self.builder.emit(ops.full, shape=type_.shape, value=value, dtype=type_.dtype)

    def _contribution(self, i: int, gradient: Node | None) -> None:
        """Have a weight's gradient summed up, behind the loop if it can be."""
        if gradient is None:
            return
        operands: list[Node] = []
        behind = _behind(gradient, operands, len(self.operands))
        if behind is not None:
            self.operands += operands
            self.behind[i] = behind
        else:
            self.running[i] = self._input(self.body.inputs[i])
            self.sums[i] = self.builder.emit(ops.add, self.running[i], gradient)

    def _without_saved(self, outputs: Sequence[Node], results: Sequence[Node]) -> list[Node]:
        """The outputs, with the body's stacked results read and not computed."""
        replaced: dict[Node, Node] = {}
        for j in range(self.n, len(results)):
            if results[j].op.name != "input" and results[j] not in replaced:
                self.saved[j] = replaced[results[j]] = self._input(self.body.outputs[j])
        graph = Graph(
            self.body.name, tuple(self.builder.inputs), tuple(outputs), self.body.env
        )
        return copied(self.builder, graph, graph.inputs, replaced)

    # --- the loop ---------------------------------------------------------------------------

    def run(self, grads: Any, inputs: Any, outs: Any, reverse: bool) -> list[Any]:
        """The loop over all steps, and what comes behind it."""
        outputs = [*self.carried_out, *self.stacked_out]
        graph = Graph("", tuple(self.builder.inputs), tuple(outputs), self.body.env)
        read = {*outputs, *(x for node in graph.nodes for x in node.inputs)}
        constants = [i for i in self.constants if self.at[i] in read]
        varying = [
            i for i in range(self.n) if i not in self.constants and self.at[i] in read
        ]
        rows = [i for i in range(self.n, len(inputs)) if self.at[i] in read]
        counts: list[Node] = []  # where no sequence is read, one of zeros counts the steps
        counted: list[Any] = []
        if not (varying or rows or self.cotangents):
            counts = [self.builder.input(TensorType(f32, ()), "step")]
            counted = [filled(inputs[self.n], inputs[self.n].type.shape[:1], 0.0, f32)]
        saved = [j for j, node in self.saved.items() if node in read]
        kept = [self.at[i] for i in constants]
        carried = [*self.carried.values(), *self.running.values(), *kept]
        heads = [
            *carried, *(self.at[i] for i in (*varying, *rows)), *self.cotangents.values(),
            *(self.saved[j] for j in saved), *counts,
        ]
        sequences = [
            *self._beginnings(inputs, outs, varying, reverse), *(inputs[i] for i in rows),
            *(grads[j] for j in self.given), *(outs[j] for j in saved), *counted,
        ]
        step = _on_inputs(
            Graph(
                f"{self.body.name}_vjp", tuple(heads),
                (*self.carried_out, *kept, *self.stacked_out), self.body.env,
            )
        )
        values = packed(ops.scan(
            *(_or_zeros(grads[i], inputs[i]) for i in self.slopes),
            *(_or_zeros(None, inputs[i]) for i in self.sums),
            *(inputs[i] for i in constants), *sequences,
            n_carried=len(carried), reverse=not reverse, graphs=(step,),
        ))
        return self._results(grads, values, len(carried), len(inputs))

    def _beginnings(
        self, inputs: Any, outs: Any, varying: Sequence[int], reverse: bool
    ) -> list[Any]:
        """What each step began with, for these carried values."""
        body, n = self.body, self.n
        places = {node: j for j, node in enumerate(body.outputs) if j >= n}
        if all(body.inputs[i] in places for i in varying):
            return [outs[places[body.inputs[i]]] for i in varying]
        kept = (*body.outputs[:n], *(body.inputs[i] for i in varying))
        wider = Graph(body.name, body.inputs, kept, body.env)
        out = ops.scan(*inputs, n_carried=n, reverse=reverse, graphs=(wider,))
        return list(packed(out))[n:]

    def _results(self, grads: Any, values: Any, carried: int, count: int) -> list[Any]:
        results: list[Any] = [None] * count
        operands = values[carried + len(self.rows):]
        for i, gradient in zip(self.slopes, values, strict=False):
            results[i] = gradient
        for i in self.weights:
            results[i] = grads[i]
        sums = dict(zip(self.sums, values[len(self.slopes):], strict=False))
        sums |= {i: behind(operands) for i, behind in self.behind.items()}
        for i, total in sums.items():
            results[i] = total if results[i] is None else results[i] + total
        for i, gradient in zip(self.rows, values[carried:], strict=False):
            results[i] = gradient
        return results


def _on_inputs(graph: Graph) -> Graph:
    """The graph on new inputs, numbered in this order."""
    builder = Builder(graph.env)
    inputs = [builder.input(node.tensor_type) for node in graph.inputs]
    return builder.build(copied(builder, graph, inputs), graph.name)


def _or_zeros(gradient: Any, like: Any) -> Any:
    if gradient is not None:
        return gradient
    return filled(like, like.type.shape, 0.0, like.type.dtype)


# --- behind the loop -------------------------------------------------------------------------


def _behind(node: Node, operands: list[Node], first: int) -> Behind | None:
    """How the sum of a step's value over all steps comes from stacked operands, which are added to
    `operands` (the first of them has number `first`). None: it has to be added up step by step."""
    name, attrs = node.op.name, node.attrs
    if name in ("permute", "reshape"):
        inner = _behind(node.inputs[0], operands, first)
        if inner is None:
            return None
        return lambda values: node.op(inner(values), **attrs)
    if name == "add" and all(x.type == node.type for x in node.inputs):
        parts = [_behind(x, operands, first) for x in node.inputs]
        one, other = parts
        if one is None or other is None:
            return None
        return lambda values: one(values) + other(values)
    if name == "sum":
        at = _stacked(node.inputs[0], operands, first)
        shape, dims = node.shape, (0, *(d + 1 for d in attrs["dims"]))
        return lambda values: ops.reshape(
            ops.sum(values[at], dims=dims, keepdim=False), shape=shape
        )
    if name == "dot_general":
        left, right = (_stacked(x, operands, first) for x in node.inputs)
        moved = dict(attrs)
        for key in ("batch_a", "batch_b", "contract_a", "contract_b"):
            moved[key] = tuple(d + 1 for d in attrs[key])
        for side in ("contract_a", "contract_b"):
            moved[side] = (0, *moved[side])
        return lambda values: ops.dot_general(values[left], values[right], **moved)
    return None


def _stacked(node: Node, operands: list[Node], first: int) -> int:
    """The number of an operand among the stacked ones."""
    if node not in operands:
        operands.append(node)
    return first + operands.index(node)
