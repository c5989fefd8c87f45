"""Sums of very many numbers are sums of sums: equal numbers, whose roundings all go one way, add up
to what they should, in eager mode and compiled code, for known sizes and others."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import graphc

MANY = 3_000_000


def _off(found: Any, expected: float) -> float:
    return float((found.double() / expected - 1).abs().max())


@pytest.mark.parametrize("function, expected", [
    (lambda x: x.sum(), 0.1 * MANY),
    (lambda x: x.mean(), 0.1),
    (lambda x: x.norm(), 0.1 * MANY**0.5),
    (lambda x: (x * 2).square().sum(), 0.04 * MANY),
    (lambda x: x.view(-1, 3).sum(0), 0.1 * MANY / 3),
    (lambda x: x.view(3, -1).sum(1), 0.1 * MANY / 3),
    (lambda x: x.view(-1, 12).mean(0), 0.1),
    (lambda x: x.view(10, -1).mean(1), 0.1),
    (lambda x: x.view(-1, 100).sum(0), 0.1 * MANY / 100),
])
def test_equal_numbers_add_up(function: Callable[[Any], Any], expected: float) -> None:
    x = graphc.full((MANY,), 0.1)
    assert _off(function(x), expected) < 5e-5
    assert _off(graphc.compile(function)(x), expected) < 5e-5


def test_the_spread_of_many_numbers_far_from_zero() -> None:
    x = graphc.randn(1000, 1000) + 1e6
    expected = float(x.double().std())
    assert abs(float(x.std()) - expected) < 1e-4 * expected


def test_sizes_at_the_ends_of_stretches() -> None:
    for count in (65_536, 131_071, 262_144, 262_145, 524_289, 1_048_577):
        x = graphc.arange(count).remainder(7).float()
        expected = int(x.long().sum())
        assert int(x.sum()) == expected
        columns = x[: count // 8 * 8].view(-1, 8)
        assert columns.sum(0).tolist() == columns.long().sum(0).tolist()
        rows = x[: count // 4 * 4].view(4, -1)
        compiled = graphc.compile(lambda rows: rows.sum(1))
        assert compiled(rows).tolist() == rows.long().sum(1).tolist()


def test_the_moments_and_gradients_of_many_rows() -> None:
    rows, columns = 40_000, 16
    x = graphc.randn(rows, columns) + 3
    weight = graphc.ones(columns, requires_grad=True)
    bias = graphc.zeros(columns, requires_grad=True)
    y = graphc.nn.functional.batch_norm(x, None, None, weight, bias, training=True)
    y.backward(graphc.full((rows, columns), 0.1))
    assert bias.grad is not None
    assert _off(bias.grad, 0.1 * rows) < 5e-5
    wide = x.double()
    expected = (wide - wide.mean(0)) / (wide.var(0, correction=0) + 1e-5).sqrt()
    assert float((y.detach().double() - expected).abs().max()) < 1e-5
