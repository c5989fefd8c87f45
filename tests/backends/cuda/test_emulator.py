"""The emulated device finds what a GPU would punish: planted bugs, each caught, beside code that is
right."""

import ctypes

import numpy as np
import pytest

from graphc.backends.cuda.driver import DEFAULT_STREAM, Driver, Launch, Stream, pack
from graphc.backends.cuda.emit import emit
from graphc.backends.cuda.errors import CudaContextLost, CudaError, CudaOutOfMemory
from graphc.ir.kernel.text import parse_kernel

from .emulator.driver import EmulatedDriver
from .emulator.module import SCHEDULES, Schedule, build, schedules
from .test_emit import TWO_STAGES

THREADS = 256
HEAD = 'extern "C" __global__ void k(float* x, float* y, int n) {\n'
BODIES = {
    "turn": """
  __shared__ float s[256];
  s[threadIdx.x] = x[blockIdx.x * 256 + threadIdx.x];
  __syncthreads();
  y[blockIdx.x * 256 + threadIdx.x] = s[255 - threadIdx.x];
}""",
    "warp sum": """
  float sum = x[threadIdx.x];
  for (int by = 16; by > 0; by /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, by);
  y[threadIdx.x] = sum;
}""",
    "scale": """
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
    y[i] = 2 * x[i];
}""",
}


class Bench:
    """A device with a kernel, and two arrays."""

    def __init__(
        self, text: str, length: int = THREADS, schedule: Schedule = Schedule()  # noqa: B008
    ) -> None:
        self.driver: Driver = EmulatedDriver(schedule=schedule)
        self.length = length
        self.x = np.random.default_rng(0).standard_normal(length).astype("f4")
        self.y = np.zeros_like(self.x)
        self.function = self.driver.function(self.driver.load(build(HEAD + text)), "k")
        self.places = [self.driver.allocate(self.x.nbytes) for _ in range(2)]
        self.driver.copy_in(self.places[0], self.x.ctypes.data, self.x.nbytes, DEFAULT_STREAM)

    def prepare(self, blocks: int = 1, n: int | None = None) -> Launch:
        words = (*self.places, self.length if n is None else n)
        return self.driver.prepare(
            self.function, (blocks, 1, 1), (THREADS, 1, 1), pack("PPi", words)
        )

    def launch(self, blocks: int = 1, n: int | None = None) -> None:
        self.driver.launch(self.prepare(blocks, n), DEFAULT_STREAM)

    def result(self, stream: Stream = DEFAULT_STREAM) -> np.ndarray:
        self.driver.copy_out(self.y.ctypes.data, self.places[1], self.y.nbytes, stream)
        return self.y


def outcomes(text: str, want: np.ndarray, blocks: int = 1) -> list[str]:
    """The schedules under which a kernel of `turn`'s kind goes wrong."""
    wrong = []
    for schedule in schedules():
        bench = Bench(text, THREADS * blocks, schedule)
        bench.launch(blocks)
        if not np.array_equal(bench.result(), want):
            wrong.append(schedule.name)
    return wrong


def turned(blocks: int) -> np.ndarray:
    x = np.random.default_rng(0).standard_normal(THREADS * blocks).astype("f4")
    return x.reshape(blocks, THREADS)[:, ::-1].reshape(-1)


def test_right_code_is_right_under_every_schedule() -> None:
    assert outcomes(BODIES["turn"], turned(2), 2) == []


def test_a_missing_barrier() -> None:
    """Whoever goes first reads what nobody has written: NaN."""
    text = BODIES["turn"].replace("  __syncthreads();\n", "")
    assert outcomes(text, turned(2), 2) == list(SCHEDULES)


def test_a_wait_for_the_warp_alone() -> None:
    """Rounds through one buffer: only a warp that runs ahead overwrites what others will read."""
    text = """
  __shared__ float s[256];
  float v = x[threadIdx.x];
  for (int round = 0; round < 3; round++) {
    s[threadIdx.x] = v;
    __syncthreads();
    v = s[(threadIdx.x + 64) % 256];
    __syncthreads();
  }
  y[threadIdx.x] = v;
}"""
    want = np.roll(np.random.default_rng(0).standard_normal(THREADS).astype("f4"), -192)
    assert outcomes(text, want) == []
    first, _, last = text.rpartition("__syncthreads();")
    assert outcomes(f"{first}__syncwarp();{last}", want) == ["first ahead", "last ahead"]


def test_the_emitted_tree_needs_its_barriers() -> None:
    """A reduction over the block, as graphc writes it, with one barrier less."""
    kernel = parse_kernel(TWO_STAGES)
    text = emit(kernel).text
    marks = [n for n in range(len(text)) if text.startswith("__syncthreads();", n)]
    inside = text.index("for (unsigned h = blockDim.x / 2")
    cut = next(n for n in marks if n > inside)
    planted = text[:cut] + text[cut + len("__syncthreads();"):]
    driver = EmulatedDriver()
    results = {}
    for name, body in (("right", text), ("planted", planted)):
        a = np.arange(1000, dtype="f4")
        places = [driver.allocate(size) for size in (4000, 40, 4, 8, 32)]
        driver.copy_in(places[0], a.ctypes.data, 4000, DEFAULT_STREAM)
        for stage, blocks in ((0, 10), (1, 1)):
            function = driver.function(
                driver.load(build(body)), f"{emit(kernel).stages[stage].name}"
            )
            launch = driver.prepare(function, (blocks, 1, 1), (THREADS, 1, 1), pack("5P", places))
            driver.launch(launch, DEFAULT_STREAM)
        total = np.zeros(1, "f4")
        driver.copy_out(total.ctypes.data, places[2], 4, DEFAULT_STREAM)
        results[name] = float(total[0])
    assert results["right"] == 499500.0 and results["planted"] != 499500.0


def test_a_barrier_in_divergent_code() -> None:
    bench = Bench("  if (threadIdx.x != 37)\n    __syncthreads();\n  y[0] = 1;\n}")
    bench.launch()
    with pytest.raises(CudaContextLost, match=r"block 0,0,0: .*thread 37,0,0 has ended"):
        bench.driver.synchronise()
    two = "  if (threadIdx.x < 40)\n    __syncthreads();\n  else\n    __syncthreads();\n}"
    bench = Bench(two)
    bench.launch()
    waits = r"thread 0,0,0 {0} \(line 3\), thread 40,0,0 {0} \(line 5\)"
    with pytest.raises(CudaContextLost, match=waits.format("waits for the block")):
        bench.driver.synchronise()


def test_warps() -> None:
    want = np.random.default_rng(0).standard_normal(THREADS).astype("f4").reshape(8, 32)
    for schedule in schedules():
        bench = Bench(BODIES["warp sum"], schedule=schedule)
        bench.launch()
        got = bench.result().reshape(8, 32)
        np.testing.assert_allclose(got, np.repeat(want.sum(1, keepdims=True), 32, 1), rtol=1e-5)
        assert (got == got[:, :1]).all()


def test_a_lane_that_misses_its_warp() -> None:
    bench = Bench("  if (threadIdx.x == 70) return;" + BODIES["warp sum"])
    bench.launch()
    with pytest.raises(CudaContextLost, match=r"waits for its warp"):
        bench.driver.synchronise()


def test_an_address_of_nobody() -> None:
    """The context is lost, and says where."""
    bench = Bench(BODIES["scale"], 1000)
    bench.launch(4, 1 << 20)
    with pytest.raises(CudaContextLost, match=r"ILLEGAL_ADDRESS.*block \d,0,0: thread \d+,0,0"):
        bench.driver.synchronise()
    with pytest.raises(CudaContextLost):
        bench.launch()


def test_one_element_too_many() -> None:
    bench = Bench(BODIES["scale"], 1000)
    bench.launch(4, 1001)
    with pytest.raises(CudaContextLost, match=r"byte 0 behind 4000 bytes"):
        bench.driver.synchronise()


def test_what_was_not_written_is_no_number() -> None:
    bench = Bench(BODIES["scale"], 1000)
    bench.launch(4, 990)
    got = bench.result()
    np.testing.assert_array_equal(got[:990], 2 * bench.x[:990])
    assert np.isnan(got[990:]).all()


def test_streams_are_in_no_order_of_themselves() -> None:
    """An event orders them; without one the second reads what is not there yet."""
    for ordered in (True, False):
        bench = Bench(BODIES["scale"], 1000)
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


def test_pinned_memory_is_read_when_its_turn_comes() -> None:
    for waits in (True, False):
        driver = EmulatedDriver()
        host, device, stream = driver.allocate_host(16), driver.allocate(16), driver.create_stream()
        ctypes.memset(host, 1, 16)
        driver.copy_in(device, host, 16, stream)
        if waits:
            driver.wait_for_stream(stream)
        ctypes.memset(host, 2, 16)
        driver.wait_for_stream(stream)
        assert ctypes.string_at(device, 16) == bytes([1 if waits else 2]) * 16


def test_graphs_have_the_order_of_their_edges() -> None:
    """A chain of scalings through one array; an edge left out, and the result is another."""
    for edges in (True, False):
        bench = Bench(BODIES["scale"], 256)
        driver = bench.driver
        x, y = bench.places
        graph = driver.create_graph()
        first = driver.add_launch(graph, (), bench.prepare())
        again = driver.add_copy(graph, (first,) if edges else (), x, y, 1024)
        driver.add_launch(graph, (again,), bench.prepare())
        executable = driver.instantiate(graph)
        driver.launch_graph(executable, DEFAULT_STREAM)
        assert np.array_equal(bench.result(), 4 * bench.x) == edges


def test_a_node_of_a_graph_is_updated() -> None:
    bench = Bench(BODIES["scale"], 256)
    graph = bench.driver.create_graph()
    node = bench.driver.add_launch(graph, (), bench.prepare())
    executable = bench.driver.instantiate(graph)
    launch = bench.prepare(1, 128)
    bench.driver.update_launch(executable, node, launch)
    launch.arguments[16:20] = pack("i", (64,))  # not seen any more
    bench.driver.launch_graph(executable, DEFAULT_STREAM)
    assert np.isnan(bench.result()[128:]).all() and not np.isnan(bench.y[:128]).any()


def test_memory_has_an_end() -> None:
    driver = EmulatedDriver(size=1 << 20)
    with pytest.raises(CudaOutOfMemory, match="2,097,152 bytes were asked for"):
        driver.allocate(2 << 20)
    place = driver.allocate(1000)
    assert place % 256 == 0
    with pytest.raises(CudaError, match="CUDA_ERROR_INVALID_VALUE"):
        driver.fill(place, 0, 4, 251, DEFAULT_STREAM)
    with pytest.raises(CudaError, match="CUDA_ERROR_NOT_FOUND"):
        driver.function(driver.load(build(HEAD + "}")), "another")
