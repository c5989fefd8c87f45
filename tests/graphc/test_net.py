"""Python code that C code starts during a recording: its caller is open (engine/capture/net.py)."""

from __future__ import annotations

import sys
import threading
from types import CodeType
from typing import Any

import pytest

import graphc
from graphc.engine.capture import calls, net
from graphc.engine.capture.instrument import is_rewritten


class Key:
    """A key that is found by Python code of its own."""

    def __init__(self, value: float) -> None:
        self.value = value

    def __hash__(self) -> int:
        return 1

    def __eq__(self, other: object) -> bool:
        asked.append(self.value)
        return True

    def __lt__(self, other: Key) -> bool:
        return self.value < other.value

    def __index__(self) -> int:
        return int(self.value)


asked: list[float] = []
KEYS = [Key(3), Key(2)]
TABLE = {Key(1): 2.0}


@pytest.mark.parametrize(
    "factor",
    [
        lambda: TABLE[KEYS[0]],
        lambda: 1.0 if [KEYS[0]] == [KEYS[1]] else 2.0,
        lambda: sorted(KEYS)[0].value,
        lambda: graphc.ones(KEYS[0], 1).sum(),  # in graphc's own code
    ],
    ids=["dict", "list", "sorted", "size"],
)
def test_special_methods_that_c_code_calls_end_one_graph(factor: Any) -> None:
    run = graphc.compile(lambda x: x * factor())
    for _ in range(2):
        assert run(graphc.ones(2)).tolist() == (graphc.ones(2) * factor()).tolist()
    assert run.segments is not None


def test_other_threads_run_on_while_one_records() -> None:
    stop, done = threading.Event(), []

    def work() -> None:
        while not stop.is_set():
            threads = [threading.Thread(target=done.append, args=(1,)) for _ in range(2)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            sorted(range(4), key=lambda n: -n)

    def function(x: Any) -> Any:
        for _ in range(50):
            x = x * 1.01 + 1
        return x

    def record(size: int) -> None:
        run = graphc.compile(function)
        run(graphc.ones(size))
        assert run.segments is None
        recorded.append(size)

    recorded: list[int] = []
    worker = threading.Thread(target=work)
    recorders = [threading.Thread(target=record, args=(size,)) for size in range(2, 6)]
    for thread in (worker, *recorders):
        thread.start()
    for thread in recorders:
        thread.join()
    stop.set()
    worker.join()
    assert sorted(recorded) == [2, 3, 4, 5] and done


@pytest.mark.parametrize("name", ["settrace", "setprofile"])
def test_debuggers_and_profilers_are_no_part_of_a_recording(name: str) -> None:
    noticed: list[str] = []

    def notice(frame: Any, event: str, argument: Any) -> Any:
        noticed.append(event)
        return notice

    def function(x: Any) -> Any:
        for _ in range(3):
            x = graphc.relu(x) + 1
        return x

    run = graphc.compile(function)
    before = getattr(sys, name.replace("set", "get"))()
    getattr(sys, name)(notice)
    try:
        found = [run(graphc.ones(2)).tolist() for _ in range(2)]
    finally:
        getattr(sys, name)(before)
    assert found == [[4, 4]] * 2 and run.segments is None and noticed


def test_graphcs_own_code_is_asked_about_once(monkeypatch: pytest.MonkeyPatch) -> None:
    counted: list[CodeType] = []
    settled = net.is_settled

    def counting(code: CodeType, namespace: dict[str, Any]) -> bool:
        counted.append(code)
        return settled(code, namespace)

    def function(x: Any) -> Any:
        for _ in range(100):
            x = graphc.relu(x) + 1
        return x

    graphc.compile(function)(graphc.ones(2))
    monkeypatch.setattr(net, "is_settled", counting)
    graphc.compile(function)(graphc.ones(2))
    assert len(counted) < 1000, len(counted)  # 3.12 asks once a recording


def test_rewritten_code_does_not_pile_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calls, "_LIMIT", 8)
    monkeypatch.setattr(calls, "_CODES", {})
    for n in range(30):
        space: dict[str, Any] = {}
        exec(f"def scaled(x): return x * {n} + other(x)\ndef other(x): return x", space)
        run = graphc.compile(space["scaled"])
        assert run(graphc.ones(2)).tolist() == [n + 1, n + 1]
        assert run.segments is None
    assert len(calls._CODES) == 8


def test_rewritten_code_is_told_from_other_code() -> None:
    def function(x: Any) -> Any:
        return x + 1

    made = calls.rewritten_code(function.__code__, function.__globals__)
    assert is_rewritten(made) and not is_rewritten(function.__code__)
    assert calls.rewritten_code(function.__code__, function.__globals__) is made


def test_finders_of_imports_are_no_part_of_a_recording(monkeypatch: pytest.MonkeyPatch) -> None:
    """Such as pytest's own: graphc imports parts of itself when they are first asked for."""
    sought = []

    class Finder:
        def find_spec(self, name: str, path: Any = None, target: Any = None) -> None:
            sought.append(name)

    monkeypatch.setattr(sys, "meta_path", [Finder(), *sys.meta_path])
    name = "graphc.signal.windows"
    monkeypatch.delitem(sys.modules, name, raising=False)

    def importing(x: Any) -> Any:
        import graphc.signal.windows  # noqa: F401

        return x + 1

    assert graphc.compile(importing, fullgraph=True)(graphc.ones(2)).tolist() == [2.0, 2.0]
    assert sought[-1] == name
