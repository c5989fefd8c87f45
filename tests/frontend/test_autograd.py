"""backward(), grad(), hooks, custom Functions, in eager mode."""

from __future__ import annotations

import gc
from typing import Any

import numpy as np
import pytest

from graphc.frontend import autograd
from graphc.frontend.dispatch import apply
from graphc.frontend.function import Function, once_differentiable
from graphc.frontend.grad_mode import enable_grad
from graphc.frontend.nodes import AccumulateGrad
from graphc.frontend.tensor import Tensor
from graphc.ir import ops

from .core import add, exp, matmul, mul, row, tensor, total, values


def test_matmul_relu_sum() -> None:
    x = tensor([[1, 2], [3, 4]], True)
    w = tensor([[1, 0], [2, 1]], True)
    y = total(mul(apply(ops.relu, matmul(x, w)), 2.0))
    y.backward()
    assert values(x.grad) == [[2, 6], [2, 6]] and values(w.grad) == [[8, 8], [12, 12]]
    assert y.grad_fn.name() == "SumBackward0"
    assert isinstance(matmul(x, w).grad_fn.next_functions[0][0], AccumulateGrad)


def test_gradients_accumulate_and_do_not_share_memory() -> None:
    a, b = tensor([1.0, 2.0], True), tensor([3.0, 4.0], True)
    total(add(a, b)).backward()
    total(add(a, b)).backward()
    assert values(a.grad) == [2, 2] and values(b.grad) == [2, 2]
    assert not np.shares_memory(a.grad._graphc_array, b.grad._graphc_array)
    given = tensor([1.0, 1.0])
    a.grad = None
    add(a, 0.0).backward(given)
    assert a.grad is not None and not np.shares_memory(a.grad._graphc_array, given._graphc_array)


def test_a_gradient_that_nothing_else_holds_is_taken_over(monkeypatch: Any) -> None:
    x = tensor(np.ones((3, 3)), True)
    copies: list[Any] = []

    class Counting:
        ndarray = np.ndarray

        @staticmethod
        def array(*args: Any, **kwargs: Any) -> Any:
            copies.append(args)
            return np.array(*args, **kwargs)

    monkeypatch.setattr(autograd, "np", Counting)
    total(mul(x, x)).backward()
    assert copies == [] and values(x.grad) == [[2.0] * 3] * 3


def test_broadcast_gradients_are_summed_down() -> None:
    x, bias = tensor(np.ones((2, 3)), True), tensor([1.0, 2.0, 3.0], True)
    total(mul(x, bias)).backward()
    assert values(bias.grad) == [2, 2, 2] and values(x.grad) == [[1, 2, 3]] * 2


def test_second_backward_is_an_error_unless_retained() -> None:
    x = tensor([2.0], True)
    y = total(mul(x, x))
    y.backward(retain_graph=True)
    y.backward()
    assert values(x.grad) == [8]
    with pytest.raises(RuntimeError, match="a second time"):
        y.backward()
    z = total(add(x, 1.0))  # nothing is saved, so nothing is missing
    z.backward()
    z.backward()


def test_what_cannot_be_differentiated() -> None:
    with pytest.raises(RuntimeError, match="does not require grad"):
        tensor([1.0]).backward()
    with pytest.raises(RuntimeError, match=r"only for scalar outputs.*\[2\]"):
        mul(tensor([1.0, 2.0], True), 2.0).backward()
    with pytest.raises(RuntimeError, match="Mismatch in shape"):
        mul(tensor([1.0, 2.0], True), 2.0).backward(tensor([1.0]))
    with pytest.raises(RuntimeError, match="floating point"):
        tensor([1], dtype=np.int64).requires_grad_()


def test_create_graph_gives_higher_derivatives() -> None:
    x = tensor([2.0], True)
    y = mul(mul(x, x), x)
    (first,) = autograd.grad(total(y), x, create_graph=True)
    (second,) = autograd.grad(total(first), x, create_graph=True)
    (third,) = autograd.grad(total(second), x)
    assert (values(first), values(second), values(third)) == ([12], [12], [6])
    e = exp(x)
    (g,) = autograd.grad(total(e), x, create_graph=True)
    (gg,) = autograd.grad(total(g), x)
    assert values(gg) == values(e)


def test_grad_of_inner_values_and_unused_inputs() -> None:
    x, unused = tensor([3.0], True), tensor([1.0], True)
    h = mul(x, 2.0)
    y = total(mul(h, h))
    gh, gx = autograd.grad(y, [h, x], retain_graph=True)
    assert values(gh) == [12] and values(gx) == [24] and x.grad is None
    with pytest.raises(RuntimeError, match=r"at index 1 appears to not have been used"):
        autograd.grad(y, [x, unused], retain_graph=True)
    assert autograd.grad(y, [unused], allow_unused=True, retain_graph=True) == (None,)
    (zero,) = autograd.grad(y, [unused], materialize_grads=True)
    assert values(zero) == [0]


def test_backward_into_chosen_inputs_skips_the_rest() -> None:
    x, w = tensor([3.0], True), tensor([5.0], True)
    autograd.backward(total(mul(x, w)), inputs=[w])
    assert x.grad is None and values(w.grad) == [3]


def test_hooks_run_in_order_and_replace_gradients() -> None:
    x = tensor([1.0], True)
    h = mul(x, 3.0)
    seen: list[Any] = []
    handle = h.register_hook(lambda g: seen.append(("h", values(g))) or mul(g, 10.0))
    x.register_hook(lambda g: seen.append(("x", values(g))))
    x.register_post_accumulate_grad_hook(lambda t: seen.append(("done", values(t.grad))))
    h.retain_grad()
    total(h).backward(retain_graph=True)
    assert seen == [("h", [1]), ("x", [30]), ("done", [30])]
    assert values(h.grad) == [10]
    handle.remove()
    x.grad = None
    total(h).backward()
    assert values(x.grad) == [3]


def test_node_hooks() -> None:
    x = tensor([1.0], True)
    y = mul(x, 2.0)
    y.grad_fn.register_prehook(lambda grads: (mul(grads[0], 5.0),))
    y.grad_fn.register_hook(lambda ins, outs: (add(ins[0], 1.0), None))
    total(y).backward()
    assert values(x.grad) == [11]


def test_saved_values_and_versions_as_in_torch() -> None:
    x = tensor([1.0, 2.0], True)
    y = exp(x)
    with_result = total(y)
    y._graphc_storage.version += 1  # a write to a result that the rule reads
    with pytest.raises(RuntimeError, match=r"(?s)modified by an inplace.*ExpBackward0.*version 1"):
        with_result.backward()
    h = mul(x, 1.0)
    s = total(add(h, 1.0))  # add reads nothing
    h._graphc_storage.version += 1
    s.backward()


class Scale(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, factor: float) -> Tensor:
        ctx.save_for_backward(x)
        ctx.factor = factor
        return mul(x, factor)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Any:
        (x,) = ctx.saved_tensors
        assert ctx.needs_input_grad == (True, False) and x.requires_grad
        return mul(g, ctx.factor), None


class Exp(Function):
    @staticmethod
    def forward(x: Tensor) -> tuple[Tensor, Tensor]:
        y = exp(x)
        return y, mul(y, 0.0)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.save_for_backward(output[0])
        ctx.mark_non_differentiable(output[1])

    @staticmethod
    def backward(ctx: Any, g: Tensor, unused: Tensor) -> Tensor:
        assert values(unused) == [0]
        return mul(g, ctx.saved_tensors[0])


def test_custom_functions() -> None:
    x = tensor([2.0], True)
    y = Scale.apply(x, 3.0)
    assert y.grad_fn.name() == "ScaleBackward"
    total(y).backward()
    assert values(x.grad) == [3]
    e, fixed = Exp.apply(x)
    assert not fixed.requires_grad
    (g,) = autograd.grad(total(e), x, create_graph=True)
    (gg,) = autograd.grad(total(g), x)
    assert values(gg) == values(e)
    z = Scale.apply(x, 2.0)
    total(z).backward()
    with pytest.raises(RuntimeError, match="a second time"):
        total(z).backward()


def test_custom_function_with_a_wrong_backward() -> None:
    class Wrong(Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor, y: Tensor) -> Tensor:
            return add(x, y)

        @staticmethod
        @once_differentiable
        def backward(ctx: Any, g: Tensor) -> Tensor:
            return g

    x = tensor([2.0], True)
    with pytest.raises(RuntimeError, match=r"incorrect number of gradients \(expected 2, got 1\)"):
        total(Wrong.apply(x, x)).backward()


def test_an_output_that_is_an_input_gets_its_own_history() -> None:
    class Same(Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            return x

        @staticmethod
        def backward(ctx: Any, g: Tensor) -> Tensor:
            return mul(g, 7.0)

    x = tensor([2.0], True)
    y = Same.apply(x)
    assert y is not x and x.is_leaf
    total(y).backward()
    assert values(x.grad) == [7]


def test_a_chain_of_ten_thousand_needs_no_recursion_and_frees_itself() -> None:
    x = tensor(1.0, True)
    y = x
    for _ in range(10_000):
        y = mul(y, 1.0)
    y.backward()
    assert values(x.grad) == 1
    del y
    gc.collect()


def test_backward_inside_a_hook() -> None:
    x, w = tensor([1.0], True), tensor([2.0], True)
    y = mul(x, 3.0)

    def hook(g: Tensor) -> None:
        with enable_grad():  # gradients are off inside backward()
            total(mul(w, w)).backward()

    y.register_hook(hook)
    total(y).backward()
    assert values(w.grad) == [4] and values(x.grad) == [3]


def test_no_reference_cycles() -> None:
    gc.collect()
    gc.disable()
    try:
        x = tensor(np.ones((2, 2)), True)
        y = exp(mul(row(x, 0), 2.0))
        total(y).backward()
        del x, y
        assert gc.collect() == 0
    finally:
        gc.enable()
