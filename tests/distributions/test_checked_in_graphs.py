"""The checks of distributions are part of one graph, which refuses what they refuse."""

from typing import Any

import pytest

import graphc as torch


def drawn(probs: Any, scale: Any) -> Any:
    chosen = torch.distributions.Categorical(probs)
    action = chosen.sample()
    return chosen.log_prob(action), torch.distributions.Normal(0.0, scale).log_prob(action)


GOOD = torch.tensor([[0.2, 0.8]]), torch.tensor(1.0)
BAD = (torch.tensor([[-0.2, 0.8]]), GOOD[1]), (GOOD[0], torch.tensor(-1.0))


def test_parameters_are_checked_at_each_call() -> None:
    compiled = torch.compile(drawn)
    for i, given in enumerate((GOOD, *BAD, GOOD, *BAD)):
        found = []
        for function in (compiled, drawn):
            torch.manual_seed(i)
            try:
                found.append([x.tolist() for x in function(*given)])
            except ValueError as error:
                found.append(str(error))
        want = found[1] if isinstance(found[1], str) else [pytest.approx(x) for x in found[1]]
        assert found[0] == want
        assert isinstance(found[1], str) == (given is not GOOD)
    assert compiled.segments is None and compiled.compile_count == 1
