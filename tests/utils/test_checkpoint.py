"""torch.utils.checkpoint: values, gradients, random numbers and recomputation against torch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")

import torch
import torch.utils.checkpoint as theirs

import graphc
import graphc.utils.checkpoint as ours

torch.set_num_threads(1)
X = np.random.default_rng(0).standard_normal((6, 4)).astype(np.float32)
PACKAGES = ((torch, theirs), (graphc, ours))


def network(m: Any) -> Any:
    m.manual_seed(0)
    n = m.nn
    return n.Sequential(
        n.Linear(4, 8), n.Tanh(), n.Dropout(0.5), n.Linear(8, 8), n.GELU(), n.Linear(8, 1)
    )


def arrays(m: Any, model: Any, x: Any, y: Any) -> list[np.ndarray]:
    found = [y.detach().numpy(), x.grad.numpy(), *(p.grad.numpy() for p in model.parameters())]
    return [*found, m.rand(2).numpy()]


def same(have: list[np.ndarray], want: list[np.ndarray]) -> None:
    for a, b in zip(have, want, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("reentrant", [True, False])
def test_like_torch(reentrant: bool) -> None:
    results = []
    for m, package in PACKAGES:
        model, calls = network(m), []
        m.manual_seed(5)
        x = m.tensor(X, requires_grad=True)

        def part(value: Any, model: Any = model, calls: Any = calls) -> Any:
            calls.append(1)
            return model(value)

        y = package.checkpoint(part, x * 1.0, use_reentrant=reentrant).pow(2).sum()
        y.backward()
        assert len(calls) == 2
        results.append(arrays(m, model, x, y))
    same(results[1], results[0])


@pytest.mark.parametrize("reentrant", [True, False])
@pytest.mark.parametrize("whole", [False, True])
def test_compiled(reentrant: bool, whole: bool) -> None:
    results = []
    for compiled in (False, True):
        model = network(graphc)

        def step(x: Any, model: Any = model) -> Any:
            y = ours.checkpoint(model, x * 1.0, use_reentrant=reentrant).pow(2).sum()
            if whole:
                y.backward()
            return y

        graphc.manual_seed(5)
        x = graphc.tensor(X, requires_grad=True)
        y = (graphc.compile(step) if compiled else step)(x)
        if not whole:
            y.backward()
        results.append(arrays(graphc, model, x, y))
    same(results[1], results[0])


def test_the_compiled_backward_computes_again() -> None:
    counts = []
    for part in (lambda f, x: f(x), lambda f, x: ours.checkpoint(f, x, use_reentrant=False)):
        run = graphc.compile(lambda x, part=part: part(lambda a: (a @ a.T).tanh().exp(), x).sum())
        x = graphc.tensor(X, requires_grad=True)
        run(x).backward()
        version: Any = run.version(x)
        counts.append(str(version.plan.parts.whole().engines.at({}).built.graph).count("dot_general"))
    # the second product belongs to the recomputation
    assert counts[1] == counts[0] + 1


def test_sequential_keywords_and_nesting() -> None:
    model = network(graphc).eval()
    want = model(graphc.tensor(X)).detach().numpy()
    x = graphc.tensor(X, requires_grad=True)
    y = ours.checkpoint_sequential(model, 3, x, use_reentrant=False)
    np.testing.assert_allclose(y.detach().numpy(), want, rtol=1e-6)
    y.sum().backward()
    first, x.grad = x.grad.clone(), None

    def nested(value: Any, *, scale: float) -> Any:
        inner = ours.checkpoint(model[:3], value, use_reentrant=False)
        return model[3:](inner) * scale

    ours.checkpoint(nested, x, use_reentrant=False, scale=1.0).sum().backward()
    np.testing.assert_allclose(x.grad.numpy(), first.numpy(), rtol=1e-5)


def test_errors() -> None:
    x = graphc.tensor(X, requires_grad=True)
    calls = []

    def fickle(a: Any) -> Any:
        calls.append(1)
        return a.sin() if len(calls) == 1 else a.sum()

    with pytest.raises(ours.CheckpointError, match="different number of tensors"):
        ours.checkpoint(fickle, x, use_reentrant=False).sum().backward()
    with pytest.raises(RuntimeError, match="incompatible with"):
        y = ours.checkpoint(lambda a: a.sin(), x, use_reentrant=True).sum()
        graphc.autograd.grad(y, x)
    with pytest.warns(UserWarning, match="use_reentrant"):
        ours.checkpoint(lambda a: a.sin(), x)
    with pytest.raises(ValueError, match="Unexpected keyword"):
        ours.checkpoint(lambda a: a.sin(), x, use_reentrant=True, scale=2)


def test_a_compiled_module_inside() -> None:
    """The hooks are for what each operator of the first run saves, and of the second."""
    results = []
    for compiled in (False, True):
        graphc.manual_seed(2)
        model: Any = network(graphc)
        run = graphc.compile(model, fullgraph=True) if compiled else model
        for inside in (True, False, True, True, False):
            x = graphc.tensor(X, requires_grad=True)
            y = ours.checkpoint(run, x, use_reentrant=False) if inside else run(x)
            y.pow(2).sum().backward()
        results.append(arrays(graphc, model, x, y))
    same(results[1], results[0])


@pytest.mark.parametrize("reentrant", [True, False])
def test_the_second_run_is_under_the_autocast_of_the_first(reentrant: bool) -> None:
    seen: list[Any] = []

    def part(x: Any) -> Any:
        y = x @ x
        seen.append(y.dtype)
        return y * y

    x = graphc.ones(2, 2, requires_grad=True)
    with graphc.autocast("cpu", dtype=graphc.bfloat16):
        y = ours.checkpoint(part, x, use_reentrant=reentrant)
    y.float().sum().backward()
    assert seen == [graphc.bfloat16] * 2 and x.grad.tolist() == [[16.0, 16.0]] * 2
