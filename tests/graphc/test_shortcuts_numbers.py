"""Numbers among the arguments of calls whose guards native code asks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import graphc as torch
from graphc.engine.version import shortcut

pytestmark = pytest.mark.skipif(
    shortcut.native_code() is None, reason="objects of this Python are not laid out as expected"
)


@pytest.fixture
def taken(shortcut_calls: list[Any], only_the_cpu: None) -> list[Any]:
    """Arguments and results of calls that took a shortcut."""
    return shortcut_calls


def test_a_number_that_nothing_reads_may_be_any(taken: list[Any]) -> None:
    compiled = torch.compile(lambda i, x: x * 2)
    x = torch.ones(2)
    for i in range(6):
        assert compiled(i, x).tolist() == [2, 2]
    del taken[:]
    for i in (6, -1, 2**70):
        assert compiled(i, x).tolist() == [2, 2]
    assert [args for args, _ in taken] == [(6, x), (-1, x), (2**70, x)]


@pytest.mark.parametrize("function", [
    lambda i, x: (x * 2, i),
    lambda i, x: x * i,
    lambda i, x: x + 1 if i > 3 else x - 1,
    lambda i, x: x[i % 2],
    lambda i, x: (x, {"i": i, "text": f"{i}"}),
    lambda i, x: x.expand(abs(int(i)) % 5 + 1, 2).sum(0),
    lambda i, x: x if isinstance(i, bool) else x * 3,
])
def test_a_number_that_something_reads_is_read(
    function: Callable[..., Any], taken: list[Any]
) -> None:
    compiled = torch.compile(function)
    x = torch.tensor([1.0, 2.0])
    for i in [0, 1, 2, 2, 2, 3, 4, 4, 5, 6, True, 1.0, 2.0, 2.5, -1, -1, False, 7]:
        try:
            want = function(i, x)
        except (IndexError, TypeError):  # no index
            continue
        assert repr(compiled(i, x)) == repr(want)


def test_a_counter_beside_a_number_that_nothing_reads(taken: list[Any]) -> None:
    log: list[Any] = []

    def step(i: int, x: Any) -> Any:
        log.append(i)
        return x.sum()

    compiled = torch.compile(step)
    for i in range(9):
        compiled(i, torch.ones(3))
    assert log == list(range(9))
