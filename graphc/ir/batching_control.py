"""Batching rules of operators with sub-graphs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .batching import RULES, Batch, BatchValue, batch_graph, move_dim, run_graph
from .graph import Builder, Expr, Graph
from .op import Attrs
from .ops._rules import ops
from .ops.control_gradients import copied, packed
from .ops.while_gradient import as_while_loops

Inputs = Sequence[BatchValue]


def _result(values: list[BatchValue]) -> Any:
    return values[0] if len(values) == 1 else tuple(values)


def _plain(batch: Batch, x: BatchValue, batched: bool) -> Any:
    return batch.full(x) if batched else x.value


def _cond(batch: Batch, inputs: Inputs, attrs: Attrs) -> Any:
    predicate, *operands = inputs
    graphs: tuple[Graph, ...] = attrs["graphs"]
    if predicate.batched:  # both branches, and a choice for each sample
        like = batch.value(batch.like, False)
        sides = [run_graph(graph, operands, like) for graph in graphs]
        return _result([ops.where(predicate, a, b) for a, b in zip(*sides, strict=True)])
    flags = [x.batched for x in operands]
    found = [batch_graph(graph, batch, flags)[1] for graph in graphs]
    force = [a or b for a, b in zip(*found, strict=True)]
    wide = tuple(batch_graph(graph, batch, flags, force)[0] for graph in graphs)
    out = packed(ops.cond(predicate.value, *[x.value for x in operands], graphs=wide))
    return _result([batch.value(x, b) for x, b in zip(out, force, strict=True)])


def _stable(batch: Batch, body: Graph, flags: list[bool], rest: list[bool]) -> list[bool]:
    """Carried values become batched where a step makes them so, until nothing changes."""
    while True:
        found = batch_graph(body, batch, [*flags, *rest])[1][: len(flags)]
        grown = [a or b for a, b in zip(flags, found, strict=True)]
        if grown == flags:
            return flags
        flags = grown


def _scan(batch: Batch, inputs: Inputs, attrs: Attrs) -> Any:
    n: int = attrs["n_carried"]
    (body,) = attrs["graphs"]
    rows = [x.batched for x in inputs[n:]]
    flags = _stable(batch, body, [x.batched for x in inputs[:n]], rows)
    outputs = batch_graph(body, batch, [*flags, *rows])[1]
    force = [*flags, *outputs[n:]]
    wide, _ = batch_graph(body, batch, [*flags, *rows], force)
    carried = [_plain(batch, x, flag) for x, flag in zip(inputs[:n], flags, strict=True)]
    sequences = [move_dim(x.value, 0, 1) if x.batched else x.value for x in inputs[n:]]
    out = packed(ops.scan(*carried, *sequences, **{**attrs, "graphs": (wide,)}))
    found = [
        batch.value(move_dim(x, 1, 0) if batched and i >= n else x, batched)
        for i, (x, batched) in enumerate(zip(out, force, strict=True))
    ]
    return _result(found)


def _while_loop(batch: Batch, inputs: Inputs, attrs: Attrs) -> Any:
    condition, body = attrs["graphs"]
    flags = _stable(batch, body, [x.batched for x in inputs], [])
    test, (decided,) = batch_graph(condition, batch, flags)
    if decided:  # run until no sample goes on; those that are done keep their values
        flags = [True] * len(flags)
        test, _ = batch_graph(condition, batch, flags)
    step, _ = batch_graph(body, batch, flags, flags)
    if decided:
        test, step = _until_all(test), _masked(batch, test, step)
    values = [_plain(batch, x, flag) for x, flag in zip(inputs, flags, strict=True)]
    out = packed(ops.while_loop(*values, graphs=(test, step)))
    return _result([batch.value(x, flag) for x, flag in zip(out, flags, strict=True)])


def _unwind(batch: Batch, inputs: Inputs, attrs: Attrs) -> Any:
    """By while_loops, which may end at another step for each sample."""
    builder = Builder(attrs["graphs"][0].env)
    values = [Expr(builder, builder.input(x.type)) for x in inputs]
    found = as_while_loops(values, **attrs)
    graph = builder.build([x.node for x in found], "unwind")
    return _result(run_graph(graph, inputs, batch.value(batch.like, False)))


def _until_all(test: Graph) -> Graph:
    builder = Builder(test.env)
    inputs = [builder.input(node.tensor_type) for node in test.inputs]
    (goes_on,) = copied(builder, test, inputs)
    some = ops.any(Expr(builder, goes_on), dims=(0,), keepdim=False)
    return builder.build([some.node], test.name)


def _masked(batch: Batch, test: Graph, step: Graph) -> Graph:
    builder = Builder(step.env)
    inputs = [builder.input(node.tensor_type) for node in step.inputs]
    (goes_on,) = copied(builder, test, inputs)
    mask = BatchValue(batch, Expr(builder, goes_on), True)
    outputs: list[Any] = []
    for old, new in zip(inputs, copied(builder, step, inputs), strict=True):
        aligned = batch.align(mask, len(old.shape) - 1)
        kept = ops.where(aligned, Expr(builder, new), Expr(builder, old))
        outputs.append(kept.node)
    return builder.build(outputs, step.name)


RULES.update({
    "cond": _cond, "scan": _scan, "while_loop": _while_loop, "unwind": _unwind,
})
