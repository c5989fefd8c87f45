"""Each size that calls repeat has its shortcut, however many calls others had before."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import graphc as torch
from graphc.engine.version import shortcut, versions

_IS_TIME = versions.is_time  # as it is outside of these tests

pytestmark = [
    pytest.mark.usefixtures("only_the_cpu"),
    pytest.mark.skipif(
        shortcut.native_code() is None, reason="objects of this Python are not laid out as expected"
    ),
]


@pytest.fixture(autouse=True)
def shortcuts_in_time(monkeypatch: pytest.MonkeyPatch, shortcuts_at_once: None) -> None:
    monkeypatch.setattr(versions, "is_time", _IS_TIME)


def longer(function: Callable[..., Any], calls: list[Any]) -> int:
    """How many of these calls went the long way; each result is asked, too."""
    found = 0
    for x in calls:
        known = sum(version._long_ways.total() for version in function._versions.all())
        assert function(x).tolist() == x.sum(-1).tolist()
        found += known != sum(version._long_ways.total() for version in function._versions.all())
    return found


def test_a_size_that_comes_late() -> None:
    compiled = torch.compile(lambda x: x.sum(-1), fullgraph=True)
    longer(compiled, [torch.ones(n, 8) for n in (128, 256, 512)])
    longer(compiled, [torch.ones(512, 8)] * 301)
    for n in (1024, 2048, 520, 700):
        assert longer(compiled, [torch.ones(n, 8)] * 20) == 2


def test_many_sizes_in_turn() -> None:
    compiled = torch.compile(lambda x: x.sum(-1), fullgraph=True)
    calls = [torch.ones(n, 8) for n in range(20, 32)]
    longer(compiled, calls * 3)
    assert compiled.compile_count == 2
    assert longer(compiled, calls * 3) == 0


def test_sizes_that_never_come_again() -> None:
    """Nothing is made for them, and what is counted is bounded."""
    compiled = torch.compile(lambda x: x.sum(-1), dynamic=True, fullgraph=True)
    assert longer(compiled, [torch.ones(n, 2) for n in range(2, 602)]) == 600
    assert not compiled._versions.shortcuts
    assert max(len(version._long_ways) for version in compiled._versions.all()) <= 256
