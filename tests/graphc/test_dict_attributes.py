"""Dictionaries whose keys are attributes by a method in C: `__getattr__ = dict.get`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import graphc as torch


class Output(dict[str, Any]):
    """What a model returns, as libraries write it."""

    __getattr__ = dict.__getitem__


class Options(dict[str, Any]):
    __getattr__ = dict.get


class Record(dict[str, Any]):
    __getattr__ = dict.__getitem__
    __setattr__ = dict.__setitem__
    __delattr__ = dict.__delitem__  # type: ignore[assignment]


OPTIONS = Options(scale=2.0)


def _missing(x: Any) -> Any:
    try:
        return Output(a=x).b
    except KeyError as error:
        return x, str(error)


def _written(x: Any) -> Any:
    record = Record()
    record.a = x * 2
    record.b = record.a + 1
    del record.a
    return record


CASES: dict[str, tuple[Callable[[Any], Any], bool]] = {
    "keywords": (lambda x: Output(a=x * 2, b=x + 1), True),
    "a dict": (lambda x: Output({"a": x * 2}, b=x), True),
    "read": (lambda x: Output(a=x * 2).a + 1, True),
    "missing": (_missing, True),
    "options": (lambda x: x * OPTIONS.scale + (OPTIONS.shift or 3), True),
    "getattr": (lambda x: (x + 1, getattr(Output(a=1), "a", None), hasattr(OPTIONS, "b")), True),
    "written": (_written, False),
}


@pytest.mark.parametrize("name", CASES)
def test_as_eager_mode(name: str) -> None:
    function, is_one_graph = CASES[name]
    compiled = torch.compile(function)
    for size in (2, 2, 3):
        x = torch.arange(float(size))
        want, have = function(x), compiled(x)
        assert type(have) is type(want) and repr(have) == repr(want)
    assert (compiled.segments is None) is is_one_graph


def test_a_key_that_changes_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled = torch.compile(CASES["options"][0])
    x = torch.ones(1)
    assert [compiled(x).item() for _ in range(3)] == [5.0] * 3
    monkeypatch.setitem(OPTIONS, "scale", 4.0)
    assert compiled(x).item() == 7.0
    monkeypatch.setitem(OPTIONS, "shift", 10.0)
    assert compiled(x).item() == 14.0
    monkeypatch.setattr(OPTIONS, "scale", 1.0, raising=False)
    assert compiled(x).item() == 11.0
    monkeypatch.setattr(Options, "__getattr__", lambda self, name: 6.0)
    monkeypatch.delattr(OPTIONS, "scale")
    assert compiled(x).item() == 12.0
