"""Debuggers see functions on trial as they were written, and the calls are compiled again after."""

import io
import pdb
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import graphc as torch
from graphc.compat import debugged, often
from graphc.engine.detour import original

pytestmark = pytest.mark.skipif(sys.gettrace() is not None, reason="a debugger runs already")


@pytest.fixture
def function(monkeypatch: pytest.MonkeyPatch, only_the_cpu: None) -> Iterator[Callable[[Any], Any]]:
    """A function that was compiled because it was called often."""
    watching, told = often._Watching(), debugged.Debugged()
    monkeypatch.setattr(often, "watching", watching)
    monkeypatch.setattr(often, "debugged", told)
    monkeypatch.setattr(sys, "settrace", sys.settrace)
    told.listen()

    def wave(x: Any) -> Any:
        y = x.sin() * 2
        z = y.exp() + x
        return z.sum()

    for _ in range(60):
        wave(torch.ones(3))
        watching.passed()
    assert is_detour(wave)
    yield wave
    if watching._watch is not None:
        watching._watch.stop()


def is_detour(function: Any) -> bool:
    return original(function.__code__) is not function.__code__


def lines_of(function: Any, *args: Any) -> list[int]:
    first, lines = function.__code__.co_firstlineno, []

    def trace(frame: Any, event: str, _: Any) -> Any:
        if frame.f_code.co_filename != __file__:
            return None
        if event == "line":
            lines.append(frame.f_lineno - first)
        return trace

    sys.settrace(trace)
    try:
        function(*args)
    finally:
        sys.settrace(None)
    return lines


def test_a_debugger_sees_the_lines(function: Any) -> None:
    want = function(torch.ones(3)).item()
    for _ in range(2):
        assert lines_of(function, torch.ones(3)) == [1, 2, 3]
        assert is_detour(function) and function(torch.ones(3)).item() == want


def test_pdb_stops_where_it_is_told_to(function: Any) -> None:
    said = io.StringIO()
    line = function.__code__.co_firstlineno + 2
    told = io.StringIO(f"b {line}\nc\np tuple(y.shape)\nn\np tuple(z.shape)\ncl 1\nc\n")
    debugger = pdb.Pdb(stdin=told, stdout=said, nosigint=True, readrc=False)
    debugger.use_rawinput = False
    debugger.runcall(function, torch.ones(3))
    assert said.getvalue().count("(3,)") == 2
    assert is_detour(function)


def test_a_function_that_has_other_code_meanwhile_keeps_it(function: Any) -> None:
    def other(x: Any) -> Any:
        return x - 1

    sys.settrace(lambda *_: None)
    try:
        assert not is_detour(function)
        function.__code__ = other.__code__.replace(co_name="wave")
    finally:
        sys.settrace(None)
    assert function(torch.ones(1)).tolist() == [0.0]


def test_threads_that_trace_at_a_time(function: Any) -> None:
    inside, go_on = threading.Event(), threading.Event()

    def traced() -> None:
        sys.settrace(lambda *_: None)
        inside.set()
        go_on.wait(10)
        sys.settrace(None)

    thread = threading.Thread(target=traced)
    thread.start()
    assert inside.wait(10)
    assert not is_detour(function)
    assert lines_of(function, torch.ones(3)) == [1, 2, 3]
    assert not is_detour(function)
    go_on.set()
    thread.join()
    assert is_detour(function)
