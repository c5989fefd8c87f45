"""Every thread has to make the device's context its own before it calls the driver: each thing that
a program does, as the first thing that a thread does; on a driver that refuses others."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import graphc as torch
from graphc.backends.cuda.driver import DEFAULT_STREAM
from graphc.backends.cuda.emulator import Toolchain
from graphc.backends.cuda.emulator.driver import EmulatedDriver
from graphc.backends.cuda.errors import CudaError

from .emulated_device import CountingDriver, there


class Things:
    """Made by the main thread, for others to use."""

    def __init__(self) -> None:
        self.x = torch.arange(12.0).reshape(3, 4).to("cuda")
        self.leaf = torch.ones(3, 4, device="cuda", requires_grad=True)
        self.loss = (self.leaf * self.x).sum()
        self.compiled = torch.compile(lambda x: (x * 2).sin().sum(0))
        self.compiled(self.x)
        self.stream, self.event = torch.cuda.Stream(), torch.cuda.Event(enable_timing=True)
        self.event.record()
        self.event.synchronize()
        self.pinned = torch.ones(3, 4).pin_memory()
        with torch.cuda.stream(self.stream):
            self.elsewhere = self.x + 1
        self.elsewhere.record_stream(torch.cuda.current_stream())

    def drop(self) -> None:
        """Memory that another stream used, and pinned memory, end here."""
        self.x.copy_(self.pinned, non_blocking=True)
        del self.elsewhere, self.pinned, self.compiled


def _on_stream(t: Things) -> Any:
    with torch.cuda.stream(t.stream):
        return (t.x * 3).cpu()


WAYS: dict[str, Callable[[Things], Any]] = {
    "to the host": lambda t: t.x.cpu(),
    "a number": lambda t: t.x[1, 2].item(),
    "an operator": lambda t: t.x + 1,
    "to the device": lambda t: torch.ones(3).to("cuda"),
    "a compiled function": lambda t: t.compiled(t.x),
    "compiling": lambda t: torch.compile(lambda x: x.cos() - 3)(t.x),
    "backward": lambda t: t.loss.backward(),
    "another stream": _on_stream,
    "a new stream": lambda t: torch.cuda.Stream(),
    "an event's query": lambda t: t.event.query(),
    "an event's synchronize": lambda t: t.event.synchronize(),
    "an event's record": lambda t: t.event.record(t.stream),
    "a new event": lambda t: torch.cuda.Event().record(),
    "a stream's query": lambda t: t.stream.query(),
    "a stream's synchronize": lambda t: t.stream.synchronize(),
    "streams in order": lambda t: t.stream.wait_stream(torch.cuda.current_stream()),
    "an event's wait": lambda t: t.event.wait(t.stream),
    "elapsed": lambda t: t.event.elapsed_time(t.event),
    "synchronize": lambda t: torch.cuda.synchronize(),
    "empty_cache": lambda t: torch.cuda.empty_cache(),
    "mem_get_info": lambda t: torch.cuda.mem_get_info(),
    "memory_allocated": lambda t: torch.cuda.memory_allocated(),
    "memory_stats": lambda t: torch.cuda.memory_stats(),
    "pinning": lambda t: t.x.cpu().pin_memory(),
    "pinned, first": lambda t: torch.ones(3).pin_memory(),
    "from pinned memory": lambda t: t.pinned.to("cuda", non_blocking=True),
    "what ends": lambda t: t.drop(),
    "in place": lambda t: t.x.add_(1),
    "a view's copy": lambda t: t.x.t().contiguous(),
    "random numbers": lambda t: torch.rand(5, device="cuda"),
    "lending": lambda t: t.x.__dlpack__(stream=1),
    "an array": lambda t: t.x.__cuda_array_interface__["data"],
    "properties": lambda t: torch.cuda.get_device_properties(0).total_memory,
}


@pytest.fixture(scope="module")
def driver(toolchain: Toolchain) -> Iterator[EmulatedDriver]:
    made = CountingDriver(toolchain)
    with there(made):
        yield made


@pytest.mark.parametrize("way", WAYS)
def test_a_thread_begins_with(way: str, driver: EmulatedDriver) -> None:
    things, raised = Things(), list[BaseException]()

    def work() -> None:
        try:
            WAYS[way](things)
        except BaseException as error:
            raised.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert not raised, raised


def test_the_driver_refuses_others(toolchain: Toolchain) -> None:
    driver = EmulatedDriver(toolchain, current=False)
    data = np.ones(4, "f4")
    with pytest.raises(CudaError, match="CUDA_ERROR_INVALID_CONTEXT"):
        driver.allocate(16)
    driver.make_current(driver.retain(0))
    driver.copy_in(driver.allocate(16), data.ctypes.data, 16, DEFAULT_STREAM)
    for allocate in (driver.allocate, driver.allocate_host):
        with pytest.raises(CudaError, match="CUDA_ERROR_INVALID_VALUE"):
            allocate(0)
