"""The gradient of while_loop: its steps from last to first, each from what it began with.

How many steps there are is known only when they have run, so memory for what all of them began
with cannot be there ahead. `unwind` has memory for so many: it runs a loop and keeps what each step
began with, and then goes back over them. One unwind goes back over blocks of steps, and one inside
over the steps of a block, which run again for it: the time grows as the number of steps does, at
three runs of the loop beside the gradient itself, up to the square of the rows (`_rows`: 1,024
where a step carries up to 4 KiB, 16 from 256 KiB on). What is longer runs once more from the start
for each further so many steps.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .. import autodiff, dtypes
from ..graph import Builder, Expr, Graph, Node
from ..types import TensorType
from ._rules import filled, ops
from .control_gradients import copied, gradients, packed

_COUNTER = TensorType(dtypes.i64, ())
_BYTES = 1 << 22  # of memory for what steps begin with
_MOST, _LEAST = 1024, 16


def while_vjp(
    grads: Any, inputs: Any, outs: Any, needs: Any, *, graphs: tuple[Graph, ...]
) -> list[Any]:
    """The gradients of the values that the loop began with."""
    _, body = graphs
    slopes = [i for i, x in enumerate(inputs) if x.type.dtype.is_float]
    back = _gradient_of_step(body, slopes)
    most = _rows(body)
    ends = [
        grads[i] if grads[i] is not None
        else filled(inputs[i], inputs[i].type.shape, 0.0, inputs[i].type.dtype)
        for i in slopes
    ]
    found = _backwards(inputs, ends, graphs, back, most)
    results: list[Any] = [None] * len(inputs)
    for i, gradient in zip(slopes, found, strict=True):
        results[i] = gradient if needs[i] else None
    return results


def unwind_vjp(
    grads: Any, inputs: Any, outs: Any, needs: Any, *, n_state: int, most: int,
    graphs: tuple[Graph, ...],
) -> list[Any]:
    """The gradient of the same made of while_loops, which begins anew for every step."""
    builder = Builder(graphs[0].env)
    own = [builder.input(x.type) for x in inputs]
    found = as_while_loops(
        [Expr(builder, x) for x in own], n_state=n_state, most=most, graphs=graphs
    )
    given = [i for i, g in enumerate(grads) if g is not None]
    tangents = [builder.input(grads[i].type) for i in given]
    wanted = [i for i, need in enumerate(needs) if need]
    gradient = autodiff.backward(
        builder, [found[i].node for i in given], tangents, [own[i] for i in wanted]
    )
    kept = [k for k, g in enumerate(gradient) if g is not None]
    results: list[Any] = [None] * len(inputs)
    nodes = [g for g in gradient if g is not None]
    graph = builder.build(nodes, "unwind_vjp")
    values = [*inputs, *(grads[i] for i in given)]
    for k, value in zip(kept, _run(graph, values), strict=True):
        results[wanted[k]] = value
    return results


def as_while_loops(
    inputs: Sequence[Any], *, n_state: int, most: int, graphs: tuple[Graph, ...]
) -> tuple[Any, ...]:
    """The results of an unwind by while_loops alone, in quadratic time."""
    condition, body, back = graphs
    return _replayed(
        inputs[:n_state], inputs[n_state:], _limited(condition, body, most), back
    )


def _run(graph: Graph, values: Sequence[Any]) -> list[Any]:
    """The graph's nodes on values of any kind."""
    at: dict[Node, Any] = dict(zip(graph.inputs, values, strict=True))
    for node in graph.nodes:
        if node in at:
            continue
        if node.op.name == "get":
            at[node] = at[node.inputs[0]][node.attrs["index"]]
            continue
        attrs = {**node.attrs, "graphs": node.graphs} if node.graphs else dict(node.attrs)
        at[node] = values[0]._emit(node.op, tuple(at[x] for x in node.inputs), attrs)
    return [at[node] for node in graph.outputs]


def _rows(body: Graph) -> int:
    """How many times what a step begins with is kept."""
    size = sum(
        x.tensor_type.elements * x.tensor_type.dtype.itemsize
        for x, y in zip(body.inputs, body.outputs, strict=True) if x is not y
    )
    return min(max(_BYTES // max(body.env.hint(size), 1), _LEAST), _MOST)


def _gradient_of_step(body: Graph, slopes: Sequence[int]) -> Graph:
    """(*slopes of what a step ends with, *what it began with) -> slopes of what it began with."""
    builder = Builder(body.env)
    carried = [builder.input(body.inputs[i].tensor_type) for i in slopes]
    began = [builder.input(x.tensor_type) for x in body.inputs]
    found = gradients(builder, body, began, slopes, carried, slopes)
    return builder.build(found, f"{body.name}_vjp")


# --- loops made of loops ---------------------------------------------------------------------


def _blocks(graphs: tuple[Graph, Graph], most: int) -> tuple[Graph, Graph]:
    """The loop whose steps are `most` steps of this one."""
    condition, body = graphs
    builder = Builder(body.env)
    began = [builder.input(x.tensor_type) for x in body.inputs]
    values = [Expr(builder, x) for x in began]
    zero = filled(values[0], (), 0, dtypes.i64)
    ended = packed(ops.while_loop(zero, *values, graphs=_limited(condition, body, most)))[1:]
    outputs = [
        x if old is new else y.node  # what no step changes is not carried from block to block
        for x, y, old, new in zip(began, ended, body.inputs, body.outputs, strict=True)
    ]
    return condition, builder.build(outputs, f"{body.name}_block")


def _limited(condition: Graph, body: Graph, most: int) -> tuple[Graph, Graph]:
    """The loop with a counter of its steps first, of which there are at most so many."""
    builder, heads = _with_counter(condition)
    goes_on = Expr(builder, copied(builder, condition, heads[1:])[0])
    less = ops.lt(Expr(builder, heads[0]), most)
    test = builder.build([ops.logical_and(less, goes_on).node], condition.name)
    return test, _counted(body)


def _counted(body: Graph) -> Graph:
    """A step that counts itself first."""
    builder, heads = _with_counter(body)
    more = Expr(builder, heads[0]) + 1
    return builder.build([more.node, *copied(builder, body, heads[1:])], body.name)


def _with_counter(graph: Graph) -> tuple[Builder, list[Node]]:
    builder = Builder(graph.env)
    return builder, [builder.input(t) for t in (_COUNTER, *(x.tensor_type for x in graph.inputs))]


def _backwards(
    inputs: Sequence[Any], ends: Sequence[Any], graphs: tuple[Graph, ...], back: Graph, most: int,
) -> tuple[Any, ...]:
    """The slopes of the inputs of a loop of any length: back over blocks of blocks of steps."""
    condition, body = graphs
    blocks = _blocks((condition, body), most)

    builder = Builder(body.env)
    slopes = [Expr(builder, builder.input(x.type)) for x in ends]
    began = [Expr(builder, builder.input(x.type)) for x in inputs]
    found = packed(ops.unwind(
        *began, *slopes, n_state=len(inputs), most=most, graphs=(condition, body, back)
    ))
    of_block = builder.build([x.node for x in found], back.name)

    long = _blocks(blocks, most)
    builder = Builder(body.env)
    slopes = [Expr(builder, builder.input(x.type)) for x in ends]
    began = [Expr(builder, builder.input(x.type)) for x in inputs]
    found = packed(ops.unwind(
        *began, *slopes, n_state=len(inputs), most=most, graphs=(*blocks, of_block)
    ))
    of_blocks = builder.build([x.node for x in found], back.name)
    counted = _uncounting(condition), _counted(long[1])
    return _replayed(inputs, ends, counted, of_blocks)


def _uncounting(condition: Graph) -> Graph:
    """The condition of a loop with a counter, which it does not read."""
    builder, heads = _with_counter(condition)
    return builder.build(copied(builder, condition, heads[1:]), condition.name)


def _replayed(
    inputs: Sequence[Any], ends: Sequence[Any], counted: tuple[Graph, Graph], back: Graph,
) -> tuple[Any, ...]:
    """Slopes back over the steps of a loop with a counter: what a step began with is computed again
    from the start."""
    _, body = counted
    zero = filled(inputs[0], (), 0, dtypes.i64)
    steps = packed(ops.while_loop(zero, *inputs, graphs=counted))[0]

    builder = Builder(body.env)
    left = Expr(builder, builder.input(_COUNTER))
    slopes = [Expr(builder, builder.input(x.type)) for x in ends]
    starts = [builder.input(x.type) for x in inputs]
    before = left - 1
    again = packed(ops.while_loop(
        filled(left, (), 0, dtypes.i64), before, *(Expr(builder, x) for x in starts),
        graphs=_up_to(body),
    ))[2:]
    began = [
        x if old is new else y.node
        for x, y, old, new in zip(starts, again, body.inputs[1:], body.outputs[1:], strict=True)
    ]
    found = copied(builder, back, [*(x.node for x in slopes), *began])
    step = builder.build([before.node, *found, *starts], back.name)

    builder = Builder(body.env)
    heads = [builder.input(x.tensor_type) for x in step.inputs]
    test = builder.build([ops.gt(Expr(builder, heads[0]), 0).node], f"{back.name}_left")
    return packed(ops.while_loop(steps, *ends, *inputs, graphs=(test, step)))[1 : 1 + len(ends)]


def _up_to(body: Graph) -> tuple[Graph, Graph]:
    """A loop of so many steps of a body with a counter: (counter, number of steps, *values)."""
    graphs: list[Graph] = []
    for part in ("test", "step"):
        builder = Builder(body.env)
        counter, number = (builder.input(_COUNTER) for _ in range(2))
        values = [builder.input(x.tensor_type) for x in body.inputs[1:]]
        if part == "test":
            outputs = [ops.lt(Expr(builder, counter), Expr(builder, number)).node]
        else:
            more, *values = copied(builder, body, [counter, *values])
            outputs = [more, number, *values]
        graphs.append(builder.build(outputs, f"{body.name}_{part}"))
    return graphs[0], graphs[1]
