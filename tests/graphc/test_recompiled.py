"""GRAPHC_DEBUG=1 says why a function is compiled again, and where the function is."""

import re
from typing import Any

import pytest

import graphc as torch
import graphc.nn as nn


class Scaled(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.scale = 2.0

    def forward(self, x: Any, mask: Any = None) -> Any:
        y = self.linear(x) * self.scale
        return y if mask is None else y * mask


def reasons(capsys: pytest.CaptureFixture[str]) -> list[str]:
    """What was said of each compilation since the last look."""
    lines = [line for line in capsys.readouterr().err.splitlines() if "compiled again" in line]
    places = [re.search(r" at \S*test_recompiled\.py:(\d+) is compiled again", x) for x in lines]
    assert all(place is not None for place in places), lines
    return [line.partition("): ")[2] for line in lines]


def test_each_reason_has_old_and_new_values(capsys: pytest.CaptureFixture[str]) -> None:
    model = torch.compile(Scaled())
    x = torch.ones(3, 4)
    with torch.config.override(debug=1):
        model(x)
        assert reasons(capsys) == []
        model(torch.ones(5, 4))
        assert reasons(capsys) == ["x: float32[3, 4] -> float32[5, 4]"]
        model.scale = 3.0
        model(x)
        assert reasons(capsys) == ["self.scale changed: 2.0 -> 3.0"]
        model.eval()  # its code does not look at it
        model(x)
        assert reasons(capsys) == []
        with torch.no_grad():
            model(x)
        assert reasons(capsys) == ["grad mode: True -> False"]
        model(x, mask=torch.ones(3, 4))
        assert reasons(capsys) == ["arguments: 1 positional -> 1 positional, mask="]


def test_it_is_compared_with_the_version_most_like_it(capsys: pytest.CaptureFixture[str]) -> None:
    @torch.compile
    def twice(x: Any, flag: str = "a") -> Any:
        return x * 2 if flag == "a" else x

    with torch.config.override(debug=1):
        twice(torch.ones(2))
        twice(torch.ones(2), flag="b")
        twice(torch.ones(2, dtype=torch.float64))
        twice(torch.ones(2), flag="c")
        assert reasons(capsys) == [
            "arguments: 1 positional -> 1 positional, flag=",
            "x: float32[2] -> float64[2]",
            "flag: 'b' -> 'c'",
        ]


def test_nothing_is_said_by_default(capsys: pytest.CaptureFixture[str]) -> None:
    model = torch.compile(Scaled())
    model(torch.ones(3, 4))
    model(torch.ones(5, 4))
    assert capsys.readouterr().err == ""
