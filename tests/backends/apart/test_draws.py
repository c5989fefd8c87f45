"""Random numbers with parameters on the device: from its generator, the CPU's numbers for a seed,
in eager mode, compiled and in segments. The device has no float64; the host has."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import graphc as torch
import graphc.nn.functional as F
from graphc import distributions as D
from graphc import nn

HERE = "apart"


def attended(x: Any) -> Any:
    q = x[None, None, :, None]
    return F.scaled_dot_product_attention(q, q, q, dropout_p=0.5)


DRAWS: dict[str, Callable[[Any], Any]] = {
    "multinomial": lambda x: torch.multinomial(x, 3, replacement=True),
    "without replacement": lambda x: torch.multinomial(x, 2), "poisson": torch.poisson,
    "binomial": lambda x: torch.binomial(x * 4, x * 0.5), "gamma": torch._standard_gamma,
    "normal": lambda x: torch.normal(x, x), "rrelu": lambda x: F.rrelu(-x, training=True),
    "gumbel_softmax": F.gumbel_softmax, "attention": attended,
    "orthogonal_": lambda x: nn.init.orthogonal_(torch.empty(3, 3, device=x.device)),
    "Dirichlet": lambda x: D.Dirichlet(x).sample(), "Beta": lambda x: D.Beta(x, x).sample(),
    "StudentT": lambda x: D.StudentT(x + 1).sample(), "Chi2": lambda x: D.Chi2(x).sample(),
    "MultivariateNormal": lambda x: D.MultivariateNormal(x, torch.eye(4).to(x.device)).sample(),
    "RelaxedBernoulli": lambda x: D.RelaxedBernoulli(x[0], x * 0.5).rsample(),
    "Geometric": lambda x: D.Geometric(x * 0.5).sample(),
    "Gumbel": lambda x: D.Gumbel(x, 1.0).sample(), "Laplace": lambda x: D.Laplace(0.0, x).rsample(),
    "Weibull": lambda x: D.Weibull(x, 2.0).sample(), "Poisson": lambda x: D.Poisson(x).sample(),
    "HalfCauchy": lambda x: D.HalfCauchy(x).sample(),
    "LKJCholesky": lambda x: D.LKJCholesky(3, x[0]).sample(),
    "Multinomial": lambda x: D.Multinomial(3, x).sample(),
    "mixture": lambda x: D.MixtureSameFamily(D.Categorical(x), D.Normal(x, 1.0)).sample(),
    "transformed": lambda x: D.LogNormal(x, 0.5).rsample((2,)),
    "independent": lambda x: D.Independent(D.ContinuousBernoulli(x * 0.3), 1).sample(),
}


@pytest.mark.parametrize("form", ["eager", "compiled", "segments"])
@pytest.mark.parametrize("name", DRAWS)
def test_draws(name: str, form: str) -> None:
    def function(x: Any) -> Any:
        if form == "segments" and x.sum() > 1e6:
            x = x * 2
        return DRAWS[name](x + 0.0)

    called = function if form == "eager" else torch.compile(function)
    for seed in range(2):
        torch.manual_seed(seed)
        want = DRAWS[name](torch.tensor([0.5, 1.0, 1.5, 1.0]))
        torch.manual_seed(seed)
        torch.rand(5)  # the CPU's generator is another one
        found = called(torch.tensor([0.5, 1.0, 1.5, 1.0]).to(HERE))
        assert found.device.type == HERE
        torch.testing.assert_close(found.cpu(), want, rtol=1e-3, atol=1e-5)


def test_numbers_beside_a_parameter_lie_where_it_does() -> None:
    family = D.Normal(0.0, torch.ones(2, device=HERE))
    assert family.loc.device.type == HERE == family.mean.device.type
