"""What was recorded, and the table of it."""

from __future__ import annotations

import builtins
import enum
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from .kernels import TITLES, Work, said

METRICS = ("self_cpu_time_total", "self_cuda_time_total")  # that stacks are written with


class DeviceType(enum.Enum):
    """Where an event ran."""

    CPU = 0
    CUDA = 1


class Interval(NamedTuple):
    """Microseconds."""

    start: float
    end: float

    def elapsed_us(self) -> float:
        """How long it is."""
        return self.end - self.start


@dataclass(eq=False)
class Event:
    """One run of an operator or block, or the sum of several. Times are seconds.

    What was asked to be recorded: `input_shapes`, of an operator's tensors (their text in a sum);
    `stack`, the user's frames as "file(line): function", the innermost first; `allocated`, the
    bytes of the results that operators made.
    """

    key: str
    start: float = 0.0
    total: float = 0.0
    self_total: float = 0.0  # without what ran inside
    count: int = 1
    device_total: float = 0.0  # of a kernel on a GPU, which no block of the host includes
    work: Work | None = None  # that the kernel had to do
    thread: int = 0
    input_shapes: Any = field(default_factory=list)
    stack: tuple[str, ...] = ()
    allocated: int = 0
    self_allocated: int = 0
    counted_flops: int = 0  # of an eager operator
    is_user_annotation: bool = False
    cpu_parent: Event | None = field(default=None, repr=False)
    cpu_children: list[Event] = field(default_factory=list, repr=False)

    @property
    def name(self) -> str:
        """The name of the operator or block."""
        return self.key

    @property
    def device_type(self) -> DeviceType:
        """A GPU's where it is a kernel that ran there."""
        return DeviceType.CUDA if self.device_total else DeviceType.CPU

    @property
    def time_range(self) -> Interval:
        """When it began and ended, in microseconds."""
        return Interval(self.start * 1e6, (self.start + (self.total or self.device_total)) * 1e6)

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
    def cpu_time_str(self) -> str:
        """The time of one run, as text."""
        return time_text(self.total / self.count)

    @property
    def cpu_time_total_str(self) -> str:
        """The time as text."""
        return time_text(self.total)

    @property
    def self_cpu_time_total_str(self) -> str:
        """The time without what ran inside, as text."""
        return time_text(self.self_total)

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
    def cpu_memory_usage(self) -> int:
        """Bytes of the results that were made."""
        return self.allocated

    @property
    def self_cpu_memory_usage(self) -> int:
        """Bytes of the results that were made, not by what ran inside."""
        return self.self_allocated

    @property
    def device_memory_usage(self) -> int:
        """0: a GPU's memory is counted as a whole (`torch.cuda.memory_stats()`)."""
        return 0

    self_device_memory_usage = device_memory_usage

    # of one run in this process, on the CPU: what scripts may ask besides
    is_async = is_legacy = is_remote = False
    use_device = trace_name = None
    overload_name = ""
    scope = device_index = node_id = 0
    sequence_nr = fwd_thread = -1

    @property
    def id(self) -> int:
        """A number of its own."""
        return builtins.id(self)

    @property
    def kernels(self) -> list[Any]:
        """Of a GPU, that it has begun: they are events of their own."""
        return []

    @property
    def flops(self) -> int:
        """Floating-point operations: of compiled kernels, and of eager operators where they were
        to be counted."""
        return self.counted_flops + (self.work.flops if self.work is not None else 0)

    @property
    def bytes(self) -> int:
        """That compiled kernels have to read and write."""
        return self.work.bytes if self.work is not None else 0


class EventList(list[Event]):
    """Events, and their table. `memory`: whether their memory was recorded."""

    def __init__(self, events: Iterable[Event] = (), memory: bool = False) -> None:
        super().__init__(events)
        self.memory = memory

    @property
    def self_cpu_time_total(self) -> float:
        """Microseconds of all together."""
        return sum(event.self_cpu_time_total for event in self)

    def key_averages(
        self, group_by_input_shapes: bool = False, group_by_stack_n: int = 0,
        group_by_overload_name: bool = False,
    ) -> EventList:
        """One entry per name; also by what the recorded shapes are, and by so many frames."""
        sums: dict[tuple[str, ...], Event] = {}
        for event in self:
            name = "ProfilerStep*" if event.key.startswith("ProfilerStep#") else event.key
            shapes = str(event.input_shapes) if group_by_input_shapes else ""
            stack = event.stack[:group_by_stack_n]
            into = sums.get((name, shapes, *stack))
            if into is None:
                into = sums[name, shapes, *stack] = Event(
                    name, event.start, count=0, input_shapes=shapes, stack=stack,
                    is_user_annotation=event.is_user_annotation,
                )
            _add(into, event)
        return EventList(sums.values(), self.memory)

    def total_average(self) -> Event:
        """The sum of all."""
        total = Event("Total", count=0)
        for event in self:
            _add(total, event)
        total.total, total.allocated = total.self_total, total.self_allocated
        return total

    def export_stacks(self, path: str, metric: str) -> None:
        """Write a line for each event that has a stack: its frames, the outermost first, between
        semicolons, and the microseconds of `metric`, as flame graphs are made of."""
        if metric not in METRICS:
            raise ValueError(f"metric should be one of: {list(METRICS)}, got {metric!r}")
        in_a_word = str.maketrans(" ;\t\n", "____")
        with open(path, "w") as file:
            for event in self:
                spent = int(getattr(event, metric))
                if event.stack and spent > 0:
                    frames = ";".join(frame.translate(in_a_word) for frame in event.stack[::-1])
                    file.write(f"{frames} {spent}\n")

    def table(
        self, sort_by: str | None = None, row_limit: int = 100, max_src_column_width: int = 75,
        max_name_column_width: int = 55, max_shapes_column_width: int = 80,
        header: str | None = None, top_level_events_only: bool = False, **options: Any,
    ) -> str:
        """The times as text, longest first where `sort_by` names one.

        Raises AttributeError if events have no such number."""
        rows = [event for event in self if not top_level_events_only or event.cpu_parent is None]
        if sort_by is not None:
            wanted = sort_by.replace("cuda_memory", "device_memory").replace("xpu", "device")
            rows.sort(key=lambda event: -float(getattr(event, wanted)))
        rows = rows[:row_limit] if row_limit >= 0 else rows
        whole = sum(event.self_total for event in self) or 1.0
        device = sum(event.device_total for event in self)
        columns = _columns(rows, whole, device, self.memory, max_name_column_width)
        if any(event.input_shapes for event in rows):
            columns["Input Shapes"] = [
                str(event.input_shapes or [])[:max_shapes_column_width] for event in rows
            ]
        if any(event.stack for event in rows):
            columns["Source Location"] = [
                event.stack[0][-max_src_column_width:] if event.stack else "" for event in rows
            ]
        widths = [max(map(len, (title, *cells))) for title, cells in columns.items()]
        rule = "  ".join("-" * width for width in widths)
        lines = ["=" * len(rule), header] if header else []
        lines += [rule, _row(columns, widths), rule]
        for number, event in enumerate(rows):
            lines.append(_row([cells[number] for cells in columns.values()], widths))
            rest = event.stack[1:]
            for frame in (*rest, "") if rest else ():  # the last column is that of frames
                cells = [""] * (len(widths) - 1) + [frame[-max_src_column_width:]]
                lines.append(_row(cells, widths).rstrip())
        lines += [rule, f"Self CPU time total: {time_text(sum(e.self_total for e in self))}"]
        lines += [f"Self CUDA time total: {time_text(device)}"] if device else []
        return "\n".join([*lines, ""])

    __str__ = table


def _add(into: Event, event: Event) -> None:
    into.total += event.total
    into.self_total += event.self_total
    into.device_total += event.device_total
    into.count += event.count
    into.allocated += event.allocated
    into.self_allocated += event.self_allocated
    into.counted_flops += event.counted_flops
    if event.work is not None:
        into.work = event.work if into.work is None else into.work.and_(event.work)


def _columns(
    rows: list[Event], whole: float, device: float, memory: bool, width: int
) -> dict[str, list[str]]:
    """The cells of each title."""
    columns = {
        "Name": [event.key[:width] for event in rows],
        "Self CPU %": [f"{event.self_total / whole:.2%}" for event in rows],
        "Self CPU": [time_text(event.self_total) for event in rows],
        "CPU total %": [f"{event.total / whole:.2%}" for event in rows],
        "CPU total": [time_text(event.total) for event in rows],
        "CPU time avg": [time_text(event.total / event.count) for event in rows],
    }
    if device:
        columns["Self CUDA"] = [time_text(event.device_total) for event in rows]
        columns["Self CUDA %"] = [f"{event.device_total / device:.2%}" for event in rows]
        columns["CUDA time avg"] = [time_text(e.device_total / e.count) for e in rows]
    if memory:
        columns["CPU Mem"] = [memory_text(event.allocated) for event in rows]
        columns["Self CPU Mem"] = [memory_text(event.self_allocated) for event in rows]
    columns["# of Calls"] = [str(event.count) for event in rows]
    if any(event.counted_flops for event in rows):
        columns["Total FLOPs"] = [str(event.flops) if event.flops else "--" for event in rows]
    if any(event.work is not None for event in rows):
        works = [said(event.work) for event in rows]
        columns |= {title: [work[i] for work in works] for i, title in enumerate(TITLES)}
    return columns


def _row(cells: Iterable[str], widths: list[int]) -> str:
    return "  ".join(cell.rjust(width) for cell, width in zip(cells, widths, strict=True))


def time_text(seconds: float) -> str:
    """In torch's words."""
    if seconds >= 1:
        return f"{seconds:.3f}s"
    return f"{seconds * 1e3:.3f}ms" if seconds >= 1e-3 else f"{seconds * 1e6:.3f}us"


def memory_text(size: int) -> str:
    """In torch's words."""
    for unit, name in ((1 << 30, "GB"), (1 << 20, "MB"), (1 << 10, "KB")):
        if abs(size) >= unit:
            return f"{size / unit:.2f} {name}"
    return f"{size} B"
