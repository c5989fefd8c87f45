"""Kernels of a GPU in a profile, on an emulated device whose clock counts launches."""

from __future__ import annotations

import ctypes
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import graphc
import graphc as torch
from graphc import backends
from graphc.backends.cuda import ceilings
from graphc.backends.cuda.ceilings import Ceilings
from graphc.backends.cuda.driver import Event, Launch, Stream, Usage, pack
from graphc.backends.cuda.emulator import Toolchain
from graphc.backends.cuda.source import OLDEST, Target
from graphc.profiler import ProfilerActivity, kernels, profile, supported_activities

from . import needs
from .emulated_device import CountingDriver, there

measured = ceilings._measured


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
        self._begin(stream, lambda _: self.seen.__setitem__(event, self.now))
        super().record(event, stream)

    def elapsed(self, start: Event, end: Event) -> float:
        return self.seen[end] - self.seen[start]


@pytest.fixture(scope="module", autouse=True)
def clock(toolchain: Toolchain) -> Iterator[Clock]:
    driver = Clock(toolchain)
    with there(driver), pytest.MonkeyPatch.context() as patch:
        patch.setattr(ceilings, "_measured", lambda *args: None)  # the emulator takes minutes
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
    assert sum(row.get("cat") == "kernel" and row["dur"] == 2000 for row in rows) == launches
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


def test_what_kernels_do_and_how_well(
    clock: Clock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bytes and operations are the Kernel's; shares are of what the device was measured to do."""
    config = graphc.config.current()._replace(cache_dir=tmp_path)
    monkeypatch.setattr(kernels, "current", lambda: config)
    x, w = torch.ones(64, 32, device="cuda"), torch.ones(32, 16, device="cuda")
    function = torch.compile(lambda x, w: ((x @ w).exp(), x.softmax(0)))
    function(x, w)
    with profile(activities=[ProfilerActivity.CUDA]) as profiler:
        function(x, w)
        function(x, w)
    works = {event.key: event for event in profiler.key_averages() if event.work is not None}
    (product,) = [event for key, event in works.items() if key.startswith("product")]
    assert product.bytes == 2 * 4 * (64 * 32 + 32 * 16 + 64 * 16)
    assert product.flops == 2 * (2 * 64 * 32 * 16 + 64 * 16)
    assert product.work is not None and product.work.what.startswith("dot_general_exp ")
    assert __file__ in product.work.what
    assert product.count == 2 and product.work is not None and product.work.seconds == 0.004
    assert sum(event.bytes for event in works.values()) >= product.bytes + 2 * 4 * 2 * 64 * 32
    assert all(event.work.seconds >= 0.004 for event in works.values() if event.work is not None)

    backend: Any = backends.get("cuda")
    backend._most.clear()
    asked: list[object] = []
    found = Ceilings(1e9, 1e9)
    monkeypatch.setattr(ceilings, "_measured", lambda *args: asked.append(args) or found)
    table = profiler.key_averages().table(sort_by="bytes")
    assert "% of copy" in table and f"{product.bytes / 0.004 / 1e9:.1%}" in table
    assert f"{product.flops / 0.004 / 1e9:.1%}" in table
    profiler.key_averages().table()
    assert len(asked) == 1
    backend._most.clear()  # as in another process
    assert backend.ceilings(backends.Host(1, tmp_path, {})) == found and len(asked) == 1
    backend._most.clear()
    assert backend.ceilings(backends.Host(1, None, {})) == found and len(asked) == 2


def test_without_a_clock(toolchain: Toolchain, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is measured; the kernels that would be are right."""
    monkeypatch.setattr(ceilings, "_measured", measured)
    with there(CountingDriver(toolchain)) as backend:
        assert backend.ceilings(backends.Host(1, None, {})) is None
        device, code = backend._device, backend.code
        for target in (OLDEST, Target("sm_90a")):
            source, products = ceilings.source(target)
            _, multiply = code.load([source])[0].functions
            result = device.allocate(4 * 256, device.current_stream())
            launch = device.driver.prepare(
                multiply, (1, 1, 1), (256, 1, 1), pack("Pq", (result.address, 2)), products.shared
            )
            device.driver.launch(launch, device.current_stream())
            device.synchronise()
            found = np.ctypeslib.as_array((ctypes.c_float * 256).from_address(result.address))
            assert np.isfinite(found).all() and (found != 0).all()


@pytest.mark.parametrize("architecture", needs.ARCHITECTURES)
def test_the_kernels_that_measure_compile(architecture: str) -> None:
    source, _ = ceilings.source(Target(architecture))
    uses = needs.compiler().compile(source.text, architecture).uses
    assert sorted(uses) == ["ceiling_copy", "ceiling_products"]
    assert not any(use.spilled for use in uses.values())


def test_explain_names_what_functions_take(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(type(clock), "usage", lambda self, function: Usage(40, 24, 1024, 512))
    function = torch.compile(lambda x, w: (x @ w, w + 1))
    text = str(torch.explain(function, torch.ones(8, 8, device="cuda"), torch.ones(8, 8).cuda()))
    assert re.search(r"at most 40 registers a thread \(\w+\), [\d,]+ bytes of shared", text), text
    assert re.search(r"local memory \(spills\) of a thread: \w+ 24 bytes, \w+ 24 bytes\n", text)
