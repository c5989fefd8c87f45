"""Compiled functions called with one size after another, as eager ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import graphc

CALLS: dict[str, Callable[[Any], Any]] = {
    "multinomial": lambda x: graphc.multinomial(x.abs() + 0.1, 2, replacement=True),
    "masked_select": lambda x: x.masked_select(x > 0) * 2,
    "quantile": lambda x: x.quantile(0.3, -1, interpolation="midpoint"),
    "part": lambda x: x[1:].detach().as_strided((2,), (1,), 1),
    "addbmm": lambda x: graphc.addr(x, x[0], x[0], beta=0),
    "cross": lambda x: graphc.cross(x.T[:3], x.T[:3] + 1, 0),
    "histogram": lambda x: graphc.histogram(x, 3, range=(-1, 1), density=True)[0],
}


@pytest.mark.parametrize("name", CALLS)
def test_sizes(name: str) -> None:
    compiled = graphc.compile(CALLS[name])
    for size in (3, 5, 7, 3):
        graphc.manual_seed(size)
        x = graphc.randn(size, size)
        state = graphc.get_rng_state()
        want = CALLS[name](x)
        graphc.set_rng_state(state)
        have = compiled(x)
        assert tuple(have.shape) == tuple(want.shape)
        assert graphc.allclose(have.double(), want.double(), equal_nan=True)


def test_argument_that_is_a_part_of_memory() -> None:
    whole = graphc.arange(10.0)
    part = whole[5:].detach()
    compiled = graphc.compile(lambda x: x.as_strided((2, 2), (1, 2), 0) * 2)
    assert compiled(part).tolist() == [[0.0, 4.0], [2.0, 6.0]]
    other = (whole + 1)[3:].detach()
    assert compiled(other).tolist() == [[2.0, 6.0], [4.0, 8.0]]


def test_gradient_of_a_part_of_memory() -> None:
    part = graphc.arange(10.0)[5:].detach().requires_grad_()
    part.as_strided((3,), (2,), 2).sum().backward()  # elements 2, 4, 6: the last is part[1]
    assert part.grad is not None and part.grad.tolist() == [0.0, 1.0, 0.0, 0.0, 0.0]
