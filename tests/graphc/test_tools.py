"""A profiler, tracer or debugger beside a recording: neither is lost, and the results are right.

Recordings watch for Python code that starts unseen by the same means (engine/capture/net.py).
"""

from __future__ import annotations

import bdb
import contextlib
import cProfile
import pstats
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

import graphc
from tests import under
from tests.graphc import test_never_stale
from tests.graphc.scenario import compare, identity, run
from tests.graphc.stale_scenario import STALE

NAMES = [name for name in STALE if name not in test_never_stale.KNOWN][::9]


class Settings:
    """State that the compiled function reads."""

    def __init__(self) -> None:
        self.scale, self.shift = 2.0, 0


def scaled(settings: Settings, x: Any) -> Any:
    y = x * settings.scale
    if settings.shift:
        y = y + settings.shift
    return y.sum()


def step(settings: Settings, x: Any) -> Any:
    return scaled(settings, x) + 1


SCALED = scaled.__code__.co_firstlineno + 1  # the line of its first statement


def calls(function: Callable[..., Any]) -> list[float]:
    """Four calls with changes between."""
    settings, found = Settings(), []
    for i in range(4):
        if i == 2:
            settings.scale = 3.0
        if i == 3:
            settings.shift = 5
        found.append(float(function(settings, graphc.ones(3) * i)))
    return found


def right(whole: bool = True) -> Any:
    """Compiled calls give what eager ones do, from one graph each."""
    compiled = graphc.compile(step)
    assert calls(compiled) == calls(step)
    assert (compiled.segments is None) == whole
    return compiled


class Tracer:
    """A trace or profile function that notes calls and lines of this file."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, str, int]] = []

    def __call__(self, frame: FrameType, event: str, argument: Any) -> Any:
        if frame.f_code.co_filename == __file__ and frame.f_code.co_name == "scaled":
            self.seen.append((event, frame.f_code.co_name, frame.f_lineno))
        return self


@contextlib.contextmanager
def restored() -> Iterator[None]:
    """Afterwards the tools run again that run now (`python -m tests.under`)."""
    tracer, profiler = sys.gettrace(), sys.getprofile()
    try:
        yield
    finally:
        sys.settrace(tracer)
        if isinstance(profiler, cProfile.Profile):  # C code: no function to set
            sys.setprofile(None)
            profiler.enable()
        else:
            sys.setprofile(profiler)


@contextlib.contextmanager
def tracing(function: Any) -> Iterator[None]:
    with restored():
        sys.settrace(function)
        yield
        assert sys.gettrace() is function, "the recording took the tracer away"


@contextlib.contextmanager
def profiling(function: Any) -> Iterator[None]:
    with restored():
        sys.setprofile(function)
        yield
        assert sys.getprofile() is function, "the recording took the profiler away"


@contextlib.contextmanager
def profiled(profile: cProfile.Profile | None = None) -> Iterator[None]:
    leave_room(2)
    with restored(), profile or cProfile.Profile():
        yield


def leave_room(*tools: int) -> None:
    """Skip where one of sys.monitoring's tools is taken already."""
    if sys.version_info >= (3, 12):
        taken = [name for tool in tools if (name := sys.monitoring.get_tool(tool))]
        if taken:
            pytest.skip(f"runs under {', '.join(taken)}")


@contextlib.contextmanager
def debugged() -> Iterator[None]:
    """A debugger that goes on at each breakpoint, and looks for them in every frame."""
    debugger = bdb.Bdb()
    debugger.reset()
    debugger.user_line = lambda frame: debugger.set_continue()  # type: ignore[method-assign]
    debugger.break_anywhere = lambda frame: True  # type: ignore[method-assign]
    debugger.set_break(__file__, SCALED)
    with restored():
        sys.settrace(debugger.trace_dispatch)
        yield


TOOLS: dict[str, Callable[[], Any]] = {
    "trace": lambda: tracing(Tracer()),
    "profile": lambda: profiling(Tracer()),
    "cProfile": profiled,
    "debugger": debugged,
}


@pytest.mark.parametrize("tool", TOOLS)
def test_one_graph_and_right(tool: str) -> None:
    with TOOLS[tool]():
        right()
    right()


@pytest.mark.parametrize("tool", TOOLS)
@pytest.mark.parametrize("name", NAMES)
def test_a_scenario(name: str, tool: str) -> None:
    function, tolerance = STALE[name]
    with TOOLS[tool]():
        expected = run(function, graphc, identity)  # a tracer, too, keeps objects alive
        found = run(function, graphc, graphc.compile)
    compare(expected, found, tolerance)


def test_the_tracer_sees_the_recorded_lines_as_eager_ones() -> None:
    eager, compiled = Tracer(), Tracer()
    settings, x = Settings(), graphc.ones(3)
    with tracing(eager):
        step(settings, x)
    with tracing(compiled):
        graphc.compile(step)(settings, x)
    assert compiled.seen == eager.seen and any(event == "line" for event, _, _ in eager.seen)


def test_the_profiler_sees_the_recorded_calls() -> None:
    seen = Tracer()
    with profiling(seen):
        graphc.compile(step)(Settings(), graphc.ones(3))
    assert [event for event, _, _ in seen.seen if event in ("call", "return")] == ["call", "return"]


def test_cprofile_counts_the_recorded_call() -> None:
    profile = cProfile.Profile()
    compiled, x = graphc.compile(step), graphc.ones(3)
    with profiled(profile):
        compiled(Settings(), x)
    with restored():  # reading a profile ends all of them
        stats: Any = pstats.Stats(profile)
    counts = {key[2]: value[0] for key, value in stats.stats.items()}
    assert counts["scaled"] == counts["step"] == 1


def test_a_breakpoint_stops_in_the_users_function() -> None:
    places: list[tuple[str, int, float]] = []
    debugger = bdb.Bdb()

    def stopped(frame: FrameType) -> None:
        if frame.f_lineno == SCALED:
            places.append((frame.f_code.co_name, frame.f_lineno, frame.f_locals["settings"].scale))
        debugger.set_continue()

    debugger.reset()
    debugger.user_line = stopped  # type: ignore[method-assign]
    debugger.set_break(__file__, SCALED)
    compiled = graphc.compile(step)
    with restored():
        sys.settrace(debugger.trace_dispatch)
        result = float(compiled(Settings(), graphc.ones(3)))
    assert result == 7 and places == [("scaled", SCALED, 2.0)]
    assert compiled.segments is None


def test_a_user_who_steps_through_every_line(capsys: pytest.CaptureFixture[str]) -> None:
    with under.debugger():
        right()
    assert int(capsys.readouterr().out.split()[0]) > 20


def test_the_files_of_under_exist() -> None:
    here = {path.name for path in Path(__file__).parent.iterdir()}
    assert {f"test_{name}.py" for name in under.CORE} <= here


@pytest.mark.parametrize("set_tool, get_tool", [
    (sys.settrace, sys.gettrace), (sys.setprofile, sys.getprofile)
])
def test_a_tool_that_the_function_starts_stays(set_tool: Any, get_tool: Any) -> None:
    tool = Tracer()

    def start(x: Any) -> Any:
        set_tool(tool)
        return x * 2

    compiled = graphc.compile(start)
    for _ in range(3):
        with restored():
            assert float(compiled(graphc.ones(1))) == 2 and get_tool() is tool


@pytest.mark.skipif(sys.version_info >= (3, 12), reason="sys.monitoring has room for both")
def test_two_tools_leave_no_room() -> None:
    """Nothing can be seen then: the function runs in segments, until one of them has gone."""
    compiled = graphc.compile(step)
    with tracing(Tracer()), profiling(Tracer()):
        assert float(compiled(Settings(), graphc.ones(3))) == 7
    assert calls(compiled) == calls(step) and compiled.segments is None


@pytest.mark.skipif(sys.version_info < (3, 12), reason="sys.monitoring is new in Python 3.12")
@pytest.mark.parametrize("taken", [(1,), (4,), (3,), (2, 3, 4)])
def test_tools_of_monitoring(taken: tuple[int, ...]) -> None:
    leave_room(*taken)
    monitoring: Any = sys.monitoring  # type: ignore[attr-defined]
    started: list[str] = []
    for tool in taken:
        monitoring.use_tool_id(tool, "test")
        monitoring.register_callback(
            tool, monitoring.events.PY_START, lambda code, offset: started.append(code.co_name)
        )
        monitoring.set_events(tool, monitoring.events.PY_START | monitoring.events.LINE)
    try:
        right(whole=not {3, 4} <= set(taken))
        assert started.count("step") >= 2 * len(taken)
        for tool in taken:
            assert monitoring.get_tool(tool) == "test" and monitoring.get_events(tool)
    finally:
        for tool in taken:
            monitoring.set_events(tool, 0)
            monitoring.register_callback(tool, monitoring.events.PY_START, None)
            monitoring.free_tool_id(tool)
    assert monitoring.get_tool(3) is None and monitoring.get_tool(4) is None


def test_recordings_of_many_threads_leave_nothing_behind() -> None:
    """Each thread compiles a function of its own; the last recording takes the watch away."""
    results: list[list[float]] = []
    profiler = sys.getprofile()

    def work() -> None:
        for _ in range(3):
            results.append(calls(graphc.compile(lambda settings, x: scaled(settings, x) + 1)))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [calls(step)] * 12
    assert sys.getprofile() is profiler
    if sys.version_info >= (3, 12):
        assert sys.monitoring.get_tool(4) is None
