"""torch.profiler.profiler: what ran how often and for how long, from eager operators and named
blocks.

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
import warnings
from collections.abc import Callable, Iterable
from pathlib import Path
from types import TracebackType
from typing import Any

from ..cuda.available import is_available
from . import chrome
from .events import Event, EventList
from .recorder import Recorder, Wanted
from .recorder import record_function as record_function


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
    """Cycles of `wait` steps without recording, `warmup` and `active` ones; 0 repeats for ever.
    With `skip_first_wait` the first cycle does not wait."""
    if wait < 0 or warmup < 0 or active <= 0 or repeat < 0 or skip_first < 0:
        raise AssertionError(
            f"Invalid profiler schedule arguments. Got wait={wait} (need >= 0), warmup={warmup} "
            f"(need >= 0), active={active} (need > 0), repeat={repeat} (need >= 0), "
            f"skip_first={skip_first} (need >= 0)."
        )
    if warmup == 0:
        warnings.warn(
            "Profiler won't be using warmup, this can skew profiler results", stacklevel=2
        )

    def action(step: int) -> ProfilerAction:
        if step < 0:
            raise AssertionError(f"Step must be non-negative. Got {step}.")
        if step < skip_first:
            return ProfilerAction.NONE
        at = step - skip_first + (wait if skip_first_wait else 0)
        cycle, place = divmod(at, wait + warmup + active)
        if repeat and cycle >= repeat:
            return ProfilerAction.NONE
        if place < wait:
            return ProfilerAction.NONE
        if place < wait + warmup:
            return ProfilerAction.WARMUP
        last = place == wait + warmup + active - 1
        return ProfilerAction.RECORD_AND_SAVE if last else ProfilerAction.RECORD

    return action


def _default_schedule_fn(step: int) -> ProfilerAction:
    return ProfilerAction.RECORD


def tensorboard_trace_handler(
    dir_name: str, worker_name: str | None = None, use_gzip: bool = False
) -> Callable[[profile], None]:
    """An `on_trace_ready` that writes a trace file into a folder, which TensorBoard reads."""

    def handle(profiler: profile) -> None:
        os.makedirs(dir_name, exist_ok=True)
        worker = worker_name or f"{socket.gethostname()}_{os.getpid()}"
        name = f"{worker}.{time.time_ns()}.pt.trace.json" + ".gz" * use_gzip
        profiler.export_chrome_trace(str(Path(dir_name, name)))

    return handle


class profile:  # torch spells this class in lower case
    """A context that records; `key_averages().table()` shows, `step()` marks a schedule's steps.

    record_shapes: of operators' tensors. profile_memory: bytes of the results that eager operators
    make; what is freed is not counted. with_stack: the user's lines. with_flops: floating-point
    operations of eager operators; those of compiled kernels are always counted.
    """

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
        self.schedule = schedule or _default_schedule_fn
        self.on_trace_ready = on_trace_ready
        self.step_num = 0
        self.current_action = self.schedule(0)  # asked once a step: a schedule may count its calls
        wanted = supported_activities() if activities is None else set(activities)
        self._recorder = Recorder(
            is_available() and (ProfilerActivity.CUDA in wanted or bool(use_cuda)),
            Wanted(record_shapes, with_stack, profile_memory, with_flops),
        )
        self._scheduled = schedule is not None
        self._step: record_function | None = None  # the block of this step
        self._all_cycles, self._before = acc_events, list[Event]()
        self._metadata: dict[str, Any] = {
            name: 1 for name, asked in (
                ("record_shapes", record_shapes), ("profile_memory", profile_memory),
                ("with_stack", with_stack), ("with_flops", with_flops),
                ("with_modules", with_modules),
            ) if asked
        }

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
        self._follow(ProfilerAction.NONE, self.current_action)

    def stop(self) -> None:
        """End; what was recorded goes to `on_trace_ready`."""
        running = self._recorder.running
        self._end_step()
        self._recorder.stop()
        if running and self.on_trace_ready is not None:
            self.on_trace_ready(self)

    def step(self) -> None:
        """The next step of the schedule."""
        self._end_step()
        before, self.step_num = self.current_action, self.step_num + 1
        self.current_action = self.schedule(self.step_num)
        self._follow(before, self.current_action)

    def _follow(self, before: ProfilerAction, now: ProfilerAction) -> None:
        if before is ProfilerAction.RECORD_AND_SAVE:
            self.stop()
        if now in (ProfilerAction.RECORD, ProfilerAction.RECORD_AND_SAVE):
            if self._all_cycles and not self._recorder.running:
                self._before += self._recorder.events
            self._recorder.start()
            if self._scheduled:
                self._step = record_function(f"ProfilerStep#{self.step_num}").__enter__()
        else:
            self._recorder.stop()

    def _end_step(self) -> None:
        if self._step is not None:
            self._step.__exit__(None, None, None)
            self._step = None

    def toggle_collection_dynamic(self, enable: bool, activities: Iterable[Any]) -> None:
        """Leave out what comes now, or go on with it, of all activities."""
        if not enable:
            self._end_step()
            self._recorder.pause()
        elif self.current_action is not ProfilerAction.NONE:
            self._recorder.go_on()

    @property
    def profiler(self) -> profile:
        """What holds the events: itself."""
        return self

    @property
    def function_events(self) -> EventList:
        """Every recorded event."""
        return self.events()

    def events(self) -> EventList:
        """Every recorded event, in order of its beginning."""
        return EventList(
            sorted([*self._before, *self._recorder.events], key=lambda event: event.start),
            self._recorder.wanted.memory,
        )

    def key_averages(
        self, group_by_input_shape: bool = False, group_by_stack_n: int = 0,
        group_by_overload_name: bool = False,
    ) -> EventList:
        """One entry per name; also by the shapes that were recorded, and by so many frames."""
        return self.events().key_averages(group_by_input_shape, group_by_stack_n)

    def export_chrome_trace(self, path: str) -> None:
        """Write the events as chrome://tracing reads them (JSON, times in microseconds);
        compressed where the path ends in .gz."""
        chrome.write(str(path), self.events(), self._metadata)

    def export_stacks(self, path: str, metric: str = "self_cpu_time_total") -> None:
        """Write the recorded stacks and their microseconds, as flame graphs are made of.

        Raises ValueError for another metric than "self_cpu_time_total", "self_cuda_time_total"."""
        self.events().export_stacks(path, metric)

    def add_metadata(self, key: str, value: str) -> None:
        """Text that the trace has."""
        self._metadata[key] = value

    def add_metadata_json(self, key: str, value: str) -> None:
        """JSON that the trace has."""
        self._metadata[key] = json.loads(value)

    preset_metadata_json = add_metadata_json

