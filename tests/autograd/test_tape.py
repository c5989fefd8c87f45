"""Custom Functions, hooks on saved tensors, anomaly detection, batched and double backward."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")

import torch

import graphc
from graphc.autograd import graph
from tests.func.pairs import X, agree

torch.set_num_threads(1)


def function_of(m: Any) -> Any:
    """A Function that uses most of ctx, made for a package."""

    class Scaled(m.autograd.Function):  # type: ignore[misc, name-defined]
        @staticmethod
        def forward(ctx: Any, x: Any, y: Any, factor: float) -> Any:
            out, count = x * y * factor, (x > 0).sum()
            ctx.save_for_backward(x, y, out)
            ctx.factor = factor
            ctx.mark_non_differentiable(count)
            ctx.set_materialize_grads(False)
            return out, out.exp(), count

        @staticmethod
        def backward(ctx: Any, g: Any, h: Any, _: Any) -> Any:
            x, y, _ = ctx.saved_tensors
            total = 0 if g is None else g
            if h is not None:
                total = total + h * (x * y * ctx.factor).exp()
            gx = total * y * ctx.factor if ctx.needs_input_grad[0] else None
            gy = total * x * ctx.factor if ctx.needs_input_grad[1] else None
            return gx, gy, None

    return Scaled


@pytest.mark.parametrize("mode", ["eager", "compiled"])
def test_function(mode: str) -> None:
    results = []
    for m in (torch, graphc):
        scaled = function_of(m)

        def step(x: Any, y: Any, m: Any = m, scaled: Any = scaled) -> Any:
            a, b, count = scaled.apply(x, y, 0.5)
            assert not count.requires_grad
            (g,) = m.autograd.grad(a.sum() + (b * b).sum(), x, create_graph=True)
            return m.autograd.grad((g * g).sum(), (x, y))

        x, y = (m.tensor(v, requires_grad=True) for v in (X, X[::-1].copy()))
        run = graphc.compile(step) if m is graphc and mode == "compiled" else step
        results.append(run(x, y))
    agree(results[1], results[0])


def test_setup_context_dirty_and_vjp() -> None:
    class Doubled(graphc.autograd.Function):
        @staticmethod
        def forward(x: Any) -> Any:
            return x * 2

        @staticmethod
        def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
            ctx.shape = output.shape

        @staticmethod
        def vjp(ctx: Any, g: Any) -> Any:
            return g * 2

    class Inplace(graphc.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            x.mul_(3)
            ctx.mark_dirty(x)
            return x

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            return g * 3

    x = graphc.tensor(X, requires_grad=True)
    Inplace.apply(Doubled.apply(x)).sum().backward()
    np.testing.assert_allclose(x.grad.numpy(), np.full(X.shape, 6.0))


def test_once_differentiable() -> None:
    class Square(graphc.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            ctx.save_for_backward(x)
            return x * x

        @staticmethod
        @graphc.autograd.function.once_differentiable
        def backward(ctx: Any, g: Any) -> Any:
            return 2 * g * ctx.saved_tensors[0]

    x = graphc.tensor(X, requires_grad=True)
    (g,) = graphc.autograd.grad(Square.apply(x).sum(), x, create_graph=True)
    assert not g.requires_grad
    (g,) = graphc.autograd.grad(Square.apply(x).exp().sum(), x, create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        g.sum().backward()


def test_saved_tensors_hooks() -> None:
    calls = {"pack": 0, "unpack": 0}

    def pack(tensor: Any) -> Any:
        calls["pack"] += 1
        return tensor.numpy().copy()

    def unpack(kept: Any) -> Any:
        calls["unpack"] += 1
        return graphc.tensor(kept)

    x = graphc.tensor(X, requires_grad=True)
    with graph.saved_tensors_hooks(pack, unpack):
        y = (x.exp() * x).sum()
    assert calls == {"pack": 3, "unpack": 0}
    y.backward()
    assert calls["unpack"] == 3
    np.testing.assert_allclose(x.grad.numpy(), np.exp(X) * (1 + X))
    with graph.save_on_cpu(pin_memory=True):
        z = x.exp()
    with graphc.no_grad():
        x.add_(1)
    z.sum().backward()
    with graph.disable_saved_tensors_hooks("not here"), pytest.raises(RuntimeError, match="not he"):
        graph.save_on_cpu().__enter__()
    with graph.saved_tensors_hooks(lambda t: t, lambda t: 1):
        z = x.exp()
    with pytest.raises(TypeError, match="unpack_hook"):
        z.sum().backward()


def test_saved_tensors_hooks_under_compile() -> None:
    def step(x: Any) -> Any:
        with graph.saved_tensors_hooks(lambda t: t * 1, lambda t: t * 2):
            y = (x.exp() * x).sum()
        return graphc.autograd.grad(y, x)[0]

    x = graphc.tensor(X, requires_grad=True)
    agree(graphc.compile(step)(x), step(x))


def test_anomaly() -> None:
    z = graphc.tensor([0.0, -1.0], requires_grad=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        mode = graphc.autograd.detect_anomaly()
    with mode:
        bad = z.sqrt()
        with pytest.raises(RuntimeError, match=r"SqrtBackward0.*nan values.*test_tape\.py"):
            (bad * 0).sum().backward()
    (z.sqrt() * 0).sum().backward()
    graphc.autograd.set_detect_anomaly(True)
    with pytest.raises(RuntimeError, match="nan values"):
        (z.sqrt() * 0).sum().backward()
    graphc.autograd.set_detect_anomaly(False)


def test_hooks_on_nodes_and_edges() -> None:
    x = graphc.tensor(X, requires_grad=True)
    y = x.exp()
    seen: list[Any] = []
    assert y.grad_fn is not None
    y.grad_fn.register_hook(lambda gi, go: seen.append((len(gi), len(go))))
    y.grad_fn.register_prehook(lambda go: seen.append(len(go)))
    with graph.register_multi_grad_hook((x, y), lambda gs: seen.append([g.shape for g in gs])):
        y.sum().backward()
    assert seen == [1, (1, 1), [x.shape, x.shape]]
    version = x._version
    graph.increment_version(x)
    assert x._version == version + 1
    found = graph.get_gradient_edge(y)
    assert found.node is y.grad_fn and found.output_nr == 0
    z = (y * 2).sum()
    (g,) = graphc.autograd.grad(z, found, retain_graph=True)
    np.testing.assert_allclose(g.numpy(), np.full(X.shape, 2.0))


@pytest.mark.parametrize("dynamic", [None, True])
def test_gradient_penalty_through_a_compiled_model(dynamic: Any) -> None:
    nn = graphc.nn
    graphc.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Dropout(0.5), nn.Linear(8, 1)).double()
    compiled = graphc.compile(model, dynamic=dynamic)
    results = []
    for module in (model, compiled):
        graphc.manual_seed(3)
        model.zero_grad()
        x = graphc.tensor(X, requires_grad=True)
        y = module(x)
        (g,) = graphc.autograd.grad(y.sum(), x, create_graph=True)
        (((g.norm(dim=1) - 1) ** 2).mean() + y.mean()).backward()
        results.append([x.grad, *(p.grad.clone() for p in model.parameters())])
    agree(results[1], results[0])


def test_third_derivative_and_batches_through_a_compiled_function() -> None:
    function = graphc.compile(lambda x: (x.exp() * x).sum(1))
    x = graphc.tensor(X, requires_grad=True)
    g = function(x).sum()
    for order in (1, 2, 3):
        (g,) = graphc.autograd.grad(g.sum(), x, create_graph=True)
        np.testing.assert_allclose(g.detach().numpy(), np.exp(X) * (X + order))
    y = function(x)
    rows = graphc.vmap(lambda v: graphc.autograd.grad(y, x, v, retain_graph=True)[0])(
        graphc.eye(5, dtype=graphc.float64))
    np.testing.assert_allclose(rows.sum(0).numpy(), np.exp(X) * (1 + X))
    y = function(x)
    with graphc.no_grad():
        x.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace"):
        graphc.autograd.grad(y.sum(), x, create_graph=True)


def test_switches_and_old_names() -> None:
    with graphc.autograd.set_multithreading_enabled(False):
        assert not graphc.autograd.is_multithreading_enabled()
    assert graphc.autograd.is_multithreading_enabled()
    old = graphc.autograd.Variable(graphc.tensor(X), requires_grad=True)
    assert isinstance(old, graphc.autograd.Variable) and old.requires_grad
    assert graphc.autograd.grad_mode.no_grad is graphc.no_grad
    with pytest.raises(ValueError, match="allow_unused=False"):
        graphc.autograd.grad(old.sum(), old, allow_unused=False, materialize_grads=True)


@pytest.mark.parametrize("compiled", [False, True])
def test_hooks_on_several_tensors_begin_anew_in_each_pass(compiled: bool) -> None:
    torch = pytest.importorskip("torch")

    def program(library: Any, compile: Any) -> list[Any]:
        register = library.autograd.graph.register_multi_grad_hook
        a, b = (library.nn.Parameter(library.ones(2)) for _ in range(2))
        run = compile(lambda x: (a * x, (b * x).exp(), x * 3))
        seen: list[Any] = []
        passes: list[Any] = []
        hooks = [
            register((a, b), lambda gs: seen.append([None if g is None else 1 for g in gs])),
            register((a, b), lambda g: seen.append("any"), mode="any"),
        ]
        for which in (3, 1, 3, 2, 7, 1):
            x = library.ones(2, requires_grad=True)
            y, z, w = run(x)
            register((y, z, w), lambda gs: seen.append([g is None for g in gs]))
            sum(part.sum() for i, part in enumerate((y, z, w)) if which >> i & 1).backward()
            passes.append(sorted(map(str, seen)))  # leaves come last where nodes are folded
            seen.clear()
        for hook in hooks:
            hook.remove()
        run(library.ones(2))[0].sum().backward()
        return [*passes, seen]

    want = program(torch, lambda f: f)
    assert sum(each.count("any") for each in want) == 6
    assert program(graphc, graphc.compile if compiled else lambda f: f) == want
