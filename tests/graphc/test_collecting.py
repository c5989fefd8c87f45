"""What the garbage collector runs in the middle of a recording is no part of it."""

from __future__ import annotations

import gc
import itertools
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import graphc as torch
from graphc.frontend.trace import Trace

pytestmark = [
    pytest.mark.filterwarnings("error::pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.filterwarnings("ignore::graphc.PerformanceWarning"),
]

SEEN: list[float] = []
COLLECTING = """
def collecting(self, *args):
    if next(count) % 10 == 0:
        gc.collect()
    return apply(self, *args)
"""


class Cycle:
    """Garbage that only the collector finds."""

    def __init__(self) -> None:
        self.itself, self.value = self, torch.ones(3)


class Finalized(Cycle):
    def __del__(self) -> None:
        SEEN.append(self.value.sum().item())


def with_a_finalizer() -> None:
    Finalized()


def with_a_weak_reference() -> None:
    cycle = Cycle()
    weakref.finalize(cycle, lambda: SEEN.append(torch.zeros(2).add(1.5).sum().item()))


@pytest.fixture
def another_library() -> Iterator[None]:
    def asked(phase: str, info: dict[str, int]) -> None:
        if (torch.ones(2) * 2).sum().item() > 3:
            SEEN.append(4.0)

    gc.callbacks.append(asked)
    yield
    gc.callbacks.remove(asked)


def whole(x: Any) -> Any:
    y = x.sin()
    for _ in range(40):
        y = y * 1.25 - x
    return y


def in_segments(x: Any) -> Any:
    y = whole(x)
    large = y.sum() > 100  # no line that tells beforehand
    return y if large else y + 1


@pytest.fixture(autouse=True)
def in_the_middle(monkeypatch: pytest.MonkeyPatch) -> None:
    """The collector runs at each tenth operation of a recording."""
    names = {"apply": Trace.apply, "count": itertools.count(1), "gc": gc}
    # as graphc's own code, which starts unasked
    exec(compile(COLLECTING, torch.__file__, "exec"), names)
    monkeypatch.setattr(Trace, "apply", names["collecting"])
    gc.collect()
    SEEN.clear()


def check(function: Callable[..., Any]) -> None:
    compiled = torch.compile(function)
    result = compiled(torch.linspace(0, 1, 5))
    seen = list(SEEN)
    assert torch.allclose(result, function(torch.linspace(0, 1, 5)))
    assert seen and set(seen) <= {3.0, 4.0}
    if function is whole:
        assert compiled.segments is None and compiled.compile_count == 1
    else:
        assert {end.reason for end in compiled.segments.ends} == {"bool(tensor)"}


@pytest.mark.parametrize("garbage", [with_a_finalizer, with_a_weak_reference])
@pytest.mark.parametrize("function", [whole, in_segments])
def test_finalizers_run_beside_a_recording(
    function: Callable[..., Any], garbage: Callable[[], None]
) -> None:
    garbage()
    check(function)


@pytest.mark.parametrize("function", [whole, in_segments])
def test_other_libraries_are_told_beside_a_recording(
    function: Callable[..., Any], another_library: None
) -> None:
    check(function)
