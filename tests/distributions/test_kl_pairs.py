"""kl_divergence of every pair of classes that PyTorch has one of, with its gradients; families by
their log normaliser; transforms with a cache."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import graphc

torch = pytest.importorskip("torch")

MAKERS: dict[str, list[list[float]]] = {
    "Bernoulli": [[0.2, 0.5, 0.9]],
    "Beta": [[0.5, 1.0, 3.0], [2.0, 0.3, 1.5]],
    "Binomial": [[4.0, 4.0, 4.0], [0.2, 0.5, 0.9]],
    "Chi2": [[1.0, 2.0, 5.0]],
    "ContinuousBernoulli": [[0.2, 0.4, 0.9]],
    "Exponential": [[0.5, 1.0, 3.0]],
    "Gamma": [[0.5, 1.0, 3.0], [2.0, 0.3, 1.0]],
    "Gumbel": [[0.0, 1.0, 2.0], [1.0, 2.0, 0.5]],
    "Laplace": [[0.0, 1.0, 2.0], [1.0, 2.0, 0.5]],
    "Normal": [[0.0, 1.0, 2.0], [1.0, 2.0, 0.5]],
    "Pareto": [[0.6, 0.9, 2.0], [0.7, 2.5, 4.0]],
    "Poisson": [[0.5, 1.0, 4.0]],
    "Uniform": [[-0.5, 0.2, 0.7], [0.9, 0.8, 4.0]],
}


def divergence(t: Any, p: str, q: str) -> list[Any]:
    made, leaves = [], []
    for name, scale in ((p, 1.0), (q, 0.75)):
        given = [t.tensor(row) * (1.0 if name == "Binomial" else scale) for row in MAKERS[name]]
        for x in given:
            x.requires_grad_()
        leaves += given
        made.append(getattr(t.distributions, name)(*given))
    found = t.distributions.kl_divergence(*made)
    if not (finite := found.isfinite()).any():
        return [found.detach()]
    slopes = t.autograd.grad(found[finite].sum(), leaves, allow_unused=True)
    return [found.detach(), *[
        t.zeros(3) if slope is None else t.where(finite, slope, 0.0) for slope in slopes
    ]]


@pytest.mark.parametrize("p", MAKERS)
def test_every_pair_as_torch(p: str) -> None:
    pairs = 0
    for q in MAKERS:
        try:
            wanted = divergence(torch, p, q)
        except NotImplementedError:
            with pytest.raises(NotImplementedError):
                divergence(graphc, p, q)
            continue
        pairs += 1
        if q == "Uniform" and p in ("Beta", "ContinuousBernoulli"):
            continue  # see below
        for ours, its in zip(divergence(graphc, p, q), wanted, strict=True):
            np.testing.assert_allclose(
                ours.numpy(), its.numpy(), rtol=2e-4, atol=2e-5, err_msg=f"{p} {q}")
    assert pairs >= 1


@pytest.mark.parametrize("p", ["Beta", "ContinuousBernoulli"])
def test_uniform_around_the_unit_interval(p: str) -> None:
    """torch has infinity for Uniform(0, 1), which is as wide as what lies in it."""
    for low, high in ((-0.5, 1.5), (0.0, 1.0), (0.1, 1.5), (-0.5, 0.9)):
        found = []
        for t in (graphc, torch):
            d = t.distributions
            one = getattr(d, p)(*map(t.tensor, MAKERS[p]))
            if t is torch and (low, high) == (0.0, 1.0):
                found.append(-one.entropy())
            else:
                found.append(d.kl_divergence(one, d.Uniform(t.tensor(low), t.tensor(high))))
        np.testing.assert_allclose(found[0].numpy(), found[1].numpy(), rtol=1e-5)
    d = graphc.distributions
    within = d.kl_divergence(
        d.Uniform(graphc.tensor(0.0), graphc.tensor(1.0)), d.ContinuousBernoulli(0.3))
    x = np.linspace(0, 1, 10001)
    density = d.ContinuousBernoulli(graphc.tensor(0.3, dtype=graphc.float64)).log_prob(
        graphc.tensor(x, dtype=graphc.float64)).numpy()
    np.testing.assert_allclose(within.item(), -np.mean(density), rtol=1e-4)


def test_a_family_by_its_log_normaliser() -> None:
    def made(t: Any) -> list[Any]:
        class Rate(t.distributions.ExponentialFamily):  # type: ignore[misc,name-defined]
            arg_constraints = {"rate": t.distributions.constraints.positive}

            def __init__(self, rate: Any) -> None:
                self.rate = rate
                super().__init__(rate.shape)

            @property
            def _natural_params(self) -> Any:
                return (-self.rate,)

            def _log_normalizer(self, x: Any) -> Any:
                return -(-x).log()

            _mean_carrier_measure = 0

        class Other(Rate):
            pass

        d = t.distributions
        p, q = Rate(t.tensor([0.5, 2.0])), Rate(t.tensor([1.0, 3.0]))
        one, two = d.Exponential(p.rate), d.Exponential(q.rate)
        right = one.entropy(), d.kl_divergence(one, two)
        found = p.entropy(), d.kl_divergence(p, q)
        for mine, wanted in zip(found, right, strict=True):
            assert t.allclose(mine, wanted, atol=1e-6)
        with pytest.raises(NotImplementedError):
            d.kl_divergence(p, Other(q.rate))
        return [x.detach().numpy() for x in found]

    for ours, its in zip(made(graphc), made(torch), strict=True):
        np.testing.assert_allclose(ours, its, rtol=1e-6)


@pytest.mark.parametrize("make", [
    lambda T: T.ExpTransform(),
    lambda T: T.ExpTransform().inv,
    lambda T: T.AffineTransform(1.0, 2.0),
    lambda T: T.ComposeTransform([T.AffineTransform(1.0, 2.0), T.SigmoidTransform()]),
    lambda T: T.IndependentTransform(T.ExpTransform(), 1),
    lambda T: T.StackTransform([T.ExpTransform(), T.TanhTransform()], -1),
])
def test_transforms_with_a_cache(make: Any) -> None:
    for t in (graphc, torch):
        plain = make(t.distributions.transforms)
        cached = plain.with_cache()
        assert type(cached) is type(plain) and cached.with_cache() is cached
        assert (cached == plain) == (plain == make(t.distributions.transforms))
        x = t.tensor([0.3, 0.8])
        y = cached(x)
        assert t.equal(y, plain(x)) and cached(x) is y and cached.inv(y) is x
        assert cached.inv.inv is cached and plain.inv.inv is plain


@pytest.mark.filterwarnings("ignore:Singular sample detected")  # torch says so of every draw
def test_no_draws_of_a_wishart() -> None:
    shapes = []
    for t in (graphc, torch):
        one = t.distributions.Wishart(t.tensor(5.0), t.eye(2))
        shapes.append([tuple(one.sample(size).shape) for size in ((0,), (2, 0), ())])
    assert shapes[0] == shapes[1]
