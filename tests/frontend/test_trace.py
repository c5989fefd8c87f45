"""The tracer: what is recorded, what is captured, what comes out, and what is left untouched."""

from __future__ import annotations

import dataclasses
import threading
from typing import Any

import numpy as np
import pytest

from graphc.frontend import promote, random_state
from graphc.frontend.captured import NumberInput, TracedGraph
from graphc.frontend.dispatch import apply, inplace
from graphc.frontend.errors import EscapedTensorError, TraceError
from graphc.frontend.grad_mode import no_grad
from graphc.frontend.numbers import SymInt
from graphc.frontend.tensor import Parameter, Tensor, concrete
from graphc.frontend.trace import Trace
from graphc.ir import dtypes, ops
from graphc.ir.verify import verify

from .core import (
    add,
    add_,
    evaluate,
    exp,
    fill_,
    matmul,
    mul,
    mul_,
    reshape,
    row,
    rows,
    tensor,
    total,
    transpose,
    values,
)


def _trace(function: Any, *arguments: Any, **options: Any) -> TracedGraph:
    with Trace(function.__name__) as trace:
        for i, argument in enumerate(arguments):
            trace.add_argument(argument, i, options.get("symbolic", {}).get(i))
        traced = trace.finish(function(*arguments), backward=options.get("backward", False))
    trace.close()
    verify(traced.graph)
    return traced


def test_nodes_carry_the_user_line_and_the_backward_call() -> None:
    w = tensor([1.0, 2.0], True)

    def step() -> Tensor:
        loss = total(mul(w, w))
        loss.backward()
        return loss

    traced = _trace(step)
    products = [n for n in traced.graph.nodes if n.op.name == "mul"]
    assert {n.backward for n in products} == {0, 1}
    assert all(n.loc is not None and n.loc.file.endswith("core.py") for n in products)
    assert [g.tensor for g in traced.grads] == [w] and w.grad is None


def test_captured_and_argument_inputs() -> None:
    w = Parameter(tensor([[1.0], [2.0]]))

    def f(x: Tensor) -> Tensor:
        return matmul(x, w)

    x = tensor([[3.0, 4.0]])
    traced = _trace(f, x)
    assert [(s.kind, s.index) for s in traced.inputs] == [("argument", 0), ("tensor", -1)]
    assert traced.inputs[1].tensor is w and traced.inputs[1].requires_grad
    assert traced.result.requires_grad
    assert evaluate(traced, [tensor([[5.0, 6.0]])])[0].tolist() == [[17.0]]


def test_writes_become_mutations_and_leave_the_tensors_alone() -> None:
    state, x = tensor([1.0, 2.0]), tensor([10.0, 20.0])

    def step(x: Tensor) -> None:
        mul_(state, 0.5)
        add_(row(state, 1), row(x, 0))

    traced = _trace(step, x)
    assert values(state) == [1, 2] and state._version == 0
    (mutation,) = traced.mutations
    assert traced.inputs[mutation.input].tensor is state and mutation.versions == 2
    assert evaluate(traced, [x])[mutation.output].tolist() == [0.5, 11.0]


def test_slices_of_one_array_are_inputs_of_their_own() -> None:
    data = tensor(np.arange(12).reshape(6, 2))
    a, b = rows(data, 0, 2), rows(data, 2, 4)
    traced = _trace(lambda a, b: add(a, b), a, b)
    assert [tuple(s.type.shape) for s in traced.inputs] == [(2, 2), (2, 2)]
    assert traced.overlaps == ()


@pytest.mark.parametrize("write_first", [False, True])
@pytest.mark.parametrize("small_first", [False, True])
def test_tensors_that_overlap_see_each_others_writes(write_first: bool, small_first: bool) -> None:
    data = tensor(np.arange(6).reshape(3, 2))
    part, turned = rows(data, 1, 3), transpose(data)

    def f() -> Any:
        if write_first:
            mul_(part if small_first else data, 10.0)
        first, second = (part, turned) if small_first else (data, part)
        a = add(first, 0.0)
        add_(second, 1.0)
        mul_(row(part, 0), 2.0)
        return a, add(data, 0.0), add(part, 0.0), add(turned, 0.0)

    traced = _trace(f)
    arrays = evaluate(traced)
    before = values(data)
    got = [arrays[o.index].transpose(o.order or range(2)).tolist() for o in traced.result]
    written = arrays[traced.mutations[0].output]
    assert values(data) == before and len(traced.mutations) == 1
    expected = [values(t) for t in f()]
    assert got == expected
    assert written.reshape(-1).tolist() == data._graphc_array.reshape(-1).tolist()


def test_outputs_that_are_inputs_views_or_share_memory() -> None:
    x, w = tensor([[1.0, 2.0], [3.0, 4.0]]), tensor([[1.0, 1.0], [1.0, 1.0]], True)

    def f(x: Tensor) -> Any:
        y = add(x, 1.0)
        return x, w, reshape(x, 4), w.detach(), y, row(y, 0), y, transpose(mul(x, 2.0)), 3, None

    result = _trace(f, x).result
    kinds = [o.kind for o in result]
    assert kinds == ["input", "input", "alias", "alias", "view", "view", "view", "value",
                     "object", "object"]
    assert result[0].argument == 0 and result[1].tensor is w
    assert [op.name for op, _ in result[2].chain] == ["reshape"]
    assert result[3].chain == () and result[3].detached
    assert result[4] is result[6] and result[5].index == result[4].index
    assert result[7].order == (1, 0) and result[8].tensor == 3


def test_gradients_are_stored_cleared_and_accumulated() -> None:
    a, b, c = (tensor([float(i)], True) for i in (1, 2, 3))
    b.grad, c.grad = tensor([100.0]), tensor([1000.0])

    def step() -> None:
        b.grad = None
        total(mul(add(a, b), mul(c, 2.0))).backward()

    traced = _trace(step)
    assert [(r.tensor, r.present) for r in traced.grad_reads] == [(c, True), (a, False)] or {
        id(r.tensor): r.present for r in traced.grad_reads
    } == {id(a): False, id(c): True}
    writes = {id(g.tensor): g for g in traced.grads}
    assert set(writes) == {id(a), id(b)}
    arrays = evaluate(traced)
    assert arrays[writes[id(a)].value.index].tolist() == [6.0]
    (mutation,) = traced.mutations
    source = traced.inputs[mutation.input]
    assert source.kind == "grad" and source.tensor is c
    assert arrays[mutation.output].tolist() == [1006.0]
    assert values(c.grad) == [1000] and values(b.grad) == [100] and a.grad is None

    def clear() -> None:
        a.grad = None
        total(mul(a, b)).backward()
        a.grad = None
        fill_(b.grad, 0.0)

    traced = _trace(clear)
    # nobody has looked whether a.grad was None already
    assert [(id(g.tensor), g.value) for g in traced.grads] == [(id(a), None)]
    assert [m.zero for m in traced.mutations] == [True]


def test_lifted_numbers_follow_python_and_guard_decisions() -> None:
    w = tensor([1.0, 2.0])

    def step(rate: Any, count: Any) -> Any:
        scale = (rate / (1 - 0.9 ** (count + 1))) * 2
        if count > 100:
            scale = scale * 0
        return mul(w, scale), count + 1, rate

    with Trace("step") as trace:
        result = step(trace.lift_number(0.1, "rate"), trace.lift_number(3, "count"))
        traced = trace.finish(result)
    verify(traced.graph)
    numbers = [s for s in traced.inputs if isinstance(s, NumberInput)]
    # what is no sum, product or quotient of floats is computed by Python at each call
    assert {(n.expression.op, n.type.dtype.name) for n in numbers} == {
        ("source", "f64"), ("pow", "f64"),
    }
    new = {"rate": 0.7, "count": 8}
    expected = np.float32(0.7 / (1 - 0.9**9) * 2) * np.array([1, 2], np.float32)
    np.testing.assert_allclose(evaluate(traced, [], new)[0], expected, rtol=1e-6)
    assert traced.result[1].number.evaluate(new, {}) == 9
    assert all(guard.holds(new, {}) for guard in traced.numbers)
    late = {"rate": 0.7, "count": 200}
    broken = [guard for guard in traced.numbers if not guard.holds(late, {})]
    assert len(broken) == 1 and broken[0].loc.file.endswith("test_trace.py")


def test_lifted_number_float_is_a_guard_and_dies_with_the_trace() -> None:
    with Trace() as trace:
        rate = trace.lift_number(0.5, "rate")
        assert float(rate) == 0.5 and f"{rate}" == "0.5" and rate == 0.5 and hash(rate) is not None
        assert type(3 - rate) is type(rate) and -rate < 0 and int(rate * 4) == 2
        with pytest.raises(ZeroDivisionError):
            1 / (rate - 0.5)
        traced = trace.finish(mul(tensor([2.0]), rate))
    assert traced.result.type.dtype is dtypes.f32
    assert not all(g.holds({"rate": 0.25}, {}) for g in traced.numbers)
    trace.close()
    with pytest.raises(EscapedTensorError, match="kept after the trace"):
        rate + 1


def test_sources_that_print_alike_are_kept_apart() -> None:
    class Source:
        def __repr__(self) -> str:
            return "lr"

    first, second = Source(), Source()
    with Trace() as trace:
        a, b = trace.lift_number(1.0, first), trace.lift_number(2.0, second)
        again = trace.lift_number(1.0, first)
        traced = trace.finish(mul(mul(tensor([1.0]), a + again), b * 1))
    assert [s.expression.args[0] for s in traced.inputs[1:]] == [first, second]
    assert evaluate(traced, [], {first: 3.0, second: 5.0})[0].tolist() == [30.0]


def test_symbolic_sizes_stay_symbolic_until_decided() -> None:
    def f(x: Tensor) -> Tensor:
        n, m = x.shape
        assert isinstance(n, SymInt) and m == 3 and str((n * m).dim) == "3*n"
        assert x.shape.numel() == 3 * n and (n * 3) // 3 == n
        y = reshape(mul(x, 1 / n), n * m)
        assert n > 0 and isinstance(n, int)
        return total(y)

    x = tensor(np.ones((4, 3)))
    traced = _trace(f, x, symbolic={0: {0: "n"}})
    assert traced.graph.env.guards == {}
    assert evaluate(traced, [tensor(np.ones((7, 3)))])[0] == pytest.approx(3.0)

    def g(x: Tensor) -> Tensor:
        return mul(x, 2.0 if x.shape[0] < 10 else 3.0)

    guards = _trace(g, x, symbolic={0: {0: "n"}}).graph.env.guards
    assert [guard.text() for guard in guards] == ["not 10 <= n"]

    def h(x: Tensor) -> Tensor:
        return mul(x, float(range(x.shape[0])[-1]))

    guards = _trace(h, x, symbolic={0: {0: "n"}}).graph.env.guards
    assert [guard.text() for guard in guards] == ["n == 4"]


def test_values_under_a_trace_are_refused_with_line_and_cure() -> None:
    x = tensor([1.0])
    message = r"(?s)item\(\) needs the value.*Cure: use.*core_line"
    with pytest.raises(TraceError, match=message), Trace():

        def core_line() -> Any:
            return concrete(add(x, 1.0), "item()", "use torch.where")

        core_line()
    with pytest.raises(TraceError), Trace():
        concrete(x, "item()", "x")
    with pytest.raises(TraceError), Trace():
        x.data_ptr()


def test_a_tensor_kept_after_the_trace_raises_by_name() -> None:
    kept: list[Tensor] = []

    def step(x: Tensor) -> Tensor:
        kept.append(exp(x))
        return kept[0]

    _trace(step, tensor([1.0]))
    with pytest.raises(EscapedTensorError, match=r"core.py:\d+ inside step\(\) was kept"):
        add(kept[0], 1.0)
    for use in ("shape", "dtype", "grad", "requires_grad", "data", "detach"):
        with pytest.raises(EscapedTensorError):
            value = getattr(kept[0], use)
            value()


def test_a_failed_trace_leaves_everything_as_it_was() -> None:
    w = tensor([1.0, 2.0], True)
    w.grad = tensor([5.0, 5.0])
    state = tensor([1.0, 1.0])
    undone: list[str] = []
    random_state.manual_seed(3)
    before = values(random_state.get_rng_state())

    def step() -> None:
        total(mul(w, w)).backward()
        with no_grad():
            add_(w, w.grad)
        mul_(state, 2.0)
        w.requires_grad_(False)
        w.data = mul(state, 1.0)
        random_state.draw("uniform", shape=(2,), dtype=dtypes.f32)
        raise KeyError("boom")

    with pytest.raises(KeyError), Trace("step") as trace:
        trace.on_rollback(lambda: undone.append("x"))
        step()
    assert values(w) == [1, 2] and values(w.grad) == [5, 5] and w.requires_grad
    assert w._version == state._version == 0 and values(state) == [1, 1] and undone == ["x"]
    assert values(random_state.get_rng_state()) == before


def test_rebound_data_flags_and_random_state_come_out() -> None:
    w = tensor([1.0, 2.0], True)
    random_state.manual_seed(0)

    def step() -> Tensor:
        w.data = mul(w.detach(), 3.0)
        w.requires_grad_(False)
        return random_state.draw("uniform", shape=(2,), dtype=dtypes.f32)

    traced = _trace(step)
    assert [f.requires_grad for f in traced.flags] == [False] and w.requires_grad
    (rebind,) = traced.rebinds
    arrays = evaluate(traced)
    assert rebind.tensor is w and arrays[rebind.value.index].tolist() == [3.0, 6.0]
    (mutation,) = traced.mutations
    assert traced.inputs[mutation.input].tensor is random_state.default_generator.state
    expected = random_state.draw("uniform", shape=(2,), dtype=dtypes.f32)
    assert arrays[traced.result.index].tolist() == values(expected)
    assert arrays[mutation.output].tolist() == values(random_state.default_generator.state)


def test_state_made_while_suspended_is_real_and_captured() -> None:
    made: list[Tensor] = []
    w = tensor([1.0, 2.0])
    with Trace("step") as trace:
        y = mul(w, 2.0)
        with trace.suspended():
            made.append(tensor([7.0, 7.0]))
            with pytest.raises(EscapedTensorError, match="suspended"):
                add(y, 1.0)
        add_(made[0], y)
        traced = trace.finish(None)
    assert values(made[0]) == [7, 7]
    assert evaluate(traced)[traced.mutations[0].output].tolist() == [9.0, 11.0]


def test_another_thread_is_not_traced() -> None:
    w = tensor([1.0], True)
    seen: list[Any] = []

    def other() -> None:
        y = mul(w, 2.0)
        seen.append((y._graphc_trace, values(y)))

    with Trace("step"):
        mul_(w.data, 5.0)
        thread = threading.Thread(target=other)
        thread.start()
        thread.join()
    assert seen == [(None, [2.0])]


def test_backward_for_a_loss_outside() -> None:
    w, v = tensor([2.0, 3.0], True), tensor([1.0, 1.0], True)
    w.register_hook(lambda g: mul(g, 1000.0))  # left to the eager pass

    def model(x: Tensor) -> Any:
        h = mul(x, w)
        return mul(h, h), add(mul(h.detach(), v), 0.0), x

    traced = _trace(model, tensor([5.0, 7.0]), backward=True)
    info = traced.backward
    assert info is not None and info.tensors == [w, v] and len(info.tangents) == 2
    arrays = evaluate(traced, [tensor([5.0, 7.0])])
    gw, gv = (arrays[i].tolist() for i in info.gradients)
    assert gw == [100.0, 294.0] and gv == [10.0, 21.0]
    assert all(n.backward for n in traced.graph.nodes if n.op.name == "sum")


def test_a_finished_trace_is_final() -> None:
    """It is the graph to compile: each memory has an output of its own, gradients come last."""
    w, kept, more = tensor([2.0, 3.0], True), tensor([0.0, 0.0]), tensor([0.0, 0.0])

    def step(x: Tensor) -> Any:
        h = mul(x, w)
        for memory in (kept, more):
            mul_(memory, 0.0)
            add_(memory, h.detach())
        w.grad = kept.detach()
        return h, h.detach()

    traced = _trace(step, tensor([5.0, 7.0]), backward=True)
    assert traced.backward is not None
    used = [o.index for o in traced.outputs() if o.kind in ("value", "view")]
    mutated = [mutation.output for mutation in traced.mutations]
    gradients = [g for g in traced.backward.gradients if g is not None]
    assert len(mutated) == len(set(mutated)) == 2 and not set(mutated) & {*used, *gradients}
    assert traced.forward == (len(traced.inputs) - 1, len(traced.graph.outputs) - len(gradients))
    assert sorted({*used, *mutated}) == list(range(traced.forward[1]))
    assert gradients == list(range(traced.forward[1], len(traced.graph.outputs)))
    assert traced.mutated == {m.output: m.input for m in traced.mutations}
    with pytest.raises(dataclasses.FrozenInstanceError):
        traced.graph = None  # type: ignore[misc, assignment]
    for record in (*traced.mutations, traced.backward):  # others let tensors go: let_go()
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(record, type(record).__match_args__[0], 0)


def test_a_loss_whose_backward_ran_inside_is_spent() -> None:
    w = tensor([2.0, 3.0], True)

    def step() -> Any:
        h = mul(w, w)
        loss = total(h)
        loss.backward()
        return loss, h, mul(w, 2.0)

    info = _trace(step, backward=True).backward
    assert info is not None and len(info.outputs) == 1


def test_history_from_before_the_trace() -> None:
    w = tensor([2.0], True)
    h = mul(w, 3.0)

    def f(x: Tensor) -> Tensor:
        return mul(x, x)

    traced = _trace(f, h, backward=True)
    assert traced.backward is not None and traced.backward.tensors == [h]
    assert traced.inputs[0].leaf is False
    assert evaluate(traced, [h])[traced.backward.gradients[0]].tolist() == [12.0]


def test_a_captured_tensor_that_gains_a_history() -> None:
    buffer, w = tensor([1.0]), tensor([4.0], True)

    def f() -> Tensor:
        mul_(buffer, w)
        return buffer

    traced = _trace(f, backward=True)
    assert traced.result.kind == "input" and traced.result.tensor is buffer
    assert [m.history for m in traced.mutations] == [True]
    assert traced.backward is not None and traced.backward.outputs == [traced.result]
    assert evaluate(traced)[traced.backward.gradients[0]].tolist() == [1.0]


def test_second_order_under_a_trace() -> None:
    from graphc.frontend import autograd

    x = tensor([2.0], True)

    def f() -> Tensor:
        (g,) = autograd.grad(total(mul(mul(x, x), x)), x, create_graph=True)
        (h,) = autograd.grad(total(mul(g, g)), x)
        return h

    assert evaluate(_trace(f))[0].tolist() == [288.0]


def test_materialise_turns_a_traced_tensor_into_a_real_one() -> None:
    x = tensor([1.0])
    with Trace("step") as trace:
        y = exp(x)
        trace.finish(y)
    trace.materialise(y, tensor([9.0]))
    trace.close()
    assert values(add(y, 1.0)) == [10.0]


def test_stored_tensors_come_out_by_key() -> None:
    x = tensor([1.0])
    with Trace("step") as trace:
        hidden = mul(x, 3.0)
        traced = trace.finish(None, stored={("self", "hidden"): hidden})
    output = traced.stored["self", "hidden"]
    assert evaluate(traced)[output.index].tolist() == [3.0]


def test_ten_thousand_operations() -> None:
    x = tensor([1.0], True)

    def f() -> None:
        y = x
        for _ in range(10_000):
            y = mul(y, 1.0001)
        total(y).backward()

    assert len(_trace(f).graph.nodes) > 10_000


def test_logical_strides() -> None:
    x = tensor(np.arange(24).reshape(2, 3, 4))

    def f(x: Tensor) -> Tensor:
        turned = apply(ops.permute, x, dims=(2, 0, 1))
        assert turned.stride() == (1, 12, 4)
        assert mul(turned, 2.0).stride() == (1, 12, 4)
        assert reshape(turned, 24).stride() == (1,)
        assert promote.cast(turned, dtypes.f64).stride() == (1, 12, 4)
        part = rows(x, 1, 2)
        assert part.stride() == (12, 4, 1) and part.storage_offset is not None
        return turned

    _trace(f, x)


def test_overwriting_a_captured_view_of_a_parameter() -> None:
    w = tensor([[1.0, 2.0], [3.0, 4.0]], True)

    def f() -> None:
        with no_grad():
            inplace(row(w, 0), tensor([9.0, 9.0]), overwrite=True)

    traced = _trace(f)
    (mutation,) = traced.mutations
    assert evaluate(traced)[mutation.output].tolist() == [[9, 9], [3, 4]]
    assert not mutation.history
