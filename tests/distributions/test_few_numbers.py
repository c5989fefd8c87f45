"""Checks of few numbers are Python's: they find what those of many find."""

from typing import Any

import pytest

import graphc as torch
from graphc.distributions import Categorical, constraints

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
