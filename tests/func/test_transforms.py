"""torch.func: every transform and their compositions against torch, eager and compiled."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")

import torch

import graphc
from graphc import func
from tests.func.pairs import IMAGES, V, W, X, agree, check


def network(m: Any) -> Callable[..., Any]:
    """Per-sample loss of a small convolutional net."""

    def loss(kernel: Any, bias: Any, weight: Any, image: Any) -> Any:
        f = m.nn.functional
        h = f.conv2d(image.unsqueeze(0), kernel, bias, padding=1)
        h = f.max_pool2d(f.gelu(h), 2).flatten(1)
        return f.cross_entropy(h @ weight, m.tensor([1]))

    return loss


KERNEL = np.random.default_rng(1).standard_normal((4, 2, 3, 3)) * 0.3
BIAS = np.random.default_rng(2).standard_normal(4)
HEAD = np.random.default_rng(3).standard_normal((36, 3)) * 0.2

# name -> (function of a package that gives the function to run, its arrays)
CASES: dict[str, tuple[Any, tuple[np.ndarray, ...]]] = {
    "grad": (lambda m: m.func.grad(lambda w, x: (m.tanh(x @ w) ** 2).sum()), (W, X)),
    "grad of two": (
        lambda m: m.func.grad(lambda w, x: (m.tanh(x @ w) ** 2).sum(), argnums=(0, 1)), (W, X)),
    "grad of a dict": (
        lambda m: lambda w, x: m.func.grad(lambda p: (p["a"] @ p["b"]).exp().sum())(
            {"a": x, "b": w})["b"], (W, X)),
    "grad and value": (
        lambda m: m.func.grad_and_value(lambda x: (x.sin().sum(), x * 2), has_aux=True), (X,)),
    "grad of grad": (
        lambda m: m.func.grad(
            lambda x: m.func.grad(lambda y: (y**3 * x).sum())(x).sin().sum()), (X,)),
    "unused argument": (lambda m: m.func.grad(lambda x, y: x.sum(), argnums=1), (X, W)),
    "vjp": (lambda m: lambda x, w: m.func.vjp(lambda a, b: (a @ b).exp(), x, w)[1](x @ w), (X, W)),
    "jvp": (
        lambda m: lambda x, w: m.func.jvp(lambda a, b: ((a @ b).sin(), a * 2), (x, w), (x + 1, w)),
        (X, W)),
    "jvp of a constant": (
        lambda m: lambda x: m.func.jvp(lambda a: (a * 2, m.ones(2)), (x,), (x,)), (X,)),
    "linearize": (lambda m: lambda x: m.func.linearize(lambda a: a.exp() * a, x)[1](x + 1), (X,)),
    "jacrev": (lambda m: m.func.jacrev(lambda x: m.softmax(x, -1)), (X,)),
    "jacrev in chunks": (lambda m: m.func.jacrev(lambda x: x.sin() * x, chunk_size=2), (V,)),
    "jacrev of two": (
        lambda m: m.func.jacrev(lambda x, w: (x @ w, x.sum(0)), argnums=(0, 1)), (X, W)),
    "jacfwd": (lambda m: m.func.jacfwd(lambda x: m.logsumexp(x, -1) * x[:, 0]), (X,)),
    "jacfwd of two": (lambda m: m.func.jacfwd(lambda x, w: x @ w, argnums=(0, 1)), (X, W)),
    "hessian": (lambda m: m.func.hessian(lambda x: (x.sin() * x.exp()).prod()), (V,)),
    "reverse over reverse": (
        lambda m: m.func.jacrev(m.func.jacrev(lambda x: m.softmax(x, 0)[0])), (V,)),
    "forward over forward": (
        lambda m: m.func.jacfwd(m.func.jacfwd(lambda x: m.softmax(x, 0)[0])), (V,)),
    "reverse over forward": (
        lambda m: m.func.jacrev(m.func.jacfwd(lambda x: m.softmax(x, 0)[0])), (V,)),
    "per-sample gradients": (
        lambda m: m.func.vmap(
            m.func.grad(lambda w, x: (m.tanh(x @ w) ** 2).sum()), (None, 0)), (W, X)),
    "per-sample gradients of a conv net": (
        lambda m: m.func.vmap(m.func.grad(network(m), argnums=(0, 1, 2)), (None, None, None, 0)),
        (KERNEL, BIAS, HEAD, IMAGES)),
    "gradient of vmap": (
        lambda m: m.func.grad(lambda x: m.func.vmap(lambda y: (y**2).sum())(x).sin().sum()), (X,)),
    "vmap of hessian": (lambda m: m.func.vmap(m.func.hessian(lambda x: x.sin().prod())), (X,)),
    "vmap of jvp": (
        lambda m: m.func.vmap(lambda x: m.func.jvp(lambda y: m.softmax(y, 0), (x,), (x * 2,))),
        (X,)),
    "vmap of vjp_fn": (
        lambda m: lambda x, w: m.func.vmap(m.func.vjp(lambda a: (a @ w).exp(), x)[1])(
            m.stack([x @ w, x @ w * 2])), (X, W)),
    "nested vmap of grad": (
        lambda m: m.func.vmap(m.func.vmap(m.func.grad(lambda x: x.sin()))), (X,)),
    "jacobian of vmap": (lambda m: m.func.jacrev(m.func.vmap(lambda x: x.cumsum(0).exp())), (X,)),
}


@pytest.mark.parametrize("mode", ["eager", "compiled"])
@pytest.mark.parametrize("name", CASES)
def test_like_torch(name: str, mode: str) -> None:
    build, arrays = CASES[name]
    check(build, *arrays, mode=mode)


@pytest.mark.parametrize("mode", ["eager", "compiled"])
def test_gradients_flow_on_from_transforms(mode: str) -> None:
    def build(m: Any) -> Any:
        def step(x: Any, w: Any) -> Any:
            jacobian = m.func.jacrev(lambda a: (a @ w).sin())(x)
            return m.func.vmap(lambda row: row.exp().sum())(x).sum() + (jacobian**2).sum()
        return step

    results = []
    for m in (torch, graphc):
        x, w = m.tensor(X, requires_grad=True), m.tensor(W, requires_grad=True)
        step = build(m)
        if mode == "compiled" and m is graphc:
            step = graphc.compile(step)
        step(x, w).backward()
        results.append((x.grad, w.grad))
    agree(results[1], results[0])


def test_results_carry_no_history_of_their_own() -> None:
    x = graphc.tensor(X)
    assert not func.grad(lambda a: a.sin().sum())(x).requires_grad
    value, pull = func.vjp(lambda a: a * 2, x)
    assert not value.requires_grad and not pull(value)[0].requires_grad
    with graphc.no_grad():
        assert not func.grad(lambda a: a.sin().sum())(x.requires_grad_()).requires_grad
    assert func.grad(lambda a: a.sin().sum())(x).requires_grad


def test_structure_of_pullbacks() -> None:
    """A tuple with one entry per primal, each with its primal's structure."""
    torch = pytest.importorskip("torch")

    def shape(value: Any) -> Any:
        if isinstance(value, (tuple, list)):
            return type(value).__name__, [shape(v) for v in value]
        return {k: shape(v) for k, v in value.items()} if isinstance(value, dict) else "tensor"

    found = []
    for m in (torch, graphc):
        x, y = m.tensor([1.0, 2.0]), m.tensor([3.0, 4.0])
        found.append([shape(f(x)) for f in (
            m.func.vjp(lambda a: a * 2, x)[1],
            m.func.vjp(lambda a, b: a * b, x, y)[1],
            m.func.vjp(lambda p: p[0] * p[1], (x, y))[1],
            m.func.vjp(lambda p: p["x"] * 2, {"x": x})[1],
            m.func.vjp(lambda a: (a * 2, a), x, has_aux=True)[1],
            lambda a, m=m: m.func.vmap(m.func.vjp(lambda b: b * 2, a)[1])(m.eye(2)),
        )])
    assert found[1] == found[0]


def test_python_control_flow_inside_grad() -> None:
    def pieces(x: Any) -> Any:
        return x.sin().sum() if x.sum() > 0 else x.exp().sum()

    for sign in (1, -1):
        x = graphc.tensor(sign * np.abs(X))
        want = np.cos(X) if sign > 0 else np.exp(-np.abs(X))
        np.testing.assert_allclose(func.grad(pieces)(x).numpy(), want)
        assert func.jacrev(pieces)(x).shape == x.shape
        assert func.jacfwd(pieces)(x).shape == x.shape


def test_functional_call_and_ensembles() -> None:
    def results(m: Any) -> Any:
        m.manual_seed(0)
        models = [m.nn.Sequential(m.nn.Linear(3, 4), m.nn.Tanh(), m.nn.Linear(4, 2))
                  for _ in range(3)]
        params, buffers = m.func.stack_module_state(models)
        x = m.tensor(X.astype("float32"))

        def call(p: Any, b: Any, data: Any) -> Any:
            return m.func.functional_call(models[0], (p, b), (data,))

        out = m.func.vmap(call, (0, 0, None))(params, buffers, x)
        single = dict(models[1].named_parameters())

        def loss(p: Any, row: Any) -> Any:
            return m.func.functional_call(models[1], p, (row,)).pow(2).sum()

        grads = m.func.vmap(m.func.grad(loss), (None, 0))(
            {k: v.detach() for k, v in single.items()}, x)
        return out, [grads[k] for k in single]

    agree(results(graphc), results(torch), 1e-5)
    model = graphc.nn.Linear(3, 2)
    out = func.functional_call(
        graphc.nn.Sequential(model), {"0.more": graphc.zeros(1)}, (graphc.zeros(3),))
    assert out.shape == (2,) and not hasattr(model, "more")
    with pytest.raises(AttributeError, match="nothing"):
        func.functional_call(model, {"nothing.more": graphc.zeros(1)}, (graphc.zeros(3),))
    with pytest.raises(TypeError, match="attribute `in_features`"):
        func.functional_call(model, {"in_features": graphc.zeros(1)}, (graphc.zeros(3),))
    with pytest.raises(RuntimeError, match="Missing key"):
        func.functional_call(model, {"bias": graphc.zeros(2)}, (graphc.zeros(3),), strict=True)
    before = model.weight
    func.functional_call(model, {"weight": graphc.zeros(2, 3)}, (graphc.zeros(3),))
    assert model.weight is before


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: func.grad(lambda x: x)(graphc.ones(2)), RuntimeError, "scalar tensor"),
        (lambda: func.grad(lambda x: 1.0)(graphc.ones(2)), RuntimeError, "return a Tensor"),
        (lambda: func.grad(lambda x: x.sum(), argnums=1)(graphc.ones(2)), RuntimeError,
         "Got argnum=1"),
        (lambda: func.grad(lambda x: x.sum())(graphc.ones(2).long()), RuntimeError, "floating"),
        (lambda: func.jvp(lambda x: x, graphc.ones(2), graphc.ones(2)), RuntimeError, "tuple"),
        (lambda: func.jvp(lambda x: x, (graphc.ones(2),), ()), RuntimeError, "structure"),
        (lambda: func.vjp(lambda x: x, graphc.ones(2))[1]((graphc.ones(2),)), RuntimeError,
         "structure"),
        (lambda: func.functionalize(lambda x: x, remove="all"), RuntimeError, "remove=all"),
    ],
)
def test_errors(call: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        call()


def test_functional_call_of_tied_weights() -> None:
    for m in (torch, graphc):
        model = m.nn.Sequential(m.nn.Linear(2, 2), m.nn.Linear(2, 2))
        model[1].weight = model[0].weight
        x, one = m.ones(1, 2), m.ones(2, 2)
        both = {"0.weight": one, "1.weight": one}
        m.func.functional_call(model, both, x)
        other = {"0.weight": one, "1.weight": m.zeros(2, 2)}
        with pytest.raises(ValueError, match="multiple values for keys"):
            m.func.functional_call(model, other, x)
        found = m.func.functional_call(model, other, x, tie_weights=False)
        assert found.tolist() == [model[1].bias.tolist()]
