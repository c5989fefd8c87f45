"""The device that a stage runs on: NVIDIA's, or, in a rehearsal, the emulator's."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from graphc.backends.cuda import libcuda, nvrtc
from graphc.backends.cuda.driver import DEFAULT_STREAM, Driver, Function, Launch, Stream
from graphc.backends.cuda.prelude import PRELUDE
from graphc.backends.cuda.source import OLDEST, Target


@dataclass(frozen=True)
class Bed:
    """A driver whose context is current. `large`: sizes that fill a GPU; a rehearsal has small
    ones. `compile`: CUDA C (behind the prelude) to what `Driver.load` takes; `device`: in it,
    tensors may lie on "cuda". `seconds`: that the stage has left, as it begins."""

    driver: Driver
    name: str
    compile: Callable[[str], bytes]
    target: Target
    large: bool
    device: Callable[[], AbstractContextManager[object]]
    seconds: float = 60.0

    def functions(self, text: str, *names: str) -> Mapping[str, Function]:
        """Kernels of a text."""
        module = self.driver.load(self.compile(text))
        return {name: self.driver.function(module, name) for name in names}

    def put(self, array: np.ndarray) -> int:
        """A copy of an array, on the device."""
        place = self.driver.allocate(max(array.nbytes, 1))  # of nothing there is no memory
        self.driver.copy_in(place, array.ctypes.data, array.nbytes, DEFAULT_STREAM)
        return place

    def get(self, place: int, like: np.ndarray) -> np.ndarray:
        """What lies on the device, as an array like another."""
        found = np.empty_like(like)
        self.driver.copy_out(found.ctypes.data, place, found.nbytes, DEFAULT_STREAM)
        return found

    def milliseconds(
        self, begin: Callable[[Stream], object], repeat: int = 20, warm: int = 3
    ) -> tuple[float, float, float]:
        """The least, the median and the most of what a piece of work takes on the device."""
        driver = self.driver
        stream = driver.create_stream()
        first, last = driver.create_event(timing=True), driver.create_event(timing=True)
        times = []
        for turn in range(warm + repeat):
            driver.record(first, stream)
            begin(stream)
            driver.record(last, stream)
            driver.wait_for_event(last)
            if turn >= warm:
                times.append(driver.elapsed(first, last))
        for event in (first, last):
            driver.destroy_event(event)
        driver.destroy_stream(stream)
        times.sort()
        return times[0], times[len(times) // 2], times[-1]

    def microseconds_of_host(self, begin: Callable[[], object], count: int) -> float:
        """What the host needs to begin a piece of work, which it does not wait for."""
        begin()
        self.driver.synchronise()
        start = time.perf_counter()
        for _ in range(count):
            begin()
        elapsed = time.perf_counter() - start
        self.driver.synchronise()
        return elapsed / count * 1e6

    def begin(self, launch: Launch) -> Callable[[Stream], None]:
        """A launch, for `milliseconds`."""
        return lambda stream: self.driver.launch(launch, stream)


def nvidia() -> Bed:
    """The first GPU. Raises MissingLibrary or CudaError, with the cure."""
    driver = libcuda.driver()
    compiler = nvrtc.compiler_for(driver.version())
    driver.make_current(driver.retain(0))
    architecture = nvrtc.architecture(driver, 0)
    return Bed(
        driver, driver.device_name(0),
        lambda text: compiler.compile(PRELUDE + text, architecture).cubin,
        Target(architecture), large=True, device=nullcontext,
    )


def emulated() -> Bed:
    """The emulator, which needs a C++ compiler."""
    from graphc.backends.cuda.emulator import Toolchain
    from graphc.backends.cuda.emulator.driver import EmulatedDriver
    from tests.backends.cuda.emulated_device import registered

    toolchain = Toolchain(Path(tempfile.mkdtemp(prefix="graphc-emulator-")))
    driver = EmulatedDriver(toolchain)
    return Bed(
        driver, "emulated", lambda text: toolchain.compile({"text": text}).path.read_bytes(),
        OLDEST, large=False, device=lambda: registered(toolchain),
    )


def poison(bed: Bed, place: int, size: int) -> None:
    """Fills bytes with what is no number."""
    bed.driver.fill(place, 0xFF, 1, size, DEFAULT_STREAM)


def difference(found: np.ndarray, want: np.ndarray) -> float:
    """||found - want|| / ||want||; infinity where something is no number."""
    found, want = found.astype("f8"), want.astype("f8")
    if not np.isfinite(found).all():
        return float("inf")
    return float(np.linalg.norm(found - want) / max(np.linalg.norm(want), 1e-30))
