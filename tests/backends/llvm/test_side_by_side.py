"""Compiling on several cores: the same objects, in order, and the first error."""

import random
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

import pytest

import graphc
from graphc.backends.host import cpus
from graphc.backends.llvm import compile_program
from graphc.backends.llvm import side_by_side as module
from graphc.backends.llvm.jit import LLVMError, compile_object
from graphc.backends.llvm.side_by_side import side_by_side
from graphc.backends.llvm.target import host_target


@pytest.fixture(autouse=True)
def cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_at_hand", lambda: 4)


def text(number: int) -> str:
    steps = "\n".join(f"  %v{i + 1} = fmul <16 x float> %v{i}, %v{i}" for i in range(number))
    return f"""
define void @f(ptr %p) {{
  %v0 = load <16 x float>, ptr %p
{steps}
  store <16 x float> %v{number}, ptr %p
  ret void
}}"""


def test_objects_are_those_of_one_thread() -> None:
    texts = [text(number) for number in range(1, 60)]
    alone = [compile_object(each, host_target()) for each in texts]
    for _ in range(3):
        made = side_by_side([
            lambda each=each: compile_object(each, host_target()) for each in texts  # type: ignore[misc]
        ])
        assert made == alone


def test_several_at_a_time() -> None:
    barrier = threading.Barrier(4, timeout=20)
    assert side_by_side([lambda i=i: (barrier.wait(), i)[1] for i in range(4)]) == [0, 1, 2, 3]  # type: ignore[misc]
    assert side_by_side([]) == []


def test_the_cpus_are_counted_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """As long as starting a thread four times over, twice in each compilation."""
    monkeypatch.undo()
    jobs = [lambda: 1, lambda: 2]
    side_by_side(jobs)
    monkeypatch.delattr(cpus, "_lines")
    assert side_by_side(jobs) == [1, 2]


def test_the_first_error_is_raised() -> None:
    done: list[int] = []

    def job(number: int) -> int:
        if number in (3, 5):
            compile_object("define nonsense", host_target())
        time.sleep(0.002)
        done.append(number)
        return number

    with pytest.raises(LLVMError, match="nonsense"):
        side_by_side([lambda i=i: job(i) for i in range(100)])  # type: ignore[misc]
    assert len(done) < 20


def test_sources_are_read_before_threads_begin(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hundreds of files, each of which would wait for the GIL."""
    order: list[str] = []

    def began(jobs: Sequence[Callable[[], Any]], *most: int) -> list[Any]:
        order.append("threads")
        return side_by_side(jobs, *most)

    monkeypatch.setattr(compile_program, "source_digest", lambda: order.append("sources"))
    monkeypatch.setattr(compile_program, "side_by_side", began)
    compiled = graphc.compile(lambda x: x * 2.75 + 0.3125, dynamic=False)
    assert compiled(graphc.full((3, 5), 4.0)).sum().item() == 15 * 11.3125
    assert order[:2] == ["sources", "threads"]


def test_no_thread_begins_for_what_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    """A thread that begins takes the GIL, for 5 ms where it computes."""
    begun: list[int] = []

    class Thread(threading.Thread):
        def start(self) -> None:
            begun.append(1)
            super().start()

    def run() -> list[float]:
        compiled = graphc.compile(lambda x: (x * number + 0.8125).sum(0), dynamic=False)
        return compiled(graphc.full((3, 5), 4.0)).tolist()

    number = 2.0 + random.SystemRandom().random()  # in no cache, whatever tests before have seeded
    monkeypatch.setattr(module, "_at_hand", lambda: 2)
    first = run()
    monkeypatch.setattr(module.threading, "Thread", Thread)
    assert run() == first and not begun
    number += 0.5
    assert run() != first and begun
