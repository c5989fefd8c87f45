"""torch.autograd.functional, gradcheck and forward_ad against torch."""

from __future__ import annotations

import importlib
import warnings
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")

import torch

import graphc
from tests.func.pairs import V, W, X, agree

Y = np.random.default_rng(7).standard_normal(3)


def two(m: Any) -> Any:
    return lambda x, y: (m.sin(x) @ y, (x * y).sum(0))


def one(m: Any) -> Any:
    return lambda x, y: m.sin(x) @ y


def scalar(m: Any) -> Any:
    return lambda x, y: (m.sin(x) @ y).pow(2).sum()


CASES: dict[str, Any] = {
    "jacobian": lambda m, f: f.jacobian(two(m), (m.tensor(X), m.tensor(Y))),
    "jacobian of one": lambda m, f: f.jacobian(lambda x: x.sin(), m.tensor(X)),
    "vectorize": lambda m, f: f.jacobian(lambda x: x.sin(), m.tensor(X), vectorize=True),
    "forward": lambda m, f: f.jacobian(
        lambda x: x.sin(), m.tensor(X), vectorize=True, strategy="forward-mode"),
    "independent": lambda m, f: f.jacobian(lambda x: m.ones(2), m.tensor(V)),
    "hessian": lambda m, f: f.hessian(scalar(m), (m.tensor(X), m.tensor(Y))),
    "hessian of one": lambda m, f: f.hessian(lambda x: x.exp().sum(), m.tensor(V)),
    "vjp": lambda m, f: f.vjp(one(m), (m.tensor(X), m.tensor(Y)), m.tensor(X[:, 0])),
    "vjp of a scalar": lambda m, f: f.vjp(scalar(m), (m.tensor(X), m.tensor(Y))),
    "jvp": lambda m, f: f.jvp(
        two(m), (m.tensor(X), m.tensor(Y)), (m.tensor(X + 1), m.tensor(Y - 1))),
    "hvp": lambda m, f: f.hvp(
        scalar(m), (m.tensor(X), m.tensor(Y)), (m.tensor(X + 1), m.tensor(Y - 1))),
    "vhp": lambda m, f: f.vhp(
        scalar(m), (m.tensor(X), m.tensor(Y)), (m.tensor(X + 1), m.tensor(Y - 1))),
}


@pytest.mark.parametrize("name", CASES)
def test_like_torch(name: str) -> None:
    with warnings.catch_warnings():  # torch's own forward mode warns of its TorchScript
        warnings.simplefilter("ignore")
        theirs = CASES[name](torch, torch.autograd.functional)
    agree(CASES[name](graphc, graphc.autograd.functional), theirs)


def test_create_graph_and_strict() -> None:
    functional = graphc.autograd.functional
    x = graphc.tensor(V, requires_grad=True)
    jacobian = functional.jacobian(lambda a: a.exp(), x, create_graph=True)
    (g,) = graphc.autograd.grad(jacobian.sum(), x)
    np.testing.assert_allclose(g.numpy(), np.exp(V))
    with pytest.raises(RuntimeError, match="strict"):
        functional.vjp(lambda a, b: a.sum(), (x, x), strict=True)
    with pytest.raises(RuntimeError, match="single element"):
        functional.hessian(lambda a: a, x)
    with pytest.raises(TypeError, match="must be either a Tensor"):
        functional.jacobian(lambda a: a, 1.0)
    with pytest.raises(RuntimeError, match="invalid size"):
        functional.jvp(lambda a: a, x, graphc.zeros(2))


class Wrong(graphc.autograd.Function):
    """x*x with a gradient that is half as large again."""

    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx: Any, g: Any) -> Any:
        return 3 * g * ctx.saved_tensors[0]


def test_gradcheck() -> None:
    from graphc.autograd import gradcheck, gradgradcheck

    x, y = (graphc.tensor(a, requires_grad=True) for a in (X, Y))
    assert gradcheck(two(graphc), (x, y))
    assert gradcheck(scalar(graphc), (x, y), check_forward_ad=True, check_batched_grad=True)
    assert gradgradcheck(scalar(graphc), (x, y))
    assert not gradcheck(Wrong.apply, (x,), raise_exception=False)
    module = importlib.import_module("graphc.autograd.gradcheck")
    with pytest.raises(module.GradcheckError, match="Jacobian mismatch"):
        gradcheck(Wrong.apply, (x,))
    with pytest.raises(ValueError, match="requires_grad=True"):
        gradcheck(Wrong.apply, (graphc.tensor(X),))
    with pytest.warns(UserWarning, match="double precision"):
        gradcheck(lambda a: a.sum(), (graphc.ones(2, requires_grad=True),), atol=1e-2, rtol=1e-1,
                  eps=1e-2)


def test_gradchecks_draw_as_torchs() -> None:
    drawn = []
    for m in (torch, graphc):
        x = m.tensor(X, requires_grad=True)
        m.manual_seed(0)
        after = []
        for call in (m.autograd.gradcheck, m.autograd.gradgradcheck):
            for batched in (False, True):
                call(lambda a: a**3, (x,), check_batched_grad=batched)
                after.append(m.rand(1).item())
        drawn.append(after)
    assert drawn[0] == drawn[1]


def test_forward_ad() -> None:
    results = []
    for m in (torch, graphc):
        fw = importlib.import_module(f"{m.__name__}.autograd.forward_ad")
        with fw.dual_level(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            x, w = fw.make_dual(m.tensor(X), m.tensor(X + 1)), m.tensor(W)
            out, constant = fw.unpack_dual((x @ w).sin()), fw.unpack_dual(w)
            assert constant.tangent is None
            results.append((out.primal, out.tangent))
    agree(results[1], results[0])
    with pytest.raises(RuntimeError, match="no level exists"):
        graphc.autograd.forward_ad.make_dual(graphc.ones(1), graphc.ones(1))


@pytest.mark.parametrize("function", [
    lambda m, a: a.abs(), lambda m, a: a.real * 2, lambda m, a: a * a.conj(),
    lambda m, a: (a * a).sum(), lambda m, a: m.view_as_real(a), lambda m, a: m.fft.fft(a).exp(),
], ids=["abs", "real", "conj", "sum", "view_as_real", "fft"])
def test_gradcheck_of_complex_numbers(function: Any) -> None:
    """Real and imaginary parts are checked each, of inputs and of results."""
    for m in (torch, graphc):
        z = m.tensor(np.array([0.3 + 1j, -0.5 + 0.2j]), requires_grad=True)
        ways = {} if m is torch else {"check_forward_ad": True, "check_batched_grad": True}
        assert m.autograd.gradcheck(lambda a, m=m: function(m, a), (z,), **ways)
        assert m.autograd.gradgradcheck(lambda a, m=m: function(m, a), (z,))


def test_gradcheck_sees_wrong_imaginary_parts() -> None:
    for m in (torch, graphc):
        class Turned(m.autograd.Function):  # type: ignore[name-defined, misc]
            @staticmethod
            def forward(ctx: Any, a: Any) -> Any:
                return a * 1j

            @staticmethod
            def backward(ctx: Any, g: Any) -> Any:
                return g * 1j  # its conjugate is right

        z = m.tensor(np.array([0.3 + 1j]), requires_grad=True)
        assert not m.autograd.gradcheck(Turned.apply, (z,), raise_exception=False)
        x = m.tensor(np.array([0.3, 2.0]), requires_grad=True)
        assert m.autograd.gradcheck(lambda a, m=m: m.complex(a, a * a), (x,))
