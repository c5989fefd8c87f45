"""What fails, and nothing reads, raises in compiled code as in eager mode."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import graphc as torch
import graphc.nn.functional as F
from graphc import Tensor
from graphc.frontend.trace import Trace


def _sliced(x: Tensor, i: Tensor) -> Tensor:
    x[i]
    return x * 2


def _embedded(x: Tensor, i: Tensor) -> Tensor:
    F.embedding(i, x)
    return x * 2


def _gathered(x: Tensor, i: Tensor) -> Tensor:
    x.gather(0, i)
    return x * 2


def _written(x: Tensor, i: Tensor) -> Tensor:
    x.clone()[i] = 0.0
    return x * 2


def _added(x: Tensor, i: Tensor) -> Tensor:
    torch.zeros(3, 5).scatter_add(0, i.expand(3, 5), x)
    return x * 2


def _scored(x: Tensor, i: Tensor) -> Tensor:
    F.cross_entropy(x, i[:, 0])
    return x * 2


def _divided(x: Tensor, i: Tensor) -> Tensor:
    i // (i - 7)
    return x * 2


def _inverted(x: Tensor, i: Tensor) -> Tensor:
    torch.linalg.inv(x[:2, :2] * (i[1] != 7))
    return x * 2


def _before_a_value(x: Tensor, i: Tensor) -> float:
    x[i].sum()
    return (x * 2).sum().item() + 1


def _behind_a_value(x: Tensor, i: Tensor) -> float:
    total = float(x.sum())
    x[i]
    return total


FUNCTIONS = [
    _sliced, _embedded, _gathered, _written, _added, _scored, _divided, _inverted,
    _before_a_value, _behind_a_value,
]


def _arguments(place: int) -> tuple[Tensor, Tensor]:
    x = torch.arange(15.0).view(3, 5) ** 2 + 1
    return x, torch.tensor([[0], [place], [2]])


@pytest.mark.parametrize("function", FUNCTIONS)
def test_a_failure_that_nothing_reads(function: Callable[[Tensor, Tensor], Any]) -> None:
    with pytest.raises((IndexError, RuntimeError)) as expected:
        function(*_arguments(7))
    compiled = torch.compile(function)
    for _ in range(3):
        good = torch.as_tensor(compiled(*_arguments(1)))
        assert good.tolist() == torch.as_tensor(function(*_arguments(1))).tolist()
        with pytest.raises(expected.type):
            compiled(*_arguments(7))


def test_what_is_checked_anyhow_is_not_computed_twice() -> None:
    def step(x: Tensor, i: Tensor) -> Tensor:
        x[i]  # the same places are looked up below
        (x * 3)[x.argmax(0)]  # these exist
        x[torch.tensor([0, 1])]
        x.sum() // 2
        i // 2
        return (x * 2)[i]

    with Trace("step") as trace:
        traced = trace.finish(step(*_arguments(1)))
    assert len(traced.graph.outputs) == 1


def test_a_failure_that_code_of_a_text_catches() -> None:
    names: dict[str, Any] = {}
    exec(
        "def step(x, i):\n    try:\n        y = x[i]\n    except IndexError:\n        y = None\n"
        "    return x * 2, y\n",
        names,
    )
    compiled = torch.compile(names["step"])
    for place in (1, 7, 1, 7):
        assert (compiled(*_arguments(place))[1] is None) == (place == 7)
