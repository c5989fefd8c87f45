"""What every Driver does, by the protocol's words: NVIDIA's, where there is a device, and the
emulator's."""

from __future__ import annotations

import ctypes
import subprocess
import sys
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import pytest

from graphc.backends.cuda import libcuda, nvrtc
from graphc.backends.cuda.driver import (
    DEFAULT_STREAM,
    Attribute,
    Driver,
    Function,
    Graph,
    Launch,
    Module,
    pack,
)
from graphc.backends.cuda.emulator import Toolchain
from graphc.backends.cuda.emulator.driver import EmulatedDriver
from graphc.backends.cuda.errors import CudaError, CudaOutOfMemory
from graphc.backends.cuda.libraries import MissingLibrary
from graphc.backends.cuda.prelude import PRELUDE

from . import needs

TEXT = """
extern "C" __global__ void scale(float* y, const float* x, float by, int n) {
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
    y[i] = by * x[i];
}
extern "C" __global__ void turn(float* x) {
  DYNAMIC_SHARED(bytes);
  float* all = (float*)bytes;
  for (int i = threadIdx.x; i < 16384; i += blockDim.x) all[i] = x[i];
  __syncthreads();
  for (int i = threadIdx.x; i < 16384; i += blockDim.x) x[i] = all[16383 - i];
}
extern "C" __global__ void where(int* x) { x[blockIdx.x] = gridDim.x; }
extern "C" __global__ void outside(float* x) { x[1LL << 40] = 1; }
"""
TURNED = 16384  # floats: 64 KiB, more than a function may have without asking


class Bed(NamedTuple):
    """A driver whose context is current, and TEXT on its device."""

    driver: Driver
    module: Module

    def function(self, name: str) -> Function:
        return self.driver.function(self.module, name)

    def put(self, array: np.ndarray) -> int:
        place = self.driver.allocate(array.nbytes)
        self.driver.copy_in(place, array.ctypes.data, array.nbytes, DEFAULT_STREAM)
        return place

    def get(self, place: int, like: np.ndarray) -> np.ndarray:
        found = np.empty_like(like)
        self.driver.copy_out(found.ctypes.data, place, found.nbytes, DEFAULT_STREAM)
        return found

    def scale(self, y: int, x: int, by: float, n: int) -> Launch:
        return self.driver.prepare(
            self.function("scale"), (3, 1, 1), (128, 1, 1), pack("PPfi", (y, x, by, n))
        )


def device() -> Bed:
    """NVIDIA's driver and the first device."""
    try:
        driver = libcuda.driver()
        made_for = nvrtc.compiler_for(driver.version())
    except (MissingLibrary, CudaError) as missing:
        pytest.skip(str(missing))
    driver.make_current(driver.retain(0))
    text = PRELUDE + TEXT
    cubin = made_for.compile(text, nvrtc.architecture(driver, 0)).cubin
    return Bed(driver, driver.load(cubin))


@pytest.mark.parametrize("architecture", needs.ARCHITECTURES)
def test_its_kernels_compile(architecture: str) -> None:
    """Here, so that a device at hand is not the first to read them."""
    text = PRELUDE + TEXT
    assert needs.compiler().compile(text, architecture).uses.keys() >= {"scale", "turn"}


def emulated(toolchain: Toolchain) -> Bed:
    """The emulator's; nothing happens there before somebody waits."""
    driver = EmulatedDriver(toolchain)
    image = toolchain.compile({"text": TEXT}).path.read_bytes()
    driver.make_current(driver.retain(0))
    return Bed(driver, driver.load(image))


@pytest.fixture(scope="module", params=["device", "emulated"])
def bed(request: pytest.FixtureRequest) -> Iterator[Bed]:
    if request.param == "device":
        made = device()
    else:
        made = emulated(request.getfixturevalue("toolchain"))
    yield made
    made.driver.synchronise()
    made.driver.unload(made.module)


X = np.random.default_rng(0).standard_normal(1000).astype("f4")


def test_devices(bed: Bed) -> None:
    driver = bed.driver
    assert driver.device_count() >= 1 and driver.device_name(0)
    assert driver.attribute(0, Attribute.WARP_SIZE) == 32
    assert driver.attribute(0, Attribute.MULTIPROCESSOR_COUNT) >= 1
    assert driver.attribute(0, Attribute.MAX_THREADS_PER_BLOCK) == 1024
    assert nvrtc.architecture(driver, 0).startswith("sm_")
    free, total = driver.memory()
    assert 0 < free <= total <= driver.device_memory(0)


def test_memory(bed: Bed) -> None:
    driver = bed.driver
    a, b = bed.put(X), bed.put(np.zeros_like(X))
    assert a % 256 == b % 256 == 0
    driver.copy(b, a + 400, 400, DEFAULT_STREAM)
    driver.fill(b, 0x40490FDB, 4, 10, DEFAULT_STREAM)
    driver.fill(b + 40, 0x3F80, 2, 3, DEFAULT_STREAM)
    driver.fill(b + 46, 0x41, 1, 1, DEFAULT_STREAM)
    want = np.zeros_like(X)
    want[:100] = X[100:200]
    want[:10] = np.pi
    want[10:12].view("u2")[:3] = 0x3F80
    want.view("u1")[46] = 0x41
    np.testing.assert_array_equal(bed.get(b, X).view("u4"), want.view("u4"))
    driver.free(a)
    driver.free(b)


def test_launches_take_the_arguments_that_they_have_then(bed: Bed) -> None:
    driver, x, y = bed.driver, bed.put(X), bed.put(X)
    launch = bed.scale(y, x, 2.0, 1000)
    stream = driver.create_stream()
    driver.synchronise()
    driver.launch(launch, stream)
    launch.arguments[16:20] = pack("f", (3.0,))
    launch.arguments[20:24] = pack("i", (500,))
    driver.launch(launch, stream)
    launch.arguments[:8] = pack("P", (0,))  # of no launch
    driver.wait_for_stream(stream)
    assert driver.stream_done(stream)
    want = np.concatenate([3 * X[:500], 2 * X[500:]])
    np.testing.assert_array_equal(bed.get(y, X), want)
    driver.destroy_stream(stream)


def test_a_grid_of_another_size(bed: Bed) -> None:
    places = np.zeros(8, "i4")
    place = bed.put(places)
    launch = bed.driver.prepare(bed.function("where"), (8, 1, 1), (1, 1, 1), pack("P", (place,)))
    bed.driver.launch(launch, DEFAULT_STREAM)
    launch.resize((3, 1, 1))
    bed.driver.launch(launch, DEFAULT_STREAM)
    assert bed.get(place, places).tolist() == [3, 3, 3, 8, 8, 8, 8, 8]


def test_what_a_function_takes(bed: Bed) -> None:
    use = bed.driver.usage(bed.function("scale"))
    assert 0 < use.registers <= 255 and use.max_threads == 1024
    assert use.local_bytes == use.shared_bytes == 0
    assert bed.driver.blocks_at_once(bed.function("scale"), 128) >= 1


def test_shared_memory_is_asked_for(bed: Bed) -> None:
    x = np.arange(TURNED, dtype="f4")
    function, place = bed.function("turn"), bed.put(x)
    words = pack("P", (place,))
    launch = bed.driver.prepare(function, (1, 1, 1), (256, 1, 1), words, 4 * TURNED)
    with pytest.raises(CudaError, match="CUDA_ERROR_INVALID_VALUE"):
        bed.driver.launch(launch, DEFAULT_STREAM)
    bed.driver.allow_shared(function, 4 * TURNED)
    bed.driver.launch(launch, DEFAULT_STREAM)
    np.testing.assert_array_equal(bed.get(place, x), x[::-1])


def test_events(bed: Bed) -> None:
    driver, x, y = bed.driver, bed.put(X), bed.put(X)
    first, second = driver.create_stream(), driver.create_stream(-1)
    start, end = driver.create_event(timing=True), driver.create_event(timing=True)
    driver.synchronise()
    assert driver.event_done(start)
    driver.record(start, first)
    driver.launch(bed.scale(y, x, 2.0, 1000), first)
    driver.record(end, first)
    driver.order(second, end)
    driver.launch(bed.scale(x, y, 2.0, 1000), second)
    driver.wait_for_stream(second)
    driver.wait_for_event(end)
    assert driver.event_done(end) and driver.elapsed(start, end) >= 0
    np.testing.assert_array_equal(bed.get(x, X), 4 * X)
    for event in (start, end):
        driver.destroy_event(event)
    for stream in (first, second):
        driver.destroy_stream(stream)


def test_pinned_memory(bed: Bed) -> None:
    """A device writes to it, and copies to and from it wait for their turn."""
    driver, x = bed.driver, bed.put(X)
    host, stream = driver.allocate_host(X.nbytes), driver.create_stream()
    driver.synchronise()
    driver.launch(bed.scale(driver.device_address(host), x, 2.0, 1000), stream)
    driver.wait_for_stream(stream)
    seen = np.frombuffer((ctypes.c_float * 1000).from_address(host), "f4")
    np.testing.assert_array_equal(seen, 2 * X)
    driver.copy_in(x, host, X.nbytes, stream)
    driver.launch(bed.scale(x, x, 2.0, 1000), stream)
    driver.copy_out(host, x, X.nbytes, stream)
    driver.wait_for_stream(stream)
    np.testing.assert_array_equal(seen, 4 * X)
    driver.free_host(host)


def test_graphs(bed: Bed) -> None:
    driver, x, y = bed.driver, bed.put(X), bed.put(X)
    graph = driver.create_graph()
    launch = bed.scale(y, x, 2.0, 1000)
    first = driver.add_launch(graph, (), launch)
    back = driver.add_copy(graph, (first,), x, y, X.nbytes)
    driver.add_fill(graph, (back,), y, 0, 4, 1000)
    executable = driver.instantiate(graph)
    stream = driver.create_stream()
    driver.synchronise()
    driver.launch_graph(executable, stream)
    driver.launch_graph(executable, stream)
    driver.wait_for_stream(stream)
    np.testing.assert_array_equal(bed.get(x, X), 4 * X)
    assert not bed.get(y, X).any()

    launch.resize((1, 1, 1))
    launch.arguments[16:20] = pack("f", (-1.0,))
    driver.update_launch(executable, first, launch)
    launch.arguments[16:20] = pack("f", (9.0,))  # of no launch
    driver.launch_graph(executable, stream)
    driver.wait_for_stream(stream)
    np.testing.assert_array_equal(bed.get(x, X), -4 * X)
    driver.destroy_graph(graph)
    driver.launch_graph(executable, stream)
    driver.wait_for_stream(stream)
    np.testing.assert_array_equal(bed.get(x, X), 4 * X)
    driver.destroy_executable(executable)


def test_captured_graphs(bed: Bed) -> None:
    """What is captured happens where its graph is launched, and not before."""
    driver, x, y = bed.driver, bed.put(X), bed.put(X)
    stream = driver.create_stream()

    def captured(factor: float) -> Graph:
        driver.begin_capture(stream)
        driver.launch(bed.scale(y, x, factor, 1000), stream)
        driver.copy(x, y, X.nbytes, stream)
        return driver.end_capture(stream)

    inner, graph = captured(3.0), driver.create_graph()
    first = driver.add_launch(graph, (), bed.scale(y, x, 2.0, 1000))
    back = driver.add_copy(graph, (first,), x, y, X.nbytes)
    node = driver.add_graph(graph, (back,), inner)
    driver.add_fill(graph, (node,), y, 0, 4, 1000)
    executable = driver.instantiate(graph)
    driver.destroy_graph(inner)
    driver.wait_for_stream(stream)
    np.testing.assert_array_equal(bed.get(x, X), X)
    driver.launch_graph(executable, stream)
    driver.wait_for_stream(stream)
    np.testing.assert_array_equal(bed.get(x, X), 6 * X)
    assert not bed.get(y, X).any()
    other = captured(0.5)
    driver.update_graph(executable, node, other)
    driver.destroy_graph(other)
    driver.launch_graph(executable, stream)
    driver.wait_for_stream(stream)
    np.testing.assert_array_equal(bed.get(x, X), 6 * X)
    driver.begin_capture(stream)
    driver.fill(y, 0, 4, 1000, stream)
    short = driver.end_capture(stream)
    with pytest.raises(CudaError, match="cuGraphExecChildGraphNodeSetParams"):
        driver.update_graph(executable, node, short)
    driver.launch_graph(executable, stream)
    driver.wait_for_stream(stream)
    np.testing.assert_array_equal(bed.get(x, X), 6 * X)
    driver.destroy_executable(executable)


def test_refusals_leave_the_context_as_it_is(bed: Bed) -> None:
    with pytest.raises(CudaOutOfMemory, match="bytes were asked for"):
        bed.driver.allocate(1 << 46)
    with pytest.raises(CudaError, match="CUDA_ERROR_NOT_FOUND"):
        bed.function("of another name")
    with pytest.raises(ValueError, match="at least 1"):
        bed.driver.prepare(bed.function("scale"), (0, 1, 1), (1, 1, 1), b"")
    place = bed.put(X)
    np.testing.assert_array_equal(bed.get(place, X), X)
    bed.driver.free(place)


LOST = """
from pathlib import Path
from graphc.backends.cuda.driver import DEFAULT_STREAM, pack
from graphc.backends.cuda.emulator import Toolchain
from graphc.backends.cuda.emulator.driver import EmulatedDriver
from graphc.backends.cuda.errors import CudaContextLost
from tests.backends.cuda import test_driver
bed = {bed}
place = bed.driver.allocate(4)
words = pack("P", (place,))
launch = bed.driver.prepare(bed.function("outside"), (1, 1, 1), (1, 1, 1), words)
bed.driver.launch(launch, DEFAULT_STREAM)
for again in range(2):
    try:
        bed.driver.synchronise()
    except CudaContextLost as lost:
        print(lost.name)
"""


def test_an_illegal_address_loses_the_context(bed: Bed, request: pytest.FixtureRequest) -> None:
    """In a process of its own, since it cannot be had back."""
    made = "test_driver.device()"
    if request.node.callspec.params["bed"] == "emulated":
        folder = str(request.getfixturevalue("toolchain").folder)
        made = f"test_driver.emulated(test_driver.Toolchain(Path({folder!r})))"
    script = LOST.format(bed=made)
    result = subprocess.run(
        [sys.executable, "-c", script], cwd=request.config.rootpath, capture_output=True,
        text=True, check=False,
    )
    assert result.stdout.split() == 2 * ["CUDA_ERROR_ILLEGAL_ADDRESS"], result.stderr
