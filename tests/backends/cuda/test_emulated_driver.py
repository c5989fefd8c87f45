"""The Driver over the emulator: streams, events and graphs happen in their order and no sooner, and
a Program runs as launches, or as one graph."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest

from graphc.backends.cuda.backend import BACKEND
from graphc.backends.cuda.driver import DEFAULT_STREAM, Driver, Launch, Node, Stream, pack
from graphc.backends.cuda.emit import emit
from graphc.backends.cuda.emulator import ALL, Schedule, Toolchain
from graphc.backends.cuda.emulator.driver import EmulatedDriver
from graphc.backends.cuda.errors import CudaContextLost, CudaError, CudaOutOfMemory
from graphc.backends.cuda.machine import GPU
from graphc.backends.cuda.source import SHARED_MOST, batch, grid
from graphc.backends.numpy import TABLE
from graphc.ir import ops
from graphc.ir.dim import evaluate
from graphc.ir.kernel import BufferRef, Program, leaves
from graphc.ir.kernel.interpret import run_program
from graphc.ir.passes.decompose import decompose
from graphc.ir.passes.fuse import fuse
from graphc.ir.passes.lower import lower
from graphc.ir.passes.plan import plan

from ...ir import kernel_cases as cases

THREADS = 256
SCALE = """extern "C" __global__ void k(float* x, float* y, int n) {
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
    y[i] = 2 * x[i];
}
extern "C" __global__ void big(float* y) {
  DYNAMIC_SHARED(shared);
  shared[100000 + threadIdx.x] = 1;
  y[threadIdx.x] = shared[100000 + threadIdx.x];
}
extern "C" __global__ void shifted(float* x, float* y) {
  *(float4*)(y + 1) = *(float4*)x;
}
extern "C" __global__ void stuck() {
  if (threadIdx.x != 37) __syncthreads();
}"""


def image(toolchain: Toolchain, text: str) -> bytes:
    """What a driver loads."""
    return toolchain.compile({"text": text}).path.read_bytes()


class Bench:
    """A device with a kernel, and two arrays."""

    def __init__(self, toolchain: Toolchain, length: int = THREADS) -> None:
        self.driver: Driver = EmulatedDriver(toolchain)
        self.length = length
        self.x = np.random.default_rng(0).standard_normal(length).astype("f4")
        self.y = np.zeros_like(self.x)
        self.module = self.driver.load(image(toolchain, SCALE))
        self.function = self.driver.function(self.module, "k")
        self.places = [self.driver.allocate(self.x.nbytes) for _ in range(2)]
        self.driver.copy_in(self.places[0], self.x.ctypes.data, self.x.nbytes, DEFAULT_STREAM)

    def prepare(self, blocks: int = 1, n: int | None = None) -> Launch:
        words = (*self.places, self.length if n is None else n)
        return self.driver.prepare(
            self.function, (blocks, 1, 1), (THREADS, 1, 1), pack("PPi", words)
        )

    def launch(self, blocks: int = 1, n: int | None = None) -> None:
        self.driver.launch(self.prepare(blocks, n), DEFAULT_STREAM)

    def other(self, name: str, arguments: bytes, shared: int = 0) -> None:
        """Another function, in one block."""
        function = self.driver.function(self.module, name)
        if shared:
            self.driver.allow_shared(function, shared)
        launch = self.driver.prepare(function, (1, 1, 1), (64, 1, 1), arguments, shared)
        self.driver.launch(launch, DEFAULT_STREAM)

    def result(self, stream: Stream = DEFAULT_STREAM) -> np.ndarray:
        self.driver.copy_out(self.y.ctypes.data, self.places[1], self.y.nbytes, stream)
        return self.y


def test_a_fault_loses_the_context_and_says_where(toolchain: Toolchain) -> None:
    bench = Bench(toolchain, 1000)
    bench.launch(4, 1001)
    with pytest.raises(
        CudaContextLost,
        match=r"ILLEGAL_ADDRESS.* k, block \(3, 0, 0\), thread \(232, 0, 0\), text:3: it reads",
    ):
        bench.driver.synchronise()
    with pytest.raises(CudaContextLost):
        bench.launch()
    bench = Bench(toolchain)
    bench.other("shifted", pack("PP", bench.places))
    with pytest.raises(CudaContextLost, match=r"MISALIGNED_ADDRESS.*text:11"):
        bench.driver.synchronise()
    bench = Bench(toolchain)
    bench.other("stuck", b"")
    with pytest.raises(CudaContextLost, match=r"LAUNCH_TIMEOUT.*while thread 37 has left"):
        bench.driver.synchronise()


def test_more_shared_memory_has_to_be_asked_for(toolchain: Toolchain) -> None:
    bench = Bench(toolchain)
    function = bench.driver.function(bench.module, "big")
    launch = bench.driver.prepare(
        function, (1, 1, 1), (64, 1, 1), pack("P", bench.places[:1]), 101000
    )
    with pytest.raises(CudaError, match="101000 bytes of shared memory, 49152 are allowed"):
        bench.driver.launch(launch, DEFAULT_STREAM)
    with pytest.raises(CudaError, match="CUDA_ERROR_INVALID_VALUE"):
        bench.driver.allow_shared(function, SHARED_MOST + 1)
    bench.other("big", pack("P", bench.places[1:]), 101000)
    assert (bench.result()[:64] == 1).all()


def test_what_was_not_written_is_no_number(toolchain: Toolchain) -> None:
    bench = Bench(toolchain, 1000)
    bench.launch(4, 990)
    got = bench.result()
    np.testing.assert_array_equal(got[:990], 2 * bench.x[:990])
    assert np.isnan(got[990:]).all()


def test_streams_are_in_no_order_of_themselves(toolchain: Toolchain) -> None:
    """An event orders them; without one the second reads what is not there yet."""
    for ordered in (True, False):
        bench = Bench(toolchain, 1000)
        driver = bench.driver
        driver.synchronise()
        first, second = driver.create_stream(), driver.create_stream()
        event = driver.create_event()
        driver.launch(bench.prepare(4), first)
        driver.record(event, first)
        assert not driver.event_done(event)
        if ordered:
            driver.order(second, event)
        got = bench.result(second)
        assert np.array_equal(got, 2 * bench.x) == ordered
        assert driver.event_done(event) == ordered


def test_pinned_memory_is_read_when_its_turn_comes(toolchain: Toolchain) -> None:
    for waits in (True, False):
        driver = EmulatedDriver(toolchain)
        host, device, stream = driver.allocate_host(16), driver.allocate(16), driver.create_stream()
        ctypes.memset(host, 1, 16)
        driver.copy_in(device, host, 16, stream)
        if waits:
            driver.wait_for_stream(stream)
        ctypes.memset(host, 2, 16)
        driver.wait_for_stream(stream)
        assert ctypes.string_at(device, 16) == bytes([1 if waits else 2]) * 16


def test_graphs_have_the_order_of_their_edges(toolchain: Toolchain) -> None:
    """A chain of scalings through one array; an edge left out, and the result is another."""
    for edges in (True, False):
        bench = Bench(toolchain, 256)
        driver = bench.driver
        x, y = bench.places
        graph = driver.create_graph()
        first = driver.add_launch(graph, (), bench.prepare())
        again = driver.add_copy(graph, (first,) if edges else (), x, y, 1024)
        driver.add_launch(graph, (again,), bench.prepare())
        executable = driver.instantiate(graph)
        driver.launch_graph(executable, DEFAULT_STREAM)
        assert np.array_equal(bench.result(), 4 * bench.x) == edges


def test_a_node_of_a_graph_is_updated(toolchain: Toolchain) -> None:
    bench = Bench(toolchain, 256)
    graph = bench.driver.create_graph()
    node = bench.driver.add_launch(graph, (), bench.prepare())
    executable = bench.driver.instantiate(graph)
    launch = bench.prepare(1, 128)
    bench.driver.update_launch(executable, node, launch)
    launch.arguments[16:20] = pack("i", (64,))  # not seen any more
    bench.driver.launch_graph(executable, DEFAULT_STREAM)
    assert np.isnan(bench.result()[128:]).all() and not np.isnan(bench.y[:128]).any()
    bench.driver.destroy_graph(graph)
    with pytest.raises(CudaError, match="SetParams_v2: CUDA_ERROR_INVALID_VALUE"):
        bench.driver.update_launch(executable, node, launch)


def test_memory_has_an_end(toolchain: Toolchain) -> None:
    driver = EmulatedDriver(toolchain, size=1 << 20)
    with pytest.raises(CudaOutOfMemory, match="2,097,152 bytes were asked for"):
        driver.allocate(2 << 20)
    place = driver.allocate(1000)
    assert place % 256 == 0
    with pytest.raises(CudaError, match="CUDA_ERROR_INVALID_VALUE"):
        driver.fill(place, 0, 4, 251, DEFAULT_STREAM)
    with pytest.raises(CudaError, match="CUDA_ERROR_NOT_FOUND"):
        driver.function(driver.load(image(toolchain, SCALE)), "another")


class OnDevice:
    """A Program on a device: its buffers there, its launches ready."""

    def __init__(self, program: Program, toolchain: Toolchain, schedule: Schedule) -> None:
        self.program = program
        self.driver = driver = EmulatedDriver(toolchain, schedule=schedule)
        self.spaces = {
            "input": [self.buffer(type_) for type_ in program.input_types],
            "output": [self.buffer(type_) for type_ in program.output_types],
            "arena": [driver.allocate(evaluate(program.arena_bytes, {}) + 64)],
        }
        self.status = driver.allocate(32)
        driver.fill(self.status, 0, 4, 8, DEFAULT_STREAM)
        kernels = cases.kernels(program)
        sources = {id(kernel): emit(kernel) for kernel in kernels}
        module = driver.load(image(toolchain, batch(sources.values())))
        texts = {cases.print_kernel(k, name=False): sources[id(k)] for k in kernels}
        self.launches: list[Launch] = []
        for step in leaves(program.steps):
            source = texts[cases.print_kernel(step.kernel, name=False)]
            places = [self.place(ref) for ref in step.buffers]
            dims = [evaluate(size, {}) for size in step.dims]
            named = dict(zip(step.kernel.dims, dims, strict=True))
            numbers = [*dims, *(evaluate(size, named) for size in source.sizes)]
            kinds = "P" * len(places) + "q" * len(numbers) + "P"
            arguments = [*places, *numbers, self.status]
            if source.scratch:
                kinds += "P"
                arguments.append(driver.allocate(evaluate(source.scratch, named)))
            for stage in source.stages:
                blocks = grid(stage, list(named.items()))
                self.launches.append(driver.prepare(
                    driver.function(module, stage.name), (blocks, 1, 1), (stage.threads, 1, 1),
                    pack(kinds, arguments), stage.shared,
                ))

    def buffer(self, type_: object) -> int:
        assert isinstance(type_, cases.TensorType)
        return self.driver.allocate(int(np.prod(type_.shape)) * type_.dtype.itemsize)

    def place(self, ref: BufferRef) -> int:
        return self.spaces[ref.space][ref.index] + evaluate(ref.offset, {})

    def write(self, index: int, array: np.ndarray) -> None:
        place = self.spaces["input"][index]
        self.driver.copy_in(place, array.ctypes.data, array.nbytes, DEFAULT_STREAM)

    def output(self, index: int, like: np.ndarray) -> np.ndarray:
        found = np.empty_like(like)
        place = self.spaces["output"][index]
        self.driver.copy_out(found.ctypes.data, place, found.nbytes, DEFAULT_STREAM)
        return found


def classifier() -> Program:
    """A few kernels of loops: a product, a softmax, sums."""
    def function(x, w, b):
        y = ops.relu(cases.dot(x, w) + b)
        p = ops.softmax(y, dim=1)
        return p, cases.total(ops.square(p - y), (0,))

    graph = decompose(cases.build(function, (9, 40), (30, 40), (30,)))
    fused = fuse(graph, GPU)
    return plan(fused, lower(fused, GPU, BACKEND.renders), GPU)


@pytest.mark.parametrize("schedule", (ALL[1], ALL[8], Schedule(watch=True)), ids=str)
def test_a_program_as_launches_and_as_a_graph(schedule: Schedule, toolchain: Toolchain) -> None:
    program = classifier()
    assert len(program.steps) > 2
    rng = np.random.default_rng(0)
    inputs = [
        [rng.standard_normal(type_.shape).astype("f4") for type_ in program.input_types]
        for _ in range(3)
    ]
    wants = [run_program(program, each, TABLE) for each in inputs]
    device = OnDevice(program, toolchain, schedule)
    driver = device.driver

    def check(number: int) -> None:
        for index, want in enumerate(wants[number]):
            np.testing.assert_allclose(device.output(index, want), want, rtol=1e-4, atol=1e-5)

    def feed(number: int) -> None:
        for index, array in enumerate(inputs[number]):
            device.write(index, array)

    feed(0)
    for launch in device.launches:
        driver.launch(launch, DEFAULT_STREAM)
    check(0)

    graph = driver.create_graph()
    nodes: list[Node] = []
    for launch in device.launches:
        nodes.append(driver.add_launch(graph, nodes[-1:], launch))
    executable = driver.instantiate(graph)
    feed(1)
    driver.launch_graph(executable, DEFAULT_STREAM)
    check(1)

    # another buffer for the first input: its nodes are updated, the others stay
    moved = driver.allocate(inputs[2][0].nbytes)
    old, new = (pack("P", (place,)) for place in (device.spaces["input"][0], moved))
    device.spaces["input"][0] = moved
    updated = 0
    for node, launch in zip(nodes, device.launches, strict=True):
        packed = bytes(launch.arguments)
        if old in packed:
            launch.arguments[:] = packed.replace(old, new)
            driver.update_launch(executable, node, launch)
            updated += 1
    assert 0 < updated < len(nodes)
    feed(2)
    driver.launch_graph(executable, DEFAULT_STREAM)
    check(2)
