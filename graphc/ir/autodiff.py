"""The one reverse walk, and what gradient rules read.

Three users, one walk (`walk`), one way to ask a rule (`run_vjp`):

* `backward(builder, outputs, cotangents, wrt)` appends the gradients' nodes to a Builder
  (`joint_graph` wraps it for a whole Graph);
* the frontend's `.backward()`, eager or under trace, calls `walk` over its tape: the steps are
  its grad_fns, its `rule` call-out runs the hooks and then `run_vjp` on Tensors (so
  create_graph, hooks and custom Functions need nothing special), leaves are steps that store
  `.grad` and return no contributions;
* eager `.backward()` without create_graph need not touch Tensors: `vjp_program(op, input_types,
  attrs, needs)` gives the rule traced once per signature as a Graph, to be interpreted on arrays.

What is saved for a backward is derived from the same trace: `vjp_program(...).inputs` and
`.outs` are the positions of the operator's inputs and results that the rule reads, and nothing
else is kept alive or version-checked. `saved_values` returns just those two tuples.

A typical eager tape entry:

    program = vjp_program(op, types, attrs, needs)           # at the forward call; cached
    saved = [inputs[i] for i in program.inputs] + [outs[i] for i in program.outs]
    ...
    arrays = evaluate(program.graph, [*present_grads, *saved], TABLE)   # at backward()
    for position, gradient in zip(program.results, arrays): ...        # other inputs get none

`present_grads` are the gradients of the results listed in `program.grads`. An operator with
several results may get gradients for some only: ask again with `given=(True, False, ...)`
(what it reads is a subset of what the full program reads).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Any, TypeVar

from .dim import DimEnv
from .graph import Builder, Expr, Graph, Node, attr_key, get_, toposort
from .op import Attrs, Op, OpError, get
from .ops._rules import conj, expand, sum_to
from .record import record
from .types import TensorType, TupleType

Step = TypeVar("Step", bound=Hashable)
V = TypeVar("V")


def walk(
    order: Iterable[Step],
    seeds: Iterable[tuple[Step, int, V]],
    rule: Callable[[Step, list[V | None]], Iterable[tuple[Step, int, V]]],
    accumulate: Callable[[V, V], V],
) -> None:
    """Visit `order` (consumers before producers), handing every step its results' gradients.

    `seeds` and what `rule` returns are contributions (step, result index, gradient) and must
    point to steps later in `order` (seeds: to any). Contributions to one result are combined by
    `accumulate(old, new)` in the order they arrive. A step that got none is not visited. A
    step's gradients are dropped as soon as it has been visited.
    """
    pending: dict[Step, list[V | None]] = {}

    def contribute(contributions: Iterable[tuple[Step, int, V]]) -> None:
        for step, index, gradient in contributions:
            slots = pending.get(step)
            if slots is None:
                slots = pending[step] = []
            while len(slots) <= index:
                slots.append(None)
            old = slots[index]
            slots[index] = gradient if old is None else accumulate(old, gradient)

    contribute(seeds)
    for step in order:
        slots = pending.pop(step, None)
        if slots is not None:
            contribute(rule(step, slots))


def reverse_order(
    roots: Iterable[Step], sources: Callable[[Step], Iterable[Step]]
) -> list[Step]:
    """Every step reachable from `roots`, consumers before producers; iterative."""
    done: dict[Step, None] = {}
    stack: list[tuple[Step, bool]] = [(root, False) for root in roots]
    entered: set[Step] = set()
    while stack:
        step, expanded = stack.pop()
        if expanded:
            done[step] = None
        elif step not in entered:
            entered.add(step)
            stack.append((step, True))
            stack.extend((source, False) for source in sources(step) if source not in entered)
    return list(reversed(done))


def run_vjp(
    op: Op,
    grads: Sequence[Any],
    inputs: Sequence[Any],
    outs: Sequence[Any],
    needs: Sequence[bool],
    attrs: Attrs,
) -> list[Any]:
    """The gradient of each input (None where not needed or zero), on values of any kind.

    `grads` and `outs` have one entry per result; a grad is None where no gradient flows. A value
    that the rule does not read (see `saved_values`) may be anything with a `.type`.
    Raises OpError where the operator has no gradient, or its rule is wrong.
    """
    if op.vjp is None:
        reason = op.nondifferentiable or "no gradient rule is registered"
        raise OpError(f"{op.name} is not differentiable: {reason}")
    if not any(needs) or all(g is None for g in grads):
        return [None] * len(inputs)
    found = list(_conjugated(op, grads, inputs, outs, needs, attrs))
    if len(found) != len(inputs):
        raise OpError(f"{op.name}: its rule gave {len(found)} gradients for {len(inputs)} inputs")
    for i, (gradient, value) in enumerate(zip(found, inputs, strict=True)):
        if not needs[i] or gradient is None:
            found[i] = None
            continue
        want: TensorType = value.type
        gradient = found[i] = sum_to(gradient, want.shape)
        have: TensorType = gradient.type
        if have.dtype is not want.dtype or len(have.shape) != len(want.shape):
            raise OpError(f"{op.name}: the gradient of input {i} is {have}, the input is {want}")
    return found


def _conjugated(
    op: Op, grads: Sequence[Any], inputs: Sequence[Any], outs: Sequence[Any],
    needs: Sequence[bool], attrs: Attrs,
) -> Sequence[Any]:
    """What the rule gives; among complex numbers, the conjugate of what it gives for conjugates.

    Rules say g * f'(x), torch's gradient is g * conj(f'(x)): the same for a real f', and for
    every operator that is holomorphic. The others say `adjoint`: their rules conjugate.
    """
    assert op.vjp is not None
    if op.adjoint or not any(g is not None and g.type.dtype.is_complex for g in grads):
        return op.vjp(grads, inputs, outs, needs, **attrs)
    found = op.vjp([conj(g) for g in grads], inputs, outs, needs, **attrs)
    return [conj(g) for g in found]


# --- a rule, traced once per signature -------------------------------------------------------


@record(eq=False)
class VjpProgram:
    """A gradient rule as a Graph. The graph's inputs are, in this order: the gradients of the
    results listed in `grads`, the operator's inputs in `inputs`, its results in `outs` (only
    what is read). Its outputs are the gradients of the operator's inputs listed in `results`.
    """

    graph: Graph
    grads: tuple[int, ...]
    inputs: tuple[int, ...]
    outs: tuple[int, ...]
    results: tuple[int, ...]


_programs: dict[Any, VjpProgram] = {}
_PROGRAM_LIMIT = 20_000


def vjp_program(
    op: Op,
    input_types: Sequence[TensorType],
    attrs: Attrs,
    needs: Sequence[bool],
    given: Sequence[bool] | None = None,
    env: DimEnv | None = None,
) -> VjpProgram:
    """The rule of `op` for one signature, cached. `given`: which results have a gradient (default:
    the float ones). `env` decides about symbolic sizes; such signatures are not cached.
    """
    if env is not None and env.hints:
        return _trace_rule(op, tuple(input_types), attrs, tuple(needs), given, env)
    key = (op.name, tuple(input_types), tuple((k, attr_key(v)) for k, v in attrs.items()),
           tuple(needs), given if given is None else tuple(given))
    program = _programs.get(key)
    if program is None:
        if len(_programs) >= _PROGRAM_LIMIT:
            _programs.clear()
        program = _trace_rule(op, tuple(input_types), attrs, tuple(needs), given, DimEnv())
        _programs[key] = program
    return program


def saved_values(
    op: Op,
    input_types: Sequence[TensorType],
    attrs: Attrs,
    needs: Sequence[bool],
    env: DimEnv | None = None,
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Positions of the inputs and of the results that the gradient rule reads."""
    program = vjp_program(op, input_types, attrs, needs, env=env)
    return program.inputs, program.outs


def _trace_rule(
    op: Op,
    input_types: tuple[TensorType, ...],
    attrs: Attrs,
    needs: tuple[bool, ...],
    given: Sequence[bool] | None,
    env: DimEnv,
) -> VjpProgram:
    result = op.infer(input_types, attrs, env)
    out_types = result.elements if isinstance(result, TupleType) else (result,)
    if given is None:
        given = tuple(t.dtype.differentiable for t in out_types)
    builder = Builder(env)
    grads = [builder.input(t, f"g{i}") if given[i] else None for i, t in enumerate(out_types)]
    inputs = [builder.input(t, f"x{i}") for i, t in enumerate(input_types)]
    outs = [builder.input(t, f"y{i}") for i, t in enumerate(out_types)]
    found = run_vjp(
        op,
        [None if g is None else Expr(builder, g) for g in grads],
        [Expr(builder, x) for x in inputs],
        [Expr(builder, y) for y in outs],
        needs,
        attrs,
    )
    results = tuple(i for i, gradient in enumerate(found) if gradient is not None)
    outputs = [found[i].node for i in results]
    read = set(toposort(outputs))
    used_grads = tuple(i for i, g in enumerate(grads) if g is not None)
    used_inputs = tuple(i for i, x in enumerate(inputs) if x in read)
    used_outs = tuple(i for i, y in enumerate(outs) if y in read)
    kept = [grads[i] for i in used_grads]
    kept += [inputs[i] for i in used_inputs]
    kept += [outs[i] for i in used_outs]
    graph = Graph(f"{op.name}_vjp", tuple(n for n in kept if n is not None), tuple(outputs), env)
    return VjpProgram(graph, used_grads, used_inputs, used_outs, results)


# --- over Graph nodes ------------------------------------------------------------------------


def backward(
    builder: Builder,
    outputs: Sequence[Node],
    cotangents: Sequence[Node | None],
    wrt: Sequence[Node],
    backward_id: int = 1,
) -> list[Node | None]:
    """Append to `builder` the nodes of the gradients of `outputs` with regard to `wrt`.

    A cotangent of None is one (its output must have one element). The result is None for a value
    that no output depends on. New nodes carry their forward node's line, and `backward_id`.
    """
    order = toposort(outputs)
    active = _depend_on(order, wrt)
    wanted = set(wrt)
    found: dict[Node, Node] = {}

    def rule(node: Node, grads: list[Node | None]) -> list[tuple[Node, int, Node]]:
        if node in wanted and grads[0] is not None:
            found[node] = grads[0]
        if node.op is get_:
            assert grads[0] is not None
            return [(node.inputs[0], node.attrs["index"], grads[0])]
        needs = [x in active for x in node.inputs]
        if not any(needs):
            return []
        with builder.at(node.loc, backward_id):
            return _node_rule(builder, node, grads, needs)

    def add(a: Node, b: Node) -> Node:
        with builder.at(b.loc, backward_id):
            total: Node = (Expr(builder, a) + Expr(builder, b)).node
        return total

    seeds = [
        (output, 0, _seed(builder, output, cotangent, backward_id))
        for output, cotangent in zip(outputs, cotangents, strict=True)
        if output in active
    ]
    walk((n for n in reversed(order) if n in active), seeds, rule, add)
    return [found.get(node) for node in wrt]


def _node_rule(
    builder: Builder, node: Node, grads: list[Node | None], needs: list[bool]
) -> list[tuple[Node, int, Node]]:
    outs = builder.results(node)
    slots = [grads[i] if i < len(grads) else None for i in range(len(outs))]
    attrs: Attrs = dict(node.attrs)
    if node.graphs:
        attrs["graphs"] = node.graphs
    gradients = run_vjp(
        node.op,
        [None if g is None else Expr(builder, g) for g in slots],
        [Expr(builder, x) for x in node.inputs],
        [Expr(builder, y) for y in outs],
        needs,
        attrs,
    )
    return [
        (source, 0, gradient.node)
        for source, gradient in zip(node.inputs, gradients, strict=True)
        if gradient is not None
    ]


def _depend_on(order: Sequence[Node], wrt: Sequence[Node]) -> set[Node]:
    """Nodes of `order` through which a gradient can flow to `wrt` (integers carry none)."""
    active = {node for node in wrt if node.dtype.differentiable}
    for node in order:
        if node in active or not any(x in active for x in node.inputs):
            continue
        if isinstance(node.type, TensorType) and not node.type.dtype.differentiable:
            continue
        active.add(node)
    return active


def _seed(builder: Builder, output: Node, cotangent: Node | None, backward_id: int) -> Node:
    if cotangent is not None:
        if cotangent.type != output.type:
            raise OpError(f"the gradient given is {cotangent.type}, its output is {output.type}")
        return cotangent
    elements = output.tensor_type.elements
    if elements != 1:
        raise OpError(
            f"grad can be implicitly created only for scalar outputs, got {output.type}; "
            "give the gradient"
        )
    with builder.at(output.loc, backward_id):
        one = Expr(builder, builder.const(1, output.dtype))
        expanded: Expr = expand(one, output.shape)
        return expanded.node


def joint_graph(graph: Graph, wrt: Sequence[int] | None = None) -> Graph:
    """Forward and backward in one Graph.

    Inputs: the graph's, then a cotangent for each float output. Outputs: the graph's, then the
    gradient of each input in `wrt` (default: the float inputs), zeros where nothing flows.
    """
    builder = Builder(graph.env)
    builder.inputs = list(graph.inputs)
    if wrt is None:
        wrt = [i for i, node in enumerate(graph.inputs) if node.dtype.differentiable]
    chosen = [graph.inputs[i] for i in wrt]
    outputs = [node for node in graph.outputs if node.dtype.differentiable]
    cotangents = [builder.input(n.tensor_type, f"g{i}") for i, n in enumerate(outputs)]
    gradients = backward(builder, outputs, cotangents, chosen)
    full = get("full")
    whole = [
        builder.emit(full, shape=x.shape, value=0.0, dtype=x.dtype) if g is None else g
        for x, g in zip(chosen, gradients, strict=True)
    ]
    return builder.build([*graph.outputs, *whole], f"{graph.name}_joint")


__all__ = [
    "VjpProgram", "backward", "joint_graph", "reverse_order", "run_vjp", "saved_values",
    "sum_to", "vjp_program", "walk",
]
