"""What a Check says on a device is told where the host waits: inside the `try` that is there."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import graphc as torch
from graphc.frontend.pending import is_handled

SIZE = 1 << 14  # of what is compiled, however little it is called


def handled_at_return(x: Any, i: Any, log: list[str]) -> Any:
    try:
        return (x * 2)[i].sum().item()
    except IndexError:
        log.append("handled")
        return -1.0


def handled_behind(x: Any, i: Any, log: list[str]) -> Any:
    y = (x * 2)[i]
    try:
        found = y.sum().item()
    except IndexError:
        log.append("handled")
        found = -1.0
    return found


def handled_by_a_caller(x: Any, i: Any, log: list[str]) -> Any:
    return _inner(x, i) if i is not None else None


def _inner(x: Any, i: Any) -> Any:
    try:
        return (x * 2)[i].sum().item()
    except IndexError:
        return -1.0


@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "compiled"])
@pytest.mark.parametrize(
    "function", [handled_at_return, handled_behind, handled_by_a_caller],
    ids=lambda function: function.__name__,
)
def test_a_failure_is_handled_where_the_host_waits(
    function: Callable[..., Any], compiled: bool
) -> None:
    call = torch.compile(function) if compiled else function
    x, log, found = torch.arange(float(SIZE), device="cuda"), [], []
    for at in (1, 2, SIZE, 3, -SIZE - 1, SIZE - 1, SIZE):
        found.append(call(x, torch.tensor([at, 0], device="cuda"), log))
    torch.cuda.synchronize()
    assert found == [2.0, 4.0, -1.0, 6.0, -1.0, 2.0 * (SIZE - 1), -1.0]
    assert log == ["handled"] * (0 if function is handled_by_a_caller else 3)


def test_without_a_handler_nothing_waits() -> None:
    """A number that is only returned ends no segment, there as on the CPU."""
    def plain(x: Any) -> Any:
        y = x * 2
        return y, (x + 1).sum().item()

    compiled = torch.compile(plain)
    for _ in range(2):
        y, number = compiled(torch.ones(4, device="cuda"))
        assert number == 8.0 and y.tolist() == [2.0] * 4
    assert compiled.segments is None


def test_what_is_handled() -> None:
    calls = [offset for offset in range(0, 200, 2) if is_handled(_inner.__code__, offset)]
    assert calls and not any(
        is_handled(test_what_is_handled.__code__, offset) for offset in (0, 2)
    )
