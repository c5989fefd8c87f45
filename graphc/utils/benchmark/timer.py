"""Timer: executes a statement often enough to say how long it takes."""

from __future__ import annotations

import enum
import textwrap
import time
import timeit
from collections.abc import Callable
from typing import Any, NoReturn

import graphc

from ... import accelerator
from .measurement import Measurement, TaskSpec, set_torch_threads


def timer() -> float:
    """Seconds by the best clock, after the accelerator, if there is one, has done all."""
    if accelerator.is_available():
        accelerator.synchronize()
    return time.perf_counter()


class Language(enum.Enum):
    """Of a Timer's statement."""

    PYTHON = 0
    CPP = 1


class Timer:
    """Times `stmt`, Python source, in which `torch` and `globals` are known; `setup` is executed
    once before. With `num_threads` threads (1) unless told otherwise. `label`, `sub_label`,
    `description` and `env` name the table, row, column and environment in Compare."""

    def __init__(
        self, stmt: str = "pass", setup: str = "pass", global_setup: str = "",
        timer: Callable[[], float] = timer, globals: dict[str, Any] | None = None,
        label: str | None = None, sub_label: str | None = None, description: str | None = None,
        env: str | None = None, num_threads: int = 1, language: Language | str = Language.PYTHON,
    ) -> None:
        if not isinstance(stmt, str):
            raise ValueError("Currently only a `str` stmt is supported.")
        if language not in (Language.PYTHON, "py", "python"):
            if language in (Language.CPP, "cpp", "c++"):
                raise NotImplementedError(
                    "graphc does not have C++ statements of torch.utils.benchmark.Timer, which "
                    "compile against PyTorch's libraries. Cure: time Python statements"
                )
            raise ValueError(f"Invalid language `{language}`.")
        if global_setup:
            raise ValueError(
                f"global_setup is C++ only, got `{global_setup}`. Most likely this code can simply "
                "be moved to `setup`."
            )
        names = {"torch": graphc, **(globals or {})}
        stmt, setup = _plain(stmt), _plain(setup)
        self._timer = timeit.Timer(stmt, setup, timer, names)
        self._task_spec = TaskSpec(
            stmt, setup, global_setup, label, sub_label, description, env, num_threads
        )

    def _timeit(self, number: int) -> float:
        return max(self._timer.timeit(number), 1e-9)

    def _measured(self, number: int, times: list[float]) -> Measurement:
        return Measurement(number, times, self._task_spec)

    def timeit(self, number: int = 1000000) -> Measurement:
        """One run of `number` executions, after a hundredth of them (at least 2) to warm up."""
        with set_torch_threads(self._task_spec.num_threads):
            self._timeit(max(number // 100, 2))
            return self._measured(number, [self._timeit(number)])

    def repeat(self, repeat: int = -1, number: int = -1) -> NoReturn:
        raise NotImplementedError("See `Timer.blocked_autorange.`")

    def autorange(self, callback: Callable[[int, float], NoReturn] | None = None) -> NoReturn:
        raise NotImplementedError("See `Timer.blocked_autorange.`")

    def collect_callgrind(self, *args: Any, **kwargs: Any) -> NoReturn:
        raise NotImplementedError(
            "graphc does not have Timer.collect_callgrind(). Cure: blocked_autorange() for times, "
            "torch.profiler for each kernel's share"
        )

    def _block(self, seconds: float) -> int:
        """How many executions take about a thousandth of the time there is, so that the clock's
        own cost does not count."""
        cost = sorted(timeit.Timer("pass").timeit(0) for _ in range(100))[50]
        number = 1
        while True:
            taken = self._timeit(number)
            if cost / taken <= 1e-4 and taken >= seconds / 1000:
                return number
            if taken > seconds:
                return number
            number *= 10

    def _times(
        self, number: int, done: Callable[[list[float]], bool], at_least: float,
        at_most: float | None, callback: Callable[[int, float], Any] | None,
    ) -> list[float]:
        times: list[float] = []
        total = 0.0
        while total < at_least or not done(times):
            times.append(self._timeit(number))
            total += times[-1]
            if callback is not None:
                callback(number, times[-1])
            if at_most is not None and total > at_most:
                break
        return times

    def blocked_autorange(
        self, callback: Callable[[int, float], Any] | None = None, min_run_time: float = 0.2
    ) -> Measurement:
        """Runs of as many executions as the clock asks for, until they took `min_run_time`
        seconds together."""
        with set_torch_threads(self._task_spec.num_threads):
            number = self._block(min_run_time)
            times = self._times(number, bool, min_run_time, None, callback)
        return self._measured(number, times)

    def adaptive_autorange(
        self, threshold: float = 0.1, *, min_run_time: float = 0.01, max_run_time: float = 10.0,
        callback: Callable[[int, float], Any] | None = None,
    ) -> Measurement:
        """blocked_autorange() that goes on until the quartiles are closer than `threshold` of the
        median, or `max_run_time` seconds are over."""
        with set_torch_threads(self._task_spec.num_threads):
            number = self._block(min_run_time)

            def certain(times: list[float]) -> bool:
                found = self._measured(number, times)
                return len(times) > 3 and found.meets_confidence(threshold)

            times = self._times(number, certain, min_run_time, max_run_time, callback)
        return self._measured(number, times)


def _plain(source: str) -> str:
    """The source without what a triple-quoted string adds: an indent, lines around it."""
    return textwrap.dedent(source.strip("\n")).rstrip() or "pass"
