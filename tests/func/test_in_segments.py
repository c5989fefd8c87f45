"""Jacobians in functions that run in segments: what their function ran is not cut in between."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest

import graphc
from graphc.func import functional_call, hessian, jacfwd, jacrev


def of_a_model(calls: list[int]) -> Any:
    model = graphc.nn.Linear(2, 1)
    x = graphc.randn(3, 2)
    calls.append(1)
    parameters = {name: each.detach() for name, each in model.named_parameters()}
    found = hessian(lambda given: functional_call(model, given, x).sum() ** 2)(parameters)
    return x, found["bias"]["bias"]


def by_a_number(calls: list[int]) -> Any:
    x = graphc.rand(3)
    calls.append(1)
    back = jacrev(lambda w: w.sin() * float(w.detach().sum()))(x)
    return x, back, jacfwd(lambda w: w**2 * w.detach().sum().item())(x)


def before_a_number(calls: list[int]) -> Any:
    x = graphc.rand(3)
    calls.append(1)
    found = jacrev(lambda w: w.sin())(x)
    return x, found * found.sum().item(), hessian(lambda w: (w**3).sum())(x)


def of_autograd(calls: list[int]) -> Any:
    x = graphc.rand(3)
    calls.append(1)
    jacobian, second = graphc.autograd.functional.jacobian, graphc.autograd.functional.hessian
    return (
        x, jacobian(lambda w: w.sin() * float(w.detach().sum()), x),
        second(lambda w: (w**3).sum() * float(w.detach().sum()), x, vectorize=True),
    )


class Asked:
    """What a first look at the code does not see."""

    def value(self, x: Any) -> Any:
        return id(self) * 0 + x.item()


def of_rows(calls: list[int]) -> Any:
    x = graphc.rand(3, requires_grad=True)
    calls.append(1)
    y = x**3
    number = Asked().value(y.sum())
    rows = graphc.eye(3) * number
    return x.detach(), graphc.autograd.grad(y, x, rows, is_grads_batched=True)[0]


@pytest.mark.parametrize(
    "function", [of_rows, of_a_model, by_a_number, before_a_number, of_autograd]
)
def test_a_compiled_function_runs_once_and_draws_what_eager_mode_draws(
    function: Callable[[list[int]], Any],
) -> None:
    compiled = graphc.compile(function)
    graphc.manual_seed(0)
    want = function([])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", graphc.PerformanceWarning)
        for _ in range(3):
            calls: list[int] = []
            graphc.manual_seed(0)
            have = compiled(calls)
            assert calls == [1]
            for mine, theirs in zip(have, want, strict=True):
                graphc.testing.assert_close(mine, theirs)
