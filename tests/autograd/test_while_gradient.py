"""The gradient of while_loop: equal to that of torch's Python loop, in linear time."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")

import torch

import graphc
from graphc._higher_order_ops import cond, while_loop
from graphc.ir.kernel import Repeat
from graphc.ir.ops import while_gradient
from tests.autograd.test_control import MODES, gradients, reference, same

torch.set_num_threads(1)
RNG = np.random.default_rng(0)
X, W = RNG.standard_normal((3, 4)), RNG.standard_normal((4, 4)) * 0.5


@pytest.fixture
def few_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory for three steps: nine are a block of blocks."""
    monkeypatch.setattr(while_gradient, "_MOST", 3)
    monkeypatch.setattr(while_gradient, "_LEAST", 1)


def ours(n: Any, x: Any, w: Any) -> Any:
    def body(i: Any, h: Any, total: Any) -> Any:
        h = (h @ w).tanh() + x
        return i + 1, h, total + h.sum()

    begin = graphc.tensor(0), x, graphc.zeros((), dtype=x.dtype)
    _, h, total = while_loop(lambda i, h, total: i < n, body, begin)
    return total + (h**2).sum()


def theirs(n: Any, x: Any, w: Any) -> Any:
    h, total = x, torch.zeros((), dtype=x.dtype)
    for _ in range(int(n)):
        h = (h @ w).tanh() + x
        total = total + h.sum()
    return total + (h**2).sum()


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("steps", [0, 1, 2, 40])
def test_as_pytorch_differentiates_the_loop(mode: str, steps: int) -> None:
    arrays = [np.array(steps), X, W]
    same(gradients(ours, arrays, mode), reference(theirs, arrays))


@pytest.mark.parametrize("steps", [0, 1, 2, 3, 4, 8, 9, 10, 18, 26, 27, 28, 50])
def test_more_steps_than_there_is_memory_for(few_rows: None, steps: int) -> None:
    arrays = [np.array(steps), X, W]
    want = reference(theirs, arrays)
    for mode in ("compiled", "whole step", "numpy"):
        same(gradients(ours, arrays, mode), want)


def test_one_version_for_any_number_of_steps(few_rows: None) -> None:
    @graphc.compile
    def step(n: Any, x: Any, w: Any) -> Any:
        return graphc.autograd.grad(ours(n, x, w), (x, w))

    for steps in (5, 0, 31):
        want = reference(theirs, [np.array(steps), X, W])[1:]
        x, w = (graphc.tensor(a, requires_grad=True) for a in (X, W))
        same([g.numpy() for g in step(graphc.tensor(steps), x, w)], want)
    assert step.compile_count == 1


@pytest.mark.parametrize("scale", [1.0, 1e4, 1e-6])
def test_a_loop_that_its_values_end(few_rows: None, scale: float) -> None:
    """Newton's method for a square root: how many steps, the numbers decide."""
    def newton(x: Any, stop: float) -> Any:
        def wrong(y: Any) -> Any:
            return ((y * y - x).abs() > stop).any()

        return while_loop(wrong, lambda y: ((y + x / y) / 2,), (x * 0 + 1,))[0].sum()

    def loop(x: Any, stop: float) -> Any:
        y = x * 0 + 1
        while ((y * y - x).abs() > stop).any():
            y = (y + x / y) / 2
        return y.sum()

    arrays = [np.abs(X) * scale]
    want = reference(lambda x: loop(x, 1e-9 * scale), arrays)
    for mode in ("compiled", "whole step"):
        same(gradients(lambda x: newton(x, 1e-9 * scale), arrays, mode), want)


def test_loops_and_branches_in_a_loop(few_rows: None) -> None:
    def nested(n: Any, x: Any, w: Any) -> Any:
        def body(i: Any, h: Any) -> Any:
            h = cond(h.sum() > 0, lambda h: (h @ w).sin(), lambda h: h - w, (h,))
            return i + 1, while_loop(lambda j, h: j < i, lambda j, h: (j + 1, (h * w).cos()),
                                     (i * 0, h))[1]

        return while_loop(lambda i, h: i < n, body, (graphc.tensor(0), x))[1].sum()

    def loop(n: Any, x: Any, w: Any) -> Any:
        for i in range(int(n)):
            x = (x @ w).sin() if x.sum() > 0 else x - w
            for _ in range(i):
                x = (x * w).cos()
        return x.sum()

    for steps in (0, 1, 5):
        arrays = [np.array(steps), W + 0.1, W]
        for mode in ("compiled", "whole step"):
            same(gradients(nested, arrays, mode), reference(loop, arrays))


@pytest.mark.parametrize("steps", [0, 1, 4, 11])
def test_twice(few_rows: None, steps: int) -> None:
    def penalty(loop: Any, n: Any, x: Any, w: Any, library: Any) -> Any:
        (g,) = library.autograd.grad(loop(n, x, w), x, create_graph=True)
        return (g**2).sum() + (g * x).sum()

    arrays = [np.array(steps), X, W]
    want = reference(lambda n, x, w: penalty(theirs, n, x, w, torch), arrays)
    for mode in ("eager", "whole step"):
        same(gradients(lambda n, x, w: penalty(ours, n, x, w, graphc), arrays, mode), want)


def test_for_each_sample_of_a_batch(few_rows: None) -> None:
    counts, xs = graphc.tensor([0, 1, 5, 12]), RNG.standard_normal((4, 3, 4))

    def slope(n: Any, x: Any) -> Any:
        return graphc.func.grad(lambda x: ours(n, x, graphc.tensor(W)))(x)

    found = graphc.compile(graphc.vmap(slope))(counts, graphc.tensor(xs))
    for i, n in enumerate(counts.tolist()):
        x = torch.tensor(xs[i], requires_grad=True)
        (want,) = torch.autograd.grad(theirs(n, x, torch.tensor(W)), x)
        same([found[i].numpy()], [want.numpy()])


def test_under_checkpoint(few_rows: None) -> None:
    from graphc.utils.checkpoint import checkpoint

    def saved(n: Any, x: Any, w: Any) -> Any:
        return checkpoint(ours, n, x, w, use_reentrant=False)

    arrays = [np.array(7), X, W]
    same(gradients(saved, arrays, "whole step"), reference(theirs, arrays))


def test_the_time_grows_as_the_number_of_steps_does() -> None:
    @graphc.compile
    def step(n: Any, x: Any, w: Any) -> Any:
        return graphc.autograd.grad(ours(n, x, w), (x, w))

    x, w = (graphc.tensor(a, requires_grad=True) for a in (X, W * 0.5))

    def seconds(n: int) -> float:
        count, best = graphc.tensor(n), float("inf")
        for _ in range(5):
            start = time.process_time()
            step(count, x, w)
            best = min(best, time.process_time() - start)
        return best

    seconds(10)
    assert seconds(16_000) < 24 * seconds(1_000)  # a loop for each step: 256 times


def test_a_loop_back_over_the_rows_is_native() -> None:
    step = graphc.compile(lambda n, x, w: graphc.autograd.grad(ours(n, x, w), (x, w)))
    x, w = (graphc.tensor(a, requires_grad=True) for a in (X, W))
    step(graphc.tensor(3), x, w)
    explanation = graphc.explain(step)
    assert not explanation.callbacks
    (part,) = explanation.parts
    both = [s for s in part.built.program.steps if isinstance(s, Repeat)]
    assert len(both) == 3 and all(s.flag is not None for s in both)  # forward, count, back


@pytest.mark.parametrize("steps", [0, 1, 7])
def test_random_numbers_and_writes_in_a_loop(few_rows: None, steps: int) -> None:
    """Steps that run again draw what they drew, and write nothing a second time."""
    total = graphc.zeros(4)

    def step(n: Any, x: Any, w: Any) -> Any:
        def body(i: Any, h: Any) -> Any:
            total.add_(h.detach().sum(0))
            return i + 1, graphc.nn.functional.dropout(h * w, 0.3).tanh() + x

        h = while_loop(lambda i, h: i < n, body, (graphc.tensor(0), x))[1]
        loss = (h**2).sum()
        found = graphc.autograd.grad(loss, (x, w), materialize_grads=True, allow_unused=True)
        return loss.detach(), *found

    x, w = graphc.randn(3, 4, requires_grad=True), graphc.randn(4, requires_grad=True)
    results = []
    for function in (step, graphc.compile(step, fullgraph=True)):
        graphc.manual_seed(steps)
        total.zero_()
        results.append([*function(graphc.tensor(steps), x, w), total.clone(), graphc.rand(2)])
    for a, b in zip(*results, strict=True):
        np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=1e-4, atol=1e-5)
