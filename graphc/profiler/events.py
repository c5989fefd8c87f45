"""Recording of named blocks and eager operators, and the table of their times."""

from __future__ import annotations

import functools
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Any, ClassVar

from ..backends.host.watched import Steps
from ..frontend.decorated import within
from ..frontend.placement import wrap_runners
from ..ir.kernel import Launch, Leaf
from .kernels import TITLES, Kernels, Work, cost_of, said


@dataclass
class Event:
    """One run of an operator or block, or the sum of several. Times are seconds."""

    key: str
    start: float = 0.0
    total: float = 0.0
    self_total: float = 0.0  # without what ran inside
    count: int = 1
    device_total: float = 0.0  # of a kernel on a GPU, which no block of the host includes
    work: Work | None = None  # that the kernel had to do

    @property
    def name(self) -> str:
        """The name of the operator or block."""
        return self.key

    @property
    def cpu_time_total(self) -> float:
        """Microseconds."""
        return self.total * 1e6

    @property
    def self_cpu_time_total(self) -> float:
        """Microseconds without what ran inside."""
        return self.self_total * 1e6

    @property
    def cpu_time(self) -> float:
        """Microseconds of one run."""
        return self.cpu_time_total / self.count

    @property
    def device_time_total(self) -> float:
        """Microseconds on a GPU."""
        return self.device_total * 1e6

    self_device_time_total = cuda_time_total = self_cuda_time_total = device_time_total

    @property
    def device_time(self) -> float:
        """Microseconds of one run on a GPU."""
        return self.device_time_total / self.count

    cuda_time = device_time

    @property
    def flops(self) -> int:
        """Floating-point operations of compiled kernels."""
        return self.work.flops if self.work is not None else 0

    @property
    def bytes(self) -> int:
        """That compiled kernels have to read and write."""
        return self.work.bytes if self.work is not None else 0


class EventList(list[Event]):
    """Events, and their table."""

    def __init__(self, events: Iterable[Event] = ()) -> None:
        super().__init__(events)

    @property
    def self_cpu_time_total(self) -> float:
        """Microseconds of all together."""
        return sum(event.self_cpu_time_total for event in self)

    def key_averages(self, *args: Any, **options: Any) -> EventList:
        """One entry per name."""
        sums: dict[str, Event] = {}
        for event in self:
            into = sums.setdefault(event.key, Event(event.key, event.start, count=0))
            into.total += event.total
            into.self_total += event.self_total
            into.device_total += event.device_total
            into.count += event.count
            if event.work is not None:
                into.work = event.work if into.work is None else into.work.and_(event.work)
        return EventList(sums.values())

    def total_average(self) -> Event:
        """The sum of all."""
        total = sum(event.self_total for event in self)
        return Event(
            "Total", total=total, self_total=total, count=sum(e.count for e in self),
            device_total=sum(event.device_total for event in self),
        )

    def table(
        self, sort_by: str | None = None, row_limit: int = 100, max_src_column_width: int = 75,
        max_name_column_width: int = 55, max_shapes_column_width: int = 80,
        header: str | None = None, top_level_events_only: bool = False, **options: Any,
    ) -> str:
        """The times as text, longest first where `sort_by` names one."""
        rows = list(self)
        if sort_by is not None:
            rows.sort(key=lambda event: -float(getattr(event, sort_by, 0.0)))
        rows = rows[:row_limit] if row_limit >= 0 else rows
        whole = sum(event.self_total for event in self) or 1.0
        device = sum(event.device_total for event in self)
        works = any(event.work is not None for event in rows)
        titles = (
            "Name", "Self CPU %", "Self CPU", "CPU total %", "CPU total", "CPU time avg",
            *(("Self CUDA", "Self CUDA %", "CUDA time avg") if device else ()), "# of Calls",
            *(TITLES if works else ()),
        )
        cells = [
            (event.key[:max_name_column_width], f"{event.self_total / whole:.2%}",
             _text(event.self_total), f"{event.total / whole:.2%}", _text(event.total),
             _text(event.total / event.count),
             *((_text(event.device_total), f"{event.device_total / device:.2%}",
                _text(event.device_total / event.count)) if device else ()), str(event.count),
             *(said(event.work) if works else ()))
            for event in rows
        ]
        widths = [max(map(len, column)) for column in zip(titles, *cells, strict=True)]
        rule = "  ".join("-" * width for width in widths)
        lines = [header] if header else []
        lines += [rule, _row(titles, widths), rule, *(_row(cell, widths) for cell in cells), rule]
        own = sum(event.self_total for event in self)
        lines.append(f"Self CPU time total: {_text(own)}")
        lines += [f"Self CUDA time total: {_text(device)}"] if device else []
        return "\n".join([*lines, ""])

    __str__ = table


def _row(cells: Iterable[str], widths: list[int]) -> str:
    return "  ".join(cell.rjust(width) for cell, width in zip(cells, widths, strict=True))


def _text(seconds: float) -> str:
    if seconds >= 1:
        return f"{seconds:.3f}s"
    return f"{seconds * 1e3:.3f}ms" if seconds >= 1e-3 else f"{seconds * 1e6:.3f}us"


class _Open(threading.local):
    """The time spent inside the blocks that are open, innermost last."""

    def __init__(self) -> None:
        self.inside: list[float] = []


_open = _Open()
_recorders: list[Recorder] = []


class Recorder:
    """Collects events while it runs. An operator of a device whose queue runs behind is timed until
    it has been queued; `on_gpus`: its kernels are events, too."""

    def __init__(self, on_gpus: bool = False) -> None:
        self.events: list[Event] = []
        self.running = False
        self._on_gpus = on_gpus
        self._kernels: Kernels | None = None

    def start(self) -> None:
        """From here on every eager operator and named block is an event."""
        if self.running:
            return
        self.running = True
        if not _recorders:
            _Watch.end = staticmethod(wrap_runners(_timed))
            Steps.watch = _Step
        _recorders.append(self)
        self._kernels = Kernels() if self._on_gpus else None

    def stop(self) -> None:
        """Stop collecting."""
        if not self.running:
            return
        self.running = False
        _recorders.remove(self)
        if self._kernels is not None:
            self.events += [
                Event(ran.name, ran.began, device_total=ran.seconds, work=ran.work)
                for ran in self._kernels.end()
            ]
        if not _recorders:
            _Watch.end()
            Steps.watch = None
            _Step.known.clear()


class _Watch:
    end: Callable[[], None]  # the runners are timed until then


def _timed(run: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(run)
    def timed(op: Any, *args: Any) -> Any:
        with _Block(f"aten::{getattr(op, 'name', op)}"):
            return run(op, *args)

    return timed


class _Block:
    """A span of time that becomes an event of every running recorder."""

    work: Work | None = None

    def __init__(self, key: str) -> None:
        self.key = key

    def __enter__(self) -> _Block:
        _open.inside.append(0.0)
        self.started = time.perf_counter()
        return self

    def __exit__(self, *exception: Any) -> None:
        total = time.perf_counter() - self.started
        inside = _open.inside.pop()
        if _open.inside:
            _open.inside[-1] += total
        for recorder in _recorders:
            recorder.events.append(
                Event(self.key, self.started, total, total - inside, work=self.work)
            )


class _Step(_Block):
    """A step of compiled code on the CPU."""

    # what is known of the steps that ran, until the last recorder stops
    known: ClassVar[dict[tuple[Any, ...], tuple[Leaf, Work]]] = {}

    def __init__(self, step: Leaf, dims: Mapping[str, int]) -> None:
        super().__init__(f"graphc::{step.kernel.name if isinstance(step, Launch) else step.op}")
        key = id(step), *dims.values()
        if key not in self.known:
            cost = cost_of(step, dims)
            ops = step.ops if isinstance(step, Launch) else (step.op,)
            what = " ".join((" ".join(dict.fromkeys(ops)), *step.locs[:1]))
            self.known[key] = step, Work(cost.read + cost.written, cost.flops, 0.0, None, what)
        self._work = self.known[key][1]

    def __exit__(self, *exception: Any) -> None:
        self.work = self._work._replace(seconds=time.perf_counter() - self.started)
        super().__exit__(*exception)


class record_function:  # torch spells this class in lower case
    """A named block in a profile: a context manager, and a decorator."""

    def __init__(self, name: str, args: str | None = None) -> None:
        self.name, self.args = name, args
        self._blocks: list[_Block] = []

    def __enter__(self) -> record_function:
        self._blocks.append(_Block(self.name).__enter__())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._blocks.pop().__exit__()

    def __call__(self, function: Callable[..., Any]) -> Callable[..., Any]:
        return within(function, functools.partial(record_function, self.name))
