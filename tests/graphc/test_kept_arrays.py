"""`log.append(y.numpy())` ends no graph where nothing is done with the array but to keep it."""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import graphc as torch

pytestmark = pytest.mark.filterwarnings("ignore::graphc.PerformanceWarning")


class Holder:
    last: Any = None


HOLDER = Holder()
OUTER: list[Any] = []


def appended(x: Any) -> Any:
    log = []
    for i in range(2):
        y = (x * i).sin()
        log.append(y.numpy())
    return y, log


def held_elsewhere(x: Any) -> Any:
    HOLDER.last = (x * 3).numpy()
    OUTER.append(x.exp().detach().numpy())
    return x + 1


def comprehended(x: Any) -> Any:
    return [(x * i).numpy() for i in range(2)], {"a": (x * 3).numpy()}


def written_to_later(x: Any) -> Any:
    y, log = x * 2, []
    log.append(y.numpy())
    y.add_(1)
    return log, y


def views_of_one(x: Any) -> Any:
    y, log = x * 2, []
    log.append(y.numpy())
    log.append(y[1:].numpy())
    return log


def passed_on(x: Any) -> Any:
    log = []
    log.append((x * 2).numpy())
    first, = log
    log.append(first)
    return log[0] is log[1], first is None, log


KEPT = (appended, held_elsewhere, comprehended, written_to_later, views_of_one, passed_on)


@pytest.mark.parametrize("function", KEPT, ids=lambda f: f.__name__)
def test_arrays_that_are_kept(function: Callable[..., Any]) -> None:
    compiled = torch.compile(function)
    for i in range(3):
        expected = function(torch.arange(4.0) + i), HOLDER.last, OUTER[-1:]
        found = compiled(torch.arange(4.0) + i), HOLDER.last, OUTER[-1:]
        _same(expected, found)
    assert compiled.segments is None and compiled.compile_count == 1


def test_an_array_shares_memory_with_its_tensor() -> None:
    compiled = torch.compile(written_to_later)
    for _ in range(3):
        log, y = compiled(torch.ones(3))
        log[0][0] = 7.0
        assert y.tolist() == [7.0, 3.0, 3.0]


def _match(v: Any) -> int:
    match v:
        case np.ndarray():
            return 1
        case _:
            return 2


@functools.singledispatch
def _dispatched(v: Any) -> int:
    return 2


@_dispatched.register
def _(v: np.ndarray) -> int:
    return 1


ASKED: dict[str, Callable[[Any], Any]] = {
    "item": lambda log: log[0][0],
    "number": lambda log: float(log[0].max()),
    "stack": np.stack,
    "nested": lambda log: np.asarray(log).sum(),
    "type": lambda log: type(log[0]) is np.ndarray,
    "isinstance": lambda log: isinstance(log[0], np.ndarray),
    "class": lambda log: [v.__class__ for v in log],
    "map": lambda log: list(map(type, log)),
    "match": lambda log: _match(log[0]),
    "dispatch": lambda log: _dispatched(log[0]),
    "text": lambda log: f"{log[0]}",
    "repr": lambda log: str(log),
    "sum": sum,
    "caught": lambda log: _caught(log[0]),
    "tensor": lambda log: torch.tensor(log[0]),
    "shared": lambda log: torch.from_numpy(log[0]) + 1,
    "copy": copy.deepcopy,
    "write": lambda log: np.copyto(log[0], 3.0),
    "mixed": lambda log: log[0] * 2 + np.float32(1),
}


def _caught(value: Any) -> int:
    try:
        return len(value)
    except Exception:
        return -1


@pytest.mark.parametrize("name", ASKED)
def test_arrays_that_python_asks(name: str) -> None:
    def function(x: Any) -> Any:
        log = []
        log.append((x * 2).numpy())
        return ASKED[name](log), log

    compiled = torch.compile(function)
    for i in range(3):
        _same(function(torch.arange(4.0) + i), compiled(torch.arange(4.0) + i))
    assert compiled.segments is not None


def test_what_raises_in_eager_mode_raises() -> None:
    def function(x: Any) -> Any:
        log = []
        log.append((x * 2).numpy())
        return log

    x = torch.ones(3, requires_grad=True)
    with pytest.raises(RuntimeError, match="requires grad"):
        torch.compile(function)(x)


def _same(expected: Any, found: Any) -> None:
    if isinstance(expected, torch.Tensor):
        expected, found = expected.detach().numpy(), found.detach().numpy()
    assert type(found) is type(expected)
    if isinstance(expected, (list, tuple)):
        assert len(found) == len(expected)
        for a, b in zip(expected, found, strict=True):
            _same(a, b)
    elif isinstance(expected, dict):
        _same(list(expected.items()), list(found.items()))
    elif isinstance(expected, (np.ndarray, np.generic)):
        np.testing.assert_allclose(found, expected, rtol=1e-6)
    else:
        assert found == expected
