"""Kernels of a GPU in a profile, on an emulated device whose clock counts launches."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

import graphc as torch
from graphc.backends.cuda.driver import Event, Launch, Stream
from graphc.backends.cuda.emulator import Toolchain
from graphc.profiler import ProfilerActivity, profile, supported_activities

from .emulated_device import CountingDriver, there


class Clock(CountingDriver):
    """Every launch takes 2 milliseconds."""

    def __init__(self, toolchain: Toolchain) -> None:
        super().__init__(toolchain)
        self.now = 0.0
        self.seen: dict[Event, float] = {}

    def launch(self, launch: Launch, stream: Stream) -> None:
        super().launch(launch, stream)
        self._begin(stream, lambda _: self._advance())

    def _advance(self) -> None:
        self.now += 2.0

    def record(self, event: Event, stream: Stream) -> None:
        super().record(event, stream)
        self._begin(stream, lambda _: self.seen.__setitem__(event, self.now))

    def elapsed(self, start: Event, end: Event) -> float:
        return self.seen[end] - self.seen[start]


@pytest.fixture(scope="module", autouse=True)
def clock(toolchain: Toolchain) -> Iterator[Clock]:
    driver = Clock(toolchain)
    with there(driver):
        yield driver


def test_kernels_are_events_with_their_times(clock: Clock, tmp_path: Path) -> None:
    assert supported_activities() == {ProfilerActivity.CPU, ProfilerActivity.CUDA}
    x = torch.ones(64, device="cuda")
    function = torch.compile(lambda x: x.exp().cumsum(0))
    function(x)
    torch.cuda.synchronize()
    before = clock.calls["launch"]
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as profiler:
        for _ in range(3):
            function(x)
            y = x * 2
        graphs = clock.calls["launch_graph"]
    launches = clock.calls["launch"] - before
    kernels = [event for event in profiler.events() if event.device_total]
    assert len(kernels) == launches >= 6 and not graphs
    assert all(event.device_time_total == 2000 for event in kernels)
    assert [event.start for event in kernels] == sorted(event.start for event in kernels)
    sums = profiler.key_averages()
    assert sums.total_average().cuda_time_total == pytest.approx(2000 * launches)
    assert {event.count for event in sums if event.device_total} == {3}
    text = sums.table(sort_by="cuda_time_total", row_limit=20)
    assert "Self CUDA" in text and f"Self CUDA time total: {2.0 * launches:.3f}ms" in text
    assert kernels[0].key in text.splitlines()[3]
    profiler.export_chrome_trace(str(tmp_path / "trace.json"))
    rows = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    assert sum(row["cat"] == "kernel" and row["dur"] == 2000 for row in rows) == launches
    assert y.sum().item() == 128


def test_nothing_is_timed_otherwise(clock: Clock) -> None:
    x = torch.ones(64, device="cuda")
    with profile(activities=[ProfilerActivity.CPU]) as profiler:
        y = x * 2
    assert not any(event.device_total for event in profiler.events())
    assert "CUDA" not in profiler.key_averages().table()
    made = len(clock.seen)
    y = x * 2
    torch.cuda.synchronize()
    assert len(clock.seen) == made and y[0].item() == 2
