"""Checks of few numbers are Python's: they find what those of many find."""

from typing import Any

import pytest

import graphc as torch
from graphc.distributions import Categorical, constraints
from graphc.frontend.functions import random

INF, NAN = float("inf"), float("nan")


@pytest.mark.parametrize("values", [[0], [3], [4], [-1], [0, 3, 2], [0, 9], [[1], [2]], 2, 7, []])
def test_an_interval(values: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    region = constraints.integer_interval(0, 3)
    value = torch.tensor(values, dtype=torch.int64)
    many = torch.cat([value.reshape(-1)] * 17 + [torch.zeros(17, dtype=torch.int64)])
    want = bool(region.check(value).all())
    assert region.holds(many) is want
    monkeypatch.setattr(type(region), "check", None)  # it is not asked
    assert region.holds(value) is want


@pytest.mark.parametrize("row", [
    [0.5, 0.5], [1.0], [0.3, 0.3, 0.4], [0.5, 0.5 + 2e-6], [0.5, 0.5 + 9.9e-7], [-0.1, 1.1],
    [0.5, 0.5 - 1.01e-6], [NAN, 1.0], [0.5, NAN], [INF, 0.0], [0.0, 0.0], [1 / 16] * 16,
    [-0.0, 1.0],
])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_simplex(row: list[float], dtype: Any) -> None:
    value = torch.tensor(row, dtype=dtype)
    want = bool(constraints.simplex.check(value).all())
    assert constraints.simplex.holds(value) is want
    assert constraints.simplex.holds(value[None]) is want
    assert constraints.real.holds(value) is bool(constraints.real.check(value).all())


def test_few_numbers_that_are_in_a_simplex_are_not_computed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(type(constraints.simplex), "check", None)
    assert constraints.simplex.holds(torch.tensor([[0.25, 0.75]]))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("shape", [(12,), (1, 12)])
def test_one_of_few_weights_is_drawn_as_operators_draw_it(
    dtype: Any, shape: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    weights = torch.rand(12, dtype=dtype)
    weights[3] = 0
    torch.rand(5000)  # native code draws from now on

    def drawn() -> Any:
        torch.manual_seed(5)
        found = [torch.multinomial(weights.reshape(shape), 1) for _ in range(50)]
        assert found[0].dtype is torch.int64 and found[0].shape == (*shape[:-1], 1)
        return torch.cat(found).flatten().tolist(), torch.get_rng_state().tolist()

    few = drawn()
    monkeypatch.setattr(random, "_winner_of_few", lambda *_: None)
    assert few == drawn() and len(set(few[0])) > 3 and 3 not in few[0]


@pytest.mark.parametrize("row", [
    [0.5, 0.5], [0.0, 0.0], [-0.0, 1.0], [0.0, 2.0], [-0.1, 1.0], [NAN, 1.0], [1.0, NAN],
    [INF, 1.0],
])
def test_weights(row: list[float]) -> None:
    def fails(values: Any) -> str:
        try:
            torch.multinomial(torch.tensor(values), 1)
        except RuntimeError as error:
            return str(error).splitlines()[0].split(" at ")[0]
        return ""

    wrong = fails([row + [0.0] * 40])  # more than few
    assert fails(row) == fails([row]) == wrong
    assert bool(wrong) == (row not in ([0.5, 0.5], [-0.0, 1.0], [0.0, 2.0]))


def test_a_value_outside_is_an_error() -> None:
    m = Categorical(torch.tensor([0.2, 0.8]))
    assert m.log_prob(torch.tensor(1)).item() == pytest.approx(-0.2231, abs=1e-4)
    with pytest.raises(ValueError, match="within the support"):
        m.log_prob(torch.tensor(2))
