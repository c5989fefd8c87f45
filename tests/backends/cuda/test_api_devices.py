"""torch.cuda's devices, streams, events and counters, over an emulated driver."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from types import SimpleNamespace

import numpy as np
import pytest

import graphc as torch
from graphc import backends
from graphc.backends.cuda.device import Gpus
from graphc.backends.cuda.driver import Attribute
from graphc.backends.cuda.emulator import Toolchain
from graphc.backends.cuda.emulator.driver import EmulatedDriver
from graphc.backends.cuda.libraries import MissingLibrary

MB = 1 << 20


class Two(EmulatedDriver):
    """Two devices; what they are asked for happens in one place."""

    def device_count(self) -> int:
        return 2


def backend(find: Callable[[], EmulatedDriver]) -> SimpleNamespace:
    """As much of one as torch.cuda asks."""
    return SimpleNamespace(gpus=Gpus(find))


@pytest.fixture
def driver(toolchain: Toolchain, monkeypatch: pytest.MonkeyPatch) -> Iterator[EmulatedDriver]:
    driver = Two(toolchain, size=256 * MB)
    monkeypatch.setitem(backends._loaded, "cuda", backend(lambda: driver))
    yield driver


def test_nothing_is_asked_of_the_driver_before_it_is_needed(
    toolchain: Toolchain, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver = EmulatedDriver(toolchain)
    made: list[int] = []
    monkeypatch.setattr(driver, "retain", lambda index: made.append(index) or 1)
    monkeypatch.setitem(backends._loaded, "cuda", backend(lambda: driver))
    assert torch.cuda.is_available() and torch.cuda.device_count() == 1
    assert torch.cuda.current_device() == 0 and torch.cuda.memory_allocated() == 0
    assert not torch.cuda.is_initialized() and not made
    torch.cuda.synchronize()
    torch.cuda.synchronize()
    assert torch.cuda.is_initialized() and torch.cuda._initialized and made == [0]


def test_a_forked_process_is_told_to_spawn(driver: EmulatedDriver) -> None:
    torch.cuda.init()
    read, write = os.pipe()
    child = os.fork()
    if not child:
        try:
            torch.cuda.synchronize()
        except RuntimeError as error:
            os.write(write, str(error).encode())
        os._exit(0)
    os.close(write)
    with os.fdopen(read) as said:
        assert "Cannot re-initialize CUDA in forked subprocess" in said.read()
    os.waitpid(child, 0)


def test_no_device_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing() -> EmulatedDriver:
        raise MissingLibrary("libcuda", "install the driver")

    monkeypatch.setitem(backends._loaded, "cuda", backend(missing))
    assert not torch.cuda.is_available() and torch.cuda.device_count() == 0
    assert torch.cuda.memory_stats() == {} and torch.cuda.get_arch_list() == []
    torch.cuda.empty_cache()
    torch.cuda.manual_seed_all(3)
    assert torch.cuda.get_rng_state_all() == []
    for name in ("current_device", "synchronize", "get_device_name", "mem_get_info",
                 "current_stream", "initial_seed", "graph_pool_handle", "cudart"):
        with pytest.raises(
            AssertionError, match=rf"not compiled with CUDA enabled: torch.cuda.{name}\(\) has no "
            r"GPU \(libcuda was not found\)",
        ):
            getattr(torch.cuda, name)()
    for name in ("Stream", "Event", "CUDAGraph"):
        with pytest.raises(RuntimeError, match="requires CUDA support"):
            getattr(torch.cuda, name)()
    with pytest.raises(RuntimeError, match="compiled without CUDA support"), torch.cuda.device(0):
        pass
    with torch.cuda.device(-1), torch.cuda.stream(None):
        pass
    with pytest.raises(TypeError, match=r"type torch.cuda.FloatTensor not available"):
        torch.cuda.FloatTensor(2)


def test_facts(driver: EmulatedDriver) -> None:
    assert torch.cuda.get_device_name() == "emulated"
    assert torch.cuda.get_device_capability("cuda:1") == (9, 0)
    found = torch.cuda.get_device_properties(torch.device("cuda", 0))
    assert found.total_memory == 256 * MB and found.multi_processor_count == driver.attribute(
        0, Attribute.MULTIPROCESSOR_COUNT
    )
    assert "name='emulated', major=9, minor=0, total_memory=256MB" in repr(found)
    assert found.is_integrated == 0 and found.pci_bus_id == driver.attribute(
        0, Attribute.PCI_BUS_ID
    )
    assert torch.cuda.is_bf16_supported() and torch.cuda.get_arch_list() == ["sm_90"]
    assert torch.cuda.mem_get_info() == (256 * MB, 256 * MB)
    with pytest.raises(RuntimeError, match="invalid device ordinal 2: there are 2"):
        torch.cuda.get_device_name(2)
    with pytest.raises(ValueError, match="Expected a cuda device, but got: cpu"):
        torch.cuda.get_device_name("cpu")


def test_the_current_device_is_the_threads(driver: EmulatedDriver) -> None:
    torch.cuda.set_device("cuda:1")
    try:
        assert torch.cuda.current_device() == 1
        with torch.cuda.device(0):
            assert torch.cuda.current_device() == 0
            with torch.cuda.device("cuda:1"):
                assert torch.cuda.current_stream().device == torch.device("cuda:1")
        assert torch.cuda.current_device() == 1
        seen: list[int] = []
        thread = threading.Thread(target=lambda: seen.append(torch.cuda.current_device()))
        thread.start()
        thread.join()
        assert seen == [0]
        torch.cuda.set_device(-1)
        assert torch.cuda.current_device() == 1
    finally:
        torch.cuda.set_device(0)


def test_streams(driver: EmulatedDriver) -> None:
    default = torch.cuda.default_stream()
    assert default.cuda_stream == 0 and torch.cuda.current_stream() == default
    first, second = torch.cuda.Stream(), torch.cuda.Stream(priority=-1)
    assert len({default, first, second, torch.cuda.current_stream()}) == 3
    with torch.cuda.stream(first):
        assert torch.cuda.current_stream() == first
        with second as inner:
            assert torch.cuda.current_stream() == second == inner
        with torch.cuda.stream(None):
            assert torch.cuda.current_stream() == first
        assert torch.cuda.current_stream(1) == torch.cuda.default_stream(1)
    assert torch.cuda.current_stream() == default
    with torch.cuda.stream(torch.cuda.Stream("cuda:1")):
        assert torch.cuda.current_device() == 1
    assert torch.cuda.current_device() == 0
    outside = torch.cuda.ExternalStream(first.cuda_stream)
    assert outside == first and isinstance(outside, torch.cuda.Stream)
    torch.cuda.set_stream(first)
    assert torch.cuda.current_stream() == first
    torch.cuda.set_stream(default)
    handles = {torch.cuda.Stream().cuda_stream for _ in range(100)}
    assert len(handles) == 32 and first.cuda_stream in handles


def test_events_order_streams(driver: EmulatedDriver) -> None:
    """The second stream copies what the first has filled, where it waits for it."""
    for waits in (True, False):
        source, target = driver.allocate(64), driver.allocate(64)
        seen = np.zeros(64, np.uint8)
        first, second = torch.cuda.Stream(), torch.cuda.Stream()
        driver.fill(source, 5, 1, 64, first.cuda_stream)
        assert not first.query()
        if waits:
            second.wait_stream(first)
        driver.copy(target, source, 64, second.cuda_stream)
        driver.copy_out(seen.ctypes.data, target, 64, second.cuda_stream)
        assert (seen == 5).all() == waits and first.query() == waits
        first.synchronize()
        assert first.query()


def test_events(driver: EmulatedDriver) -> None:
    event, later = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    assert event.query() and event.cuda_event == 0
    with pytest.raises(ValueError, match="must be recorded before"):
        event.elapsed_time(later)
    stream = torch.cuda.Stream()
    place = driver.allocate(64)
    event.record(stream)
    driver.fill(place, 1, 4, 4, stream.cuda_stream)
    with torch.cuda.stream(stream):
        later.record()
    assert not later.query()
    with pytest.raises(RuntimeError, match="must be completed before"):
        event.elapsed_time(later)
    later.synchronize()
    assert event.query() and stream.query() and event.elapsed_time(later) == 0.0
    with pytest.raises(ValueError, match="enable_timing=True"):
        torch.cuda.Event().elapsed_time(later)
    with pytest.raises(RuntimeError, match="Event device 0 does not match"):
        event.record(torch.cuda.Stream("cuda:1"))
    with pytest.raises(NotImplementedError, match="interprocess"):
        torch.cuda.Event(interprocess=True)
    assert stream.record_event().device == torch.device("cuda:0")


def test_counters_and_the_limit(driver: EmulatedDriver) -> None:
    gpu = backends.get("cuda").gpus.devices[0]
    block = gpu.allocate(3 * MB, gpu.current_stream())
    assert torch.cuda.memory_allocated() == torch.cuda.max_memory_allocated("cuda") == 3 * MB
    assert torch.cuda.memory_reserved() == 20 * MB and torch.cuda.memory_allocated(1) == 0
    gpu.free(block)
    assert torch.cuda.memory_allocated() == 0 and torch.cuda.max_memory_allocated() == 3 * MB
    torch.cuda.reset_peak_memory_stats()
    assert torch.cuda.max_memory_allocated() == 0 and torch.cuda.max_memory_reserved() == 20 * MB
    stats = torch.cuda.memory_stats()
    assert stats["allocation.all.allocated"] == 1 and stats["num_ooms"] == 0
    summary = torch.cuda.memory_summary()
    assert "| GPU reserved memory   |      20 MiB |" in summary
    assert len({len(line) for line in summary.splitlines()[5:-1]}) == 1
    torch.cuda.empty_cache()
    assert torch.cuda.memory_reserved() == 0 and not driver.pieces
    torch.cuda.set_per_process_memory_fraction(0.125)
    assert torch.cuda.get_per_process_memory_fraction() == 0.125
    with pytest.raises(torch.cuda.OutOfMemoryError, match=r"32.00 MiB allowed"):
        gpu.allocate(40 * MB, gpu.current_stream())
    assert torch.cuda.memory_stats()["num_ooms"] == 1
    with pytest.raises(ValueError, match="Allowed range"):
        torch.cuda.set_per_process_memory_fraction(2)


def test_names_that_only_mark() -> None:
    nvtx = torch.cuda.nvtx
    assert [nvtx.range_push("a"), nvtx.range_push("b"), nvtx.range_pop(), nvtx.range_pop()] == [
        0, 1, 1, 0
    ]
    assert nvtx.range_pop() == -1
    with nvtx.range("c"):
        nvtx.mark("d")

    @nvtx.range("step")
    def step(x: int) -> int:
        return x + 1

    assert step(1) == 2 and step(2) == 3


def test_a_profiler_from_outside_is_told(
    driver: EmulatedDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[bool] = []
    monkeypatch.setattr(driver, "profile", told.append)
    torch.cuda.cudart().cudaProfilerStart()
    torch.cuda.check_error(torch.cuda.cudart().cudaProfilerStop())
    with pytest.raises(KeyError), torch.cuda.profiler.profile():
        assert told == [True, False, True]
        raise KeyError
    assert told == [True, False, True, False]
    with pytest.raises(torch.cuda.CudaError, match="CUDA error 2"):
        torch.cuda.check_error(2)
    assert torch.cuda.cudart().cudaMemGetInfo(1) == torch.cuda.mem_get_info(1)
    with pytest.raises(NotImplementedError, match=r"cudaHostRegister\. Cure: .*cuda-bindings"):
        torch.cuda.cudart().cudaHostRegister(0, 8, 0)


def test_counters_and_modes(driver: EmulatedDriver) -> None:
    nested, flat = torch.cuda.memory_stats_as_nested_dict(), torch.cuda.memory_stats()
    assert nested["allocated_bytes"]["all"]["current"] == flat["allocated_bytes.all.current"]
    assert nested["num_ooms"] == flat["num_ooms"]
    torch.cuda.memory._set_allocator_settings("expandable_segments:True")
    assert torch.cuda.get_allocator_backend() == "native"
    torch.cuda.set_sync_debug_mode("default")
    assert torch.cuda.get_sync_debug_mode() == 0
    with pytest.raises(NotImplementedError, match=r"set_sync_debug_mode.*Cure: torch\.profiler"):
        torch.cuda.set_sync_debug_mode("warn")
    with pytest.raises(ValueError, match="debug_mode"):
        torch.cuda.set_sync_debug_mode(7)
    stream = torch.cuda.Stream()
    assert torch.cuda.get_stream_from_external(stream.cuda_stream) == stream


@pytest.mark.parametrize("name", [
    "utilization", "list_gpu_processes", "memory_snapshot", "memory.memory_snapshot",
    "memory._record_memory_history", "current_blas_handle", "CUDAPluggableAllocator",
    "nccl.version",
])
def test_what_there_is_not_says_what_there_is(driver: EmulatedDriver, name: str) -> None:
    found = torch.cuda
    for part in name.split("."):
        found = getattr(found, part)
    with pytest.raises(NotImplementedError, match=r"graphc does not have torch\.cuda\..*Cure: "):
        found()


def test_captured_graphs_are_refused_with_the_cure(driver: EmulatedDriver) -> None:
    for use in (
        torch.cuda.CUDAGraph, lambda: torch.cuda.graph(None), torch.cuda.graph_pool_handle,
        lambda: torch.cuda.make_graphed_callables(None, ()),
    ):
        with pytest.raises(NotImplementedError, match=r"torch\.cuda\..*Cure: torch.compile"):
            use()
