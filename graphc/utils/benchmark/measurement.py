"""What a Timer measured: times of runs, their median and spread, and as how many digits count."""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from ... import get_num_threads, set_num_threads

_UNITS = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0}
_ENGLISH = {"ns": "nanosecond", "us": "microsecond", "ms": "millisecond", "s": "second"}
_FINEST = 25e-9  # seconds: below that the clock says nothing
_SPREAD = 0.1  # of the median: what is above is warned of


def select_unit(t: float) -> tuple[str, float]:
    """The unit that shows a time of `t` seconds best, and its length in seconds."""
    unit = "ns" if t <= 0 else list(_UNITS)[min(3, max(0, math.floor(math.log10(t) / 3) + 3))]
    return unit, _UNITS[unit]


def unit_to_english(u: str) -> str:
    """The name of "ns", "us", "ms" or "s"."""
    return _ENGLISH[u]


def trim_sigfig(x: float, n: int) -> float:
    """`x` rounded to `n` significant digits."""
    return float(f"{x:.{n - 1}e}")


def ordered_unique(elements: Iterable[Any]) -> list[Any]:
    """The elements in the order of their first appearance."""
    return list(dict.fromkeys(elements))


@contextmanager
def set_torch_threads(n: int) -> Iterator[None]:
    """Run with `n` threads, and with as many as before afterwards."""
    before = get_num_threads()
    try:
        set_num_threads(n)
        yield
    finally:
        set_num_threads(before)


@dataclass(frozen=True)
class TaskSpec:
    """What was timed, and how it is called in tables."""

    stmt: str
    setup: str
    global_setup: str = ""
    label: str | None = None
    sub_label: str | None = None
    description: str | None = None
    env: str | None = None
    num_threads: int = 1

    @property
    def title(self) -> str:
        """The label, or else the statement, and the sublabel."""
        if self.label is not None:
            return self.label + (f": {self.sub_label}" if self.sub_label else "")
        if "\n" not in self.stmt:
            return self.stmt + (f": {self.sub_label}" if self.sub_label else "")
        kind = f" {self.sub_label}" if self.sub_label else ""
        return f"stmt:{kind}\n{_indented(self.stmt)}"

    def setup_str(self) -> str:
        """The setup as a summary has it."""
        if not self.setup or self.setup == "pass":
            return ""
        one = "\n" not in self.setup
        return f"setup: {self.setup}" if one else f"setup:\n{_indented(self.setup)}"

    def summarize(self) -> str:
        """Title, description and setup, a line each."""
        parts = (self.title, self.description or "", self.setup_str())
        return "\n".join(part for part in parts if part)


def _indented(text: str) -> str:
    return "\n".join(f"  {line}" for line in text.splitlines())


@dataclass(repr=False)
class Measurement:
    """Times of one task: `raw_times` in seconds, each of `number_per_run` executions."""

    number_per_run: int
    raw_times: list[float]
    task_spec: TaskSpec
    metadata: dict[Any, Any] | None = None

    def __getattr__(self, name: str) -> Any:
        if name in TaskSpec.__dataclass_fields__ or name == "title":
            return getattr(self.task_spec, name)
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}", name=name)

    @property
    def times(self) -> list[float]:
        """Seconds of one execution, of each run."""
        return [time / self.number_per_run for time in self.raw_times]

    @property
    def median(self) -> float:
        """Seconds of one execution."""
        return statistics.median(self._some())

    @property
    def mean(self) -> float:
        """Seconds of one execution."""
        return statistics.fmean(self._some())

    def _some(self) -> list[float]:
        if not self.raw_times:
            raise ValueError("the measurement has no times")
        return self.times

    def _quartiles(self) -> tuple[float, float]:
        times = sorted(self._some())
        return _quantile(times, 0.25), _quantile(times, 0.75)

    @property
    def iqr(self) -> float:
        """Seconds between the first and the third quartile."""
        low, high = self._quartiles()
        return high - low

    @property
    def significant_figures(self) -> int:
        """How many digits of the median the spread of the middle half of the times leaves certain
        (a two-sided 90% interval of its mean), 1 to 5."""
        times = sorted(self._some())
        middle = times[len(times) // 4 : math.ceil(3 * len(times) / 4)] or times
        deviation = statistics.stdev(middle) if len(middle) > 1 else 0.0
        interval = max(1.645 * deviation / math.sqrt(len(middle)), _FINEST)
        certain = math.log10(self.median / interval) if self.median > 0 else 0.0
        return min(5, max(1, math.floor(certain)))

    def meets_confidence(self, threshold: float = _SPREAD) -> bool:
        """Whether the quartiles are closer than that share of the median."""
        return self.iqr / self.median < threshold

    @property
    def has_warnings(self) -> bool:
        """Whether the times spread more than the median can stand for."""
        return not self.meets_confidence()

    @property
    def env(self) -> str:
        """The environment it was measured in, as the Timer was told."""
        return "Unspecified env" if self.task_spec.env is None else self.task_spec.env

    @property
    def as_row_name(self) -> str:
        """Its row in tables."""
        return self.task_spec.sub_label or self.task_spec.stmt or "[Unknown]"

    @staticmethod
    def merge(measurements: Iterable[Measurement]) -> list[Measurement]:
        """One measurement for each task, of all runs of it; `number_per_run` becomes 1."""
        grouped: dict[TaskSpec, list[Measurement]] = defaultdict(list)
        for each in measurements:
            grouped[each.task_spec].append(each)
        return [
            Measurement(1, [time for each in group for time in each.times], replace(task))
            for task, group in grouped.items()
        ]

    def __repr__(self) -> str:
        unit, length = select_unit(self.median)
        low, high = self._quartiles()
        lines = [object.__repr__(self), self.task_spec.summarize()]
        if len(self.raw_times) == 1:
            lines.append(f"  {self.median / length:.2f} {unit}")
        else:
            lines.append(f"  {'Median' if len(self.raw_times) > 2 else 'Mean'}: "
                         f"{(self.median if len(self.raw_times) > 2 else self.mean) / length:.2f} "
                         f"{unit}")
            if len(self.raw_times) >= 4:
                lines.append(f"  IQR:    {(high - low) / length:.2f} {unit} "
                             f"({low / length:.2f} to {high / length:.2f})")
        runs, number, threads = len(self.raw_times), self.number_per_run, self.num_threads
        lines.append(
            f"  {runs} measurement{'s' * (runs > 1)}, {number} runs "
            f"{'per measurement' if runs > 1 else ''}, {threads} thread{'s' * (threads > 1)}"
        )
        if len(self.raw_times) >= 4 and self.has_warnings:
            lines.append(
                f"  WARNING: the interquartile range is {self.iqr / self.median:.1%} of the median"
            )
        return "\n".join(lines)


def _quantile(ordered: list[float], share: float) -> float:
    place = share * (len(ordered) - 1)
    below = math.floor(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (place - below)
