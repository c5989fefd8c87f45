"""torch.cond, while_loop, scan, associative_scan and map.

In eager mode they are the Python control flow that they stand for. Under a trace, branches and
bodies are traced once each, and become sub-graphs of one operator.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from graphc.ir import dtypes, ops
from graphc.ir.graph import Builder, Graph, Node
from graphc.ir.op import OpError
from graphc.ir.ops.control_gradients import copied
from graphc.ir.ops.scan_gradient import saved_for_backward

from .context import Uncounted, local
from .dispatch import apply, constant, inplace
from .eager_count import iterations
from .errors import ControlError, TraceError, located
from .history import requires_grad
from .saved_hooks import hooks
from .subtrace import SubTrace
from .tensor import Tensor, current
from .tree import Structure, flatten, unflatten
from .vmap import vmap

Function = Callable[..., Any]


class Body:
    """A function traced as a sub-graph: its own inputs, then the outside tensors it reads."""

    def __init__(self, name: str, function: Function, operands: Sequence[Tensor]) -> None:
        with SubTrace(name, operands) as trace:
            with trace.enclosing():
                types = [t._graphc_type for t in operands]
            given = [trace.own_input(t, f"operand{i}") for i, t in enumerate(types)]
            self.own = [t._graphc_traced.value for t in given]
            with hooks.unseen():  # the operator's tape saves what they are to see
                result = function(given)
            leaves, self.structure = flatten(result)
            self.outputs: list[Node] = []
            for leaf in leaves:
                if isinstance(leaf, (bool, int, float)):
                    leaf = constant(leaf)
                if not isinstance(leaf, Tensor):
                    raise RuntimeError(located(
                        f"{name}: the function must return Tensors only, got "
                        f"{type(leaf).__name__}"
                    ))
                state = leaf if leaf._graphc_trace is trace else trace.shadow(leaf)
                self.outputs.append(trace.read(state))
            for tensor, head in zip(given, self.own, strict=True):
                if tensor._graphc_storage.root.node is not head:
                    raise RuntimeError(located(
                        f"{name}: the function modifies one of its inputs in place. Cure: use the "
                        "out-of-place operator, and return the value"
                    ))
            self.written = {id(t): (t, node) for t, node in trace.writes()}
        trace.close()
        self.trace = trace
        self.captured = {id(tensor): (tensor, node) for tensor, node, _ in trace.captured}

    def graph(self, outside: Sequence[Tensor], outputs: Sequence[Node]) -> Graph:
        """The graph whose inputs are its own, then `outside` in this order."""
        builder = Builder(self.trace.env)
        own = [builder.input(node.tensor_type) for node in self.own]
        at: dict[Node, Node] = dict(zip(self.own, own, strict=True))
        for tensor in outside:
            found = self.captured.get(id(tensor))
            type_ = tensor._graphc_type if found is None else found[1].tensor_type
            node = builder.input(type_)
            if found is not None:
                at[found[1]] = node
        small = Graph(self.trace.name, tuple(at), tuple(outputs), self.trace.env)
        return builder.build(copied(builder, small, list(at.values())), self.trace.name)

    def value_of(self, tensor: Tensor) -> Node | None:
        """What an outside tensor holds at the end; None if it was not read."""
        if id(tensor) in self.written:
            return self.written[id(tensor)][1]
        found = self.captured.get(id(tensor))
        return None if found is None else found[1]

    def read(self, tensor: Tensor) -> None:
        """Make an outside tensor one that is read, though the function does not."""
        if id(tensor) not in self.captured:
            with self.trace:
                self.trace.shadow(tensor)
            _, node, _ = self.trace.captured[-1]
            self.captured[id(tensor)] = (tensor, node)


def _outside(bodies: Sequence[Body]) -> tuple[list[Tensor], list[Tensor]]:
    """Outside tensors that some body reads, and those that some body writes to."""
    read: dict[int, Tensor] = {}
    written: dict[int, Tensor] = {}
    for body in bodies:
        read.update({key: tensor for key, (tensor, _) in body.captured.items()})
        written.update({key: tensor for key, (tensor, _) in body.written.items()})
    for body in bodies:
        body.trace.open = True
        for tensor in written.values():
            body.read(tensor)
        body.trace.close()
    return list(read.values()), list(written.values())


def _as_they_begin(outside: list[Tensor], written: list[Tensor]) -> list[Tensor]:
    """The outside tensors; those that a body writes to, such as the state of a generator, as the
    values that they hold now: a gradient that reads one has to do with what was there before."""
    trace = local.trace
    assert trace is not None
    written_to = {id(tensor) for tensor in written}
    return [
        trace.wrap(trace.read(state))
        if id(tensor) in written_to and not requires_grad(state := current(tensor)) else tensor
        for tensor in outside
    ]


def _apply(op: Any, inputs: Sequence[Tensor], **attrs: Any) -> list[Tensor]:
    try:
        out = apply(op, *inputs, **attrs)
    except TraceError:
        raise
    except (OpError, RuntimeError, TypeError) as error:
        raise ControlError(str(error)) from None
    return list(out) if isinstance(out, tuple) else [out]


def _tensors(name: str, values: Any) -> tuple[list[Tensor], Structure]:
    leaves, structure = flatten(values)
    if not isinstance(values, (tuple, list)) or any(not isinstance(t, Tensor) for t in leaves):
        raise RuntimeError(
            f"Expect {name} to be a tuple of possibly nested dict/list/tuple that only consists "
            f"of tensor leaves, but got {values}."
        )
    return leaves, structure


def cond(
    pred: Any, true_fn: Function, false_fn: Function, operands: Any = ()
) -> Any:
    """torch.cond: `true_fn(*operands)` where the one-element `pred` is true, else
    `false_fn(*operands)`. Both must return tensors of the same shapes and dtypes."""
    if not callable(true_fn) or not callable(false_fn):
        raise RuntimeError("Expect both branches to be callable.")
    leaves, structure = _tensors("operands", operands)
    if not isinstance(pred, Tensor):
        if not isinstance(pred, (bool, int, float)):
            raise RuntimeError(f"Expected pred to be bool or tensor, but got {pred}.")
        return (true_fn if pred else false_fn)(*operands)
    if pred._graphc_type.elements != 1:
        raise RuntimeError(
            f"Expected pred to be bool or single-element tensor, but got {pred}."
        )
    if local.trace is None:
        return (true_fn if _truth(pred) else false_fn)(*operands)
    bodies = [
        Body(name, lambda given, f=function: f(*unflatten(list(given), structure)), leaves)
        for name, function in (("cond_true", true_fn), ("cond_false", false_fn))
    ]
    then, otherwise = bodies
    if then.structure != otherwise.structure:
        raise ControlError(located(
            "cond: both branches must return the same structure of tensors, got "
            f"{then.structure} and {otherwise.structure}"
        ))
    outside, written = _outside(bodies)
    outside += [t for t in written if all(t is not o for o in outside)]
    graphs = tuple(
        body.graph(outside, [*body.outputs, *[_value(body, t) for t in written]])
        for body in bodies
    )
    given = [_predicate(pred), *leaves, *_as_they_begin(outside, written)]
    results = _apply(ops.cond, given, graphs=graphs)
    count = len(then.outputs)
    for tensor, value in zip(written, results[count:], strict=True):
        inplace(tensor, value)
    return unflatten(results[:count], then.structure)


def _truth(value: Tensor) -> bool:
    """A one-element tensor's truth, in eager mode."""
    with Uncounted():
        return bool(value)


def _value(body: Body, tensor: Tensor) -> Node:
    node = body.value_of(tensor)
    assert node is not None  # _outside() made every body read it
    return node


def _predicate(value: Tensor) -> Tensor:
    """A one-element tensor as a 0-d bool."""
    if value._graphc_type.dtype is not dtypes.bool_:
        value = apply(ops.cast, value, dtype=dtypes.bool_)
    flat: Tensor = apply(ops.reshape, value, shape=()) if value._graphc_type.shape else value
    return flat


def while_loop(cond_fn: Function, body_fn: Function, carried_inputs: Any) -> Any:
    """torch.while_loop: `carried = body_fn(*carried)` while `cond_fn(*carried)` is true; the last
    carried values, which keep their shapes and dtypes."""
    if not callable(cond_fn):
        raise RuntimeError("Expect cond_fn to be callable.")
    if not callable(body_fn):
        raise RuntimeError("Expect body_fn to be callable.")
    if not isinstance(carried_inputs, (tuple, list)):
        raise RuntimeError(
            f"Expect carried_inputs to be a tuple or list, got {type(carried_inputs)}"
        )
    leaves, structure = flatten(tuple(carried_inputs))
    leaves = [constant(x) if isinstance(x, (bool, int, float)) else x for x in leaves]
    _tensors("carried_inputs", leaves)
    if local.trace is None:
        return _eager_while(cond_fn, body_fn, unflatten(leaves, structure))

    def carried(given: Sequence[Tensor]) -> Any:
        return unflatten(list(given), structure)

    test = Body("while_cond", lambda given: _predicate(cond_fn(*carried(given))), leaves)
    step = Body("while_body", lambda given: _bundle(body_fn(*carried(given))), leaves)
    if test.written:
        raise RuntimeError(located("while_loop: cond_fn must not modify tensors in place"))
    if len(step.outputs) != len(leaves):
        raise RuntimeError(located(
            f"while_loop: body_fn must return as many values as it takes: {len(leaves)}, got "
            f"{len(step.outputs)}"
        ))
    outside, written = _outside([test, step])
    for tensor in outside:
        _read_all([test, step], tensor)
    graphs = (
        test.graph(outside, test.outputs),
        step.graph(outside, [*step.outputs, *[_value(step, t) for t in outside]]),
    )
    given = [*leaves, *_as_they_begin(outside, written)]
    results = _apply(ops.while_loop, given, graphs=graphs)
    for tensor, value in zip(outside, results[len(leaves) :], strict=True):
        if any(tensor is t for t in written):
            inplace(tensor, value)
    return unflatten(results[: len(leaves)], structure)


def _read_all(bodies: Sequence[Body], tensor: Tensor) -> None:
    for body in bodies:
        body.trace.open = True
        body.read(tensor)
        body.trace.close()


def _bundle(value: Any) -> Any:
    return tuple(value) if isinstance(value, (tuple, list)) else (value,)


def _eager_while(cond_fn: Function, body_fn: Function, carried: tuple[Any, ...]) -> Any:
    want = [t._graphc_type for t in flatten(carried)[0]]
    state = [carried]
    for _ in iterations(iter(lambda: _truth(cond_fn(*state[0])), False)):
        carried = state[0] = _bundle(body_fn(*carried))
        have = [t._graphc_type for t in flatten(carried)[0]]
        if have != want:
            raise RuntimeError(located(
                "while_loop: body_fn must return values of the types that it takes: "
                f"({', '.join(str(t) for t in want)}), got ({', '.join(str(t) for t in have)})"
            ))
    return carried


# --- scans -------------------------------------------------------------------------------------


def scan(
    combine_fn: Function, init: Any, xs: Any, *, dim: int = 0, reverse: bool = False
) -> tuple[Any, Any]:
    """torch scan: `carry, y = combine_fn(carry, x)` for every slice x of `xs` along `dim`; the
    last carry, and the ys stacked along `dim` (along dimension 0 where they have fewer)."""
    if not callable(combine_fn):
        raise ValueError(f"Combine_fn must be a callable, but got {combine_fn}")
    carry, carry_structure = flatten(init)
    sequences, xs_structure = flatten(xs)
    _tensors("init", carry)
    _tensors("xs", sequences)
    if not carry:
        raise ValueError("scan() operator requires init leaves.")
    if not sequences:
        return init, []
    for x in sequences:
        if not -x.ndim <= dim < x.ndim:
            raise ValueError(f"All xs leaves must have dim {dim}, got a tensor of {x.ndim} dims")
    dim %= sequences[0].ndim
    length = sequences[0].shape[dim]
    if any(x.shape[dim] != length for x in sequences):
        raise ValueError(
            "All xs leaves must have the same number of elements in the scan dimension, got "
            f"{[x.shape[dim] for x in sequences]}"
        )
    if length == 0:
        raise RuntimeError("All xs leaves must at least have 1 element in the scan dimension")
    rows = [x.movedim(dim, 0) for x in sequences]
    count = len(carry)

    def step(given: Sequence[Tensor]) -> Any:
        out = combine_fn(
            unflatten(list(given[:count]), carry_structure),
            unflatten(list(given[count:]), xs_structure),
        )
        if not (isinstance(out, tuple) and len(out) == 2):
            raise RuntimeError(located(
                "scan: combine_fn must return (next_carry, y), got "
                f"{type(out).__name__}"
            ))
        return out

    if local.trace is None:
        last, stacked, structure = _eager_scan(step, carry, rows, reverse)
    else:
        last, stacked, structure = _traced_scan(step, carry, rows, reverse)
    stacked = [y.movedim(0, dim) if 0 < dim < y.ndim else y for y in stacked]
    return unflatten(last, carry_structure), unflatten(stacked, structure)


def _eager_scan(
    step: Function, carry: list[Tensor], rows: list[Tensor], reverse: bool
) -> tuple[list[Tensor], list[Tensor], Structure]:
    columns: list[list[Tensor]] = []
    structure: Any = None
    want = [t._graphc_type for t in carry]
    order = range(len(rows[0]))
    for i in iterations(reversed(order) if reverse else order):
        after, y = step([*carry, *[x[i] for x in rows]])
        carry = flatten(after)[0]
        have = [t._graphc_type for t in carry]
        if have != want:
            raise RuntimeError(located(
                "scan: the carry must keep its types: "
                f"({', '.join(str(t) for t in want)}), got ({', '.join(str(t) for t in have)})"
            ))
        found, structure = flatten(y)
        columns = columns or [[] for _ in found]
        for column, value in zip(columns, found, strict=True):
            column.append(value)
    return carry, [_stack(c[::-1] if reverse else c) for c in columns], structure


def _stack(values: list[Tensor]) -> Tensor:
    wide = [apply(ops.reshape, v, shape=(1, *v._graphc_type.shape)) for v in iterations(values)]
    stacked: Tensor = apply(ops.concat, *wide, dim=0)
    return stacked


def _traced_scan(
    step: Function, carry: list[Tensor], rows: list[Tensor], reverse: bool
) -> tuple[list[Tensor], list[Tensor], Structure]:
    firsts = [x.select(0, 0) for x in rows]
    body = Body("scan_body", step, [*carry, *firsts])
    after, y = unflatten(list(range(len(body.outputs))), body.structure)
    count = len(carry)
    if len(flatten(after)[0]) != count:
        raise RuntimeError(located(
            f"scan: the carry has {count} tensors, combine_fn gives {len(flatten(after)[0])}"
        ))
    outside, written = _outside([body])
    graph = body.graph(outside, [*body.outputs, *[_value(body, t) for t in outside]])
    n, ys = count + len(outside), len(body.outputs) - count
    # own inputs come first: carry, outside, rows is the order of the operator
    builder = Builder(graph.env)
    heads = [builder.input(x.tensor_type) for x in graph.inputs[:count]]
    extra = [builder.input(x.tensor_type) for x in graph.inputs[count + len(rows) :]]
    slices = [builder.input(x.tensor_type) for x in graph.inputs[count : count + len(rows)]]
    out = copied(builder, graph, [*heads, *slices, *extra])
    outputs = [*out[:count], *out[count + ys :], *out[count : count + ys]]
    inputs = [*carry, *_as_they_begin(outside, written), *rows]
    plain = builder.build(outputs, "scan_body")
    if local.grad and any(requires_grad(current(t)) for t in inputs):
        plain = builder.build([*outputs, *saved_for_backward(plain, n)], "scan_body")
    results = _apply(ops.scan, inputs, n_carried=n, reverse=reverse, graphs=(plain,))
    for tensor, value in zip(outside, results[count:n], strict=True):
        if any(tensor is t for t in written):
            inplace(tensor, value)
    return results[:count], results[n : n + ys], flatten(y)[1]


def associative_scan(
    combine_fn: Function, xs: Any, dim: int, reverse: bool = False,
    combine_mode: str = "pointwise",
) -> Any:
    """torch associative_scan: all running combinations of the slices of `xs` along `dim`, in a
    logarithmic number of steps (Hillis and Steele, 1986)."""
    if not callable(combine_fn):
        raise ValueError(f"Combine_fn must be a callable, but got {combine_fn}")
    if not isinstance(dim, int):
        raise ValueError(f"Dim must be an int, but got {type(dim)}")
    if combine_mode not in ("pointwise", "generic"):
        raise ValueError(
            f"Combine_mode must either 'pointwise' or 'generic', but got {combine_mode}"
        )
    leaves, structure = flatten(xs)
    _tensors("xs", leaves)
    if not leaves:
        raise ValueError("Expected at least 1 xs leaf")
    rows = [x.movedim(dim, 0) for x in leaves]
    if reverse:
        rows = [x.flip(0) for x in rows]
    length = int(rows[0].shape[0])

    def combine(*parts: Tensor) -> Any:
        half = len(parts) // 2
        out = combine_fn(
            unflatten(list(parts[:half]), structure), unflatten(list(parts[half:]), structure)
        )
        return tuple(flatten(out)[0])

    step = 1
    while step < length:
        earlier = [x[: length - step] for x in rows]
        later = [x[step:] for x in rows]
        found = vmap(combine)(*earlier, *later)
        rows = [
            apply(ops.concat, x[:step], new, dim=0) for x, new in zip(rows, found, strict=True)
        ]
        step *= 2
    if reverse:
        rows = [x.flip(0) for x in rows]
    return unflatten([x.movedim(0, dim) for x in rows], structure)


def map(f: Function, xs: Any, *args: Any) -> Any:
    """torch map: `f(x, *args)` for every slice x of `xs` along dimension 0, stacked."""
    rows = flatten(xs)[0]
    if not rows or any(not isinstance(x, Tensor) for x in rows):
        raise RuntimeError(f"Mapped xs can only consist of tensors. Got xs {xs}.")
    if any(x.ndim == 0 or x.shape[0] != rows[0].shape[0] for x in rows):
        raise RuntimeError(
            f"Leading dimensions of mapped xs must be consistent. Got shapes "
            f"{[tuple(x.shape) for x in rows]}."
        )
    start = constant(0)
    return scan(lambda carry, x: (carry + 0, f(x, *args)), start, xs)[1]


__all__ = ["associative_scan", "cond", "map", "scan", "while_loop"]
