"""torch.profiler: what ran how often and for how long, from eager operators and named blocks.

Each kernel of a compiled call is an event, with the bytes that it moves, its floating-point
operations, and their shares of what the machine was measured to do; on a GPU it is timed there. On
the CPU compiled code then runs a kernel at a time.
"""

from __future__ import annotations

import enum
import json
import os
import socket
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from types import TracebackType
from typing import Any

from ..cuda.available import is_available
from .events import Event, EventList, Recorder
from .events import record_function as record_function


class ProfilerActivity(enum.Enum):
    """What to watch: the CPU and CUDA are known."""

    CPU = 0
    XPU = 1
    MTIA = 2
    CUDA = 3
    HPU = 4
    PrivateUse1 = 5


class ProfilerAction(enum.Enum):
    """What the profiler does in a step."""

    NONE = 0
    WARMUP = 1
    RECORD = 2
    RECORD_AND_SAVE = 3


def supported_activities() -> set[ProfilerActivity]:
    """The CPU, and GPUs where there are any."""
    return {ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if is_available() else [])}


def schedule(
    *, wait: int, warmup: int, active: int, repeat: int = 0, skip_first: int = 0,
    skip_first_wait: int = 0,
) -> Callable[[int], ProfilerAction]:
    """Cycles of `wait` steps without recording, `warmup` and `active` ones; 0 repeats for ever."""

    def action(step: int) -> ProfilerAction:
        if step < skip_first:
            return ProfilerAction.NONE
        cycle, place = divmod(step - skip_first, wait + warmup + active)
        if repeat and cycle >= repeat:
            return ProfilerAction.NONE
        if place < wait:
            return ProfilerAction.NONE
        if place < wait + warmup:
            return ProfilerAction.WARMUP
        last = place == wait + warmup + active - 1
        return ProfilerAction.RECORD_AND_SAVE if last else ProfilerAction.RECORD

    return action


def tensorboard_trace_handler(
    dir_name: str, worker_name: str | None = None, use_gzip: bool = False
) -> Callable[[profile], None]:
    """An `on_trace_ready` that writes a trace file into a folder."""

    def handle(profiler: profile) -> None:
        os.makedirs(dir_name, exist_ok=True)
        worker = worker_name or f"{socket.gethostname()}_{os.getpid()}"
        name = f"{worker}.{time.time_ns()}.pt.trace.json"
        profiler.export_chrome_trace(str(Path(dir_name, name)))

    return handle


class profile:  # torch spells this class in lower case
    """A context that records; `key_averages().table()` shows, `step()` marks a schedule's steps."""

    def __init__(
        self, *, activities: Iterable[Any] | None = None,
        schedule: Callable[[int], ProfilerAction] | None = None,
        on_trace_ready: Callable[..., Any] | None = None, record_shapes: bool = False,
        profile_memory: bool = False, with_stack: bool = False, with_flops: bool = False,
        with_modules: bool = False, experimental_config: Any = None,
        execution_trace_observer: Any = None, acc_events: bool = False,
        use_cuda: bool | None = None, custom_trace_id_callback: Any = None,
        post_processing_timeout_s: float | None = None,
    ) -> None:
        self.schedule = schedule or (lambda step: ProfilerAction.RECORD)
        self.on_trace_ready = on_trace_ready
        self.step_num = 0
        wanted = supported_activities() if activities is None else set(activities)
        self._recorder = Recorder(
            is_available() and (ProfilerActivity.CUDA in wanted or bool(use_cuda))
        )
        self._scheduled = schedule is not None

    def __enter__(self) -> profile:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def start(self) -> None:
        """Begin."""
        self._follow(ProfilerAction.NONE, self.schedule(self.step_num))

    def stop(self) -> None:
        """End; what was recorded goes to `on_trace_ready`."""
        running = self._recorder.running
        self._recorder.stop()
        if running and self.on_trace_ready is not None:
            self.on_trace_ready(self)

    def step(self) -> None:
        """The next step of the schedule."""
        before = self.schedule(self.step_num)
        self.step_num += 1
        self._follow(before, self.schedule(self.step_num))

    def _follow(self, before: ProfilerAction, now: ProfilerAction) -> None:
        if before is ProfilerAction.RECORD_AND_SAVE:
            self.stop()
        if now in (ProfilerAction.RECORD, ProfilerAction.RECORD_AND_SAVE):
            self._recorder.start()
        else:
            self._recorder.stop()

    def events(self) -> EventList:
        """Every recorded event, in order of its beginning."""
        return EventList(sorted(self._recorder.events, key=lambda event: event.start))

    def key_averages(
        self, group_by_input_shape: bool = False, group_by_stack_n: int = 0,
        group_by_overload_name: bool = False,
    ) -> EventList:
        """One entry per name."""
        return self.events().key_averages()

    def export_chrome_trace(self, path: str) -> None:
        """Write the events as chrome://tracing reads them (JSON, times in microseconds)."""
        rows = [
            {"ph": "X", "name": event.key, "cat": "kernel" if event.device_total else "cpu_op",
             "pid": os.getpid(), "tid": 1 if event.device_total else 0, "ts": event.start * 1e6,
             "dur": (event.total or event.device_total) * 1e6, **_arguments(event)}
            for event in self.events()
        ]
        Path(path).write_text(json.dumps({"traceEvents": rows}))

    def export_stacks(self, path: str, metric: str = "self_cpu_time_total") -> None:
        """Write name and self time in microseconds, one line each: no stacks are kept."""
        lines = [f"{event.key} {round(event.self_total * 1e6)}" for event in self.key_averages()]
        Path(path).write_text("\n".join(lines) + "\n")

    def add_metadata(self, key: str, value: str) -> None:
        """Noted nowhere."""

    add_metadata_json = add_metadata


def _arguments(event: Event) -> dict[str, dict[str, Any]]:
    """What a trace says of a kernel besides its time."""
    work = event.work
    if work is None:
        return {}
    return {"args": {"bytes": work.bytes, "flops": work.flops, "of": work.what}}


__all__ = [
    "Event", "ProfilerAction", "ProfilerActivity", "profile", "record_function", "schedule",
    "supported_activities", "tensorboard_trace_handler",
]


def kineto_available() -> bool:
    """False: PyTorch's native profiler is not here."""
    return False
