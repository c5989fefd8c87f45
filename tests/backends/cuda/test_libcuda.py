"""NVIDIA's Driver against a libcuda in C that says what it was asked (fake_libcuda.c)."""

import ctypes
import re
import struct
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from graphc.backends.cuda.driver import DEFAULT_STREAM, Attribute, Driver, Memory, Usage, pack
from graphc.backends.cuda.errors import CudaContextLost, CudaError, CudaOutOfMemory
from graphc.backends.cuda.libcuda import LibCuda
from graphc.backends.cuda.libraries import MissingLibrary
from graphc.backends.cuda.nvrtc import architecture

from . import needs


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    source = Path(__file__).with_name("fake_libcuda.c")
    path = tmp_path_factory.mktemp("libcuda") / "libcuda.so"
    needs.compile_c(source, path, "-shared", "-fPIC", f"-I{needs.headers()}")
    return ctypes.CDLL(str(path))


@pytest.fixture
def log(library: ctypes.CDLL) -> Callable[[], list[str]]:
    """What was asked since the last look; handles are named by the call that made them."""
    library.fake_log.restype = ctypes.c_char_p
    library.fake_reset()
    names: dict[str, str] = {}

    def look() -> list[str]:
        lines = library.fake_log().decode().splitlines()
        for line in lines:
            made = re.search(r"^(\w+) .* -> (\w+)$", line)
            if made is not None:
                names.setdefault(made[2], f"<{made[1]}>")
        return [re.sub(r"\b7\w{9}\b", lambda m: names.get(m[0], m[0]), line) for line in lines]

    return look


@pytest.fixture
def driver(library: ctypes.CDLL, log: Callable[[], list[str]]) -> Driver:
    made = LibCuda(library)
    assert log() == ["init 0"]
    library.fake_reset()
    return made


def test_devices(driver: Driver, log: Callable[[], list[str]]) -> None:
    assert driver.version() == (12, 4)
    assert driver.device_count() == 2
    assert driver.device_name(1) == "Fake 71"
    assert driver.device_memory(1) == (140 << 30) + 71
    assert driver.attribute(0, Attribute.MULTIPROCESSOR_COUNT) == 132
    assert driver.attribute(0, Attribute.L2_CACHE_SIZE) == 1038
    assert [architecture(driver, device) for device in (0, 1)] == ["sm_90a", "sm_86"]
    assert driver.memory() == Memory(5 << 32, 9 << 32)
    context = driver.retain(1)
    driver.make_current(context)
    driver.synchronise()
    driver.profile(True)
    driver.profile(False)
    driver.release(1)
    assert context > 1 << 32  # more than an int of C
    assert log() == [
        "retain 71 -> <retain>", "current <retain>", "synchronise", "profile",
        "profile no more", "release 71",
    ]


def test_code_and_launches(driver: Driver, log: Callable[[], list[str]]) -> None:
    module = driver.load(b"\x7fELF-ish\0more")
    function = driver.function(module, "chain_stage0")
    assert driver.usage(function) == Usage(104, 103, 101, 100)
    driver.allow_shared(function, 200 << 10)
    assert driver.blocks_at_once(function, 256, 1 << 16) == 8

    arguments = pack("PiPqfd?", (0x123456789AB, -7, 0xABC, 1 << 40, 0.5, 0.25, True))
    launch = driver.prepare(function, (3, 2, 1), (256, 1, 1), arguments, 1024)
    stream = driver.create_stream(-1)
    driver.launch(launch, stream)
    launch.resize((70000, 1, 1))
    struct.pack_into("P", launch.arguments, 0, 0xDEF)
    driver.launch(launch, DEFAULT_STREAM)
    driver.launch(driver.prepare(function, (1, 1, 1), (1, 1, 1), b""), stream)
    driver.unload(module)

    def words(first: int) -> str:
        layout = struct.pack("<Qi4xQqf4xd?", first, -7, 0xABC, 1 << 40, 0.5, 0.25, True)
        return layout.hex()

    assert log() == [
        "load \x7fELF-ish -> <load>",
        "function chain_stage0 of <load> -> <function>",
        f"function <function> attribute 8 = {200 << 10}",
        "stream flags 1 priority -1 -> <stream>",
        f"launch <function> grid 3,2,1 block 256,1,1 shared 1024 arguments {words(0x123456789AB)} "
        "on <stream>",
        f"launch <function> grid 70000,1,1 block 256,1,1 shared 1024 arguments {words(0xDEF)} on 0",
        "launch <function> grid 1,1,1 block 1,1,1 shared 0 arguments  on <stream>",
        "unload <load>",
    ]


@pytest.mark.parametrize(
    ("grid", "block"),
    [((0, 1, 1), (32, 1, 1)), ((1, 65536, 1), (32, 1, 1)), ((1, 1, 1), (32, 33, 1)),
     ((1, 1, 1), (0, 1, 1))],
)
def test_impossible_launches(
    driver: Driver, grid: tuple[int, int, int], block: tuple[int, int, int]
) -> None:
    function = driver.function(driver.load(b"cubin   "), "k")
    with pytest.raises(ValueError, match="at least 1"):
        driver.prepare(function, grid, block, b"")


def test_memory(driver: Driver, log: Callable[[], list[str]]) -> None:
    numbers = np.arange(10, dtype="f4")
    back = np.zeros_like(numbers)
    size = numbers.nbytes
    a, b, pinned = driver.allocate(size), driver.allocate(size), driver.allocate_host(size)
    assert a > 1 << 32 and driver.device_address(pinned) == pinned
    stream = driver.create_stream()
    driver.copy_in(a, numbers.ctypes.data, size, stream)
    driver.copy(b, a, size, stream)
    driver.fill(b, 0x3F80, 2, 1, stream)
    driver.fill(b + 4, 0x40490FDB, 4, 2, stream)
    driver.fill(b + 12, 0xFF, 1, 3, stream)
    driver.copy_out(back.ctypes.data, b, size, stream)
    want = numbers.copy()
    want[:1].view("u2")[0] = 0x3F80
    want[1:3] = np.pi
    want[3:4].view("u1")[:3] = 0xFF
    np.testing.assert_array_equal(back.view("u4"), want.view("u4"))
    driver.free(a)
    driver.free(b)
    driver.free_host(pinned)
    assert log() == [
        "allocate 40", "allocate 40", "allocate host 40, flags 3",
        "stream flags 1 priority 0 -> <stream>", "copy in 40 on <stream>", "copy 40 on <stream>",
        "fill 1 of 2 on <stream>", "fill 2 of 4 on <stream>", "fill 3 of 1 on <stream>",
        "copy out 40 on <stream>", "free", "free", "free host",
    ]


def test_streams_and_events(
    driver: Driver, log: Callable[[], list[str]], library: ctypes.CDLL
) -> None:
    stream, start, end = driver.create_stream(), driver.create_event(True), driver.create_event()
    driver.record(start, stream)
    driver.order(stream, start)
    driver.wait_for_event(start)
    driver.wait_for_stream(stream)
    assert driver.event_done(start) and driver.stream_done(stream)
    for call, done in (
        ("cuEventQuery", lambda: driver.event_done(start)),
        ("cuStreamQuery", lambda: driver.stream_done(stream)),
    ):
        library.fake_fail(call.encode(), 600)  # CUDA_ERROR_NOT_READY
        assert not done() and done()
        library.fake_fail(call.encode(), 700)
        with pytest.raises(CudaContextLost, match=call):
            done()
    assert driver.elapsed(start, end) == 0.5
    driver.destroy_event(end)
    driver.destroy_stream(stream)
    lines = log()
    assert lines[1].startswith("event flags 0") and lines[2].startswith("event flags 2")
    assert lines[3:] == [
        "record <event> on <stream>", "order <stream> after <event> flags 0",
        "wait for <event>", "wait for <stream>", "destroy event <event>",
        "destroy stream <stream>",
    ]


def test_graphs(driver: Driver, log: Callable[[], list[str]]) -> None:
    driver.make_current(driver.retain(0))
    function = driver.function(driver.load(b"cubin   "), "k")
    a, b = driver.allocate(64), driver.allocate(64)
    driver.fill(a, 7, 4, 16, DEFAULT_STREAM)
    launch = driver.prepare(function, (4, 1, 1), (128, 1, 1), pack("q", (1,)), 64)
    graph = driver.create_graph()
    fill = driver.add_fill(graph, (), a, 5, 1, 3)
    copy = driver.add_copy(graph, (fill,), b, a, 64)
    node = driver.add_launch(graph, (fill, copy), launch)
    driver.add_launch(graph, (), driver.prepare(function, (1, 1, 1), (1, 1, 1), b""))
    executable = driver.instantiate(graph)
    stream = driver.create_stream()
    driver.launch_graph(executable, stream)
    launch.resize((9, 1, 1))
    launch.arguments[:8] = pack("q", (2,))
    driver.update_launch(executable, node, launch)
    driver.launch_graph(executable, stream)
    driver.destroy_graph(graph)
    driver.destroy_executable(executable)
    assert (ctypes.c_uint32 * 2).from_address(b)[:] == [0x00050505, 7]

    def steps(grid: int, argument: int) -> list[str]:
        return [
            "launch graph <instantiate> on <stream>", "  0 after: fill 3 of 1",
            "  1 after 0: copy 64",
            f"  2 after 0 1: <function> grid {grid},1,1 block 128,1,1 shared 64 arguments "
            f"{argument:02}" + 14 * "0",
            "  3 after: <function> grid 1,1,1 block 1,1,1 shared 0 arguments ",
        ]

    lines = log()
    begin = lines.index("graph flags 0 -> <graph>")
    assert lines[begin + 1] == "instantiate <graph> flags 0 -> <instantiate>"
    assert lines[begin + 3:] == [
        *steps(4, 1), *steps(9, 2), "destroy graph <graph>", "destroy executable <instantiate>",
    ]


def test_captured_graphs(driver: Driver, log: Callable[[], list[str]]) -> None:
    driver.make_current(driver.retain(0))
    with pytest.raises(CudaError, match="cuStreamBeginCapture_v2: error 900"):
        driver.begin_capture(DEFAULT_STREAM)
    stream = driver.create_stream()
    graph, found = driver.create_graph(), []
    place = driver.allocate(64)
    fill = driver.add_fill(graph, (), place, 0, 1, 64)
    for _ in range(2):
        driver.begin_capture(stream)
        found.append(driver.end_capture(stream))
    assert found[0] != found[1] and found[0] >> 32
    node = driver.add_graph(graph, (fill,), found[0])
    executable = driver.instantiate(graph)
    driver.launch_graph(executable, stream)
    driver.update_graph(executable, node, found[1])
    driver.launch_graph(executable, stream)
    lines = log()
    assert lines.count("capture <stream> mode 2") == 2
    assert sum(line.startswith("captured <stream> -> ") for line in lines) == 2
    assert lines.count("  1 after 0: graph <captured>") == 2


def test_an_error_names_call_reason_and_cure(driver: Driver, library: ctypes.CDLL) -> None:
    function = driver.function(driver.load(b"cubin   "), "k")
    launch = driver.prepare(function, (1, 1, 1), (1, 1, 1), b"")
    library.fake_fail(b"cuLaunchKernel", 1)
    with pytest.raises(CudaError) as refused:
        driver.launch(launch, DEFAULT_STREAM)
    assert type(refused.value) is CudaError
    assert refused.value.name == "CUDA_ERROR_INVALID_VALUE"
    assert str(refused.value) == "cuLaunchKernel: CUDA_ERROR_INVALID_VALUE (as the fake says)"
    driver.launch(launch, DEFAULT_STREAM)

    library.fake_fail(b"cuGraphLaunch", 12345)  # newer than the driver's names
    with pytest.raises(CudaError, match=r"cuGraphLaunch: error 12345 \(error 12345\)"):
        driver.launch_graph(0, DEFAULT_STREAM)


def test_out_of_memory_goes_on(driver: Driver, library: ctypes.CDLL) -> None:
    library.fake_fail(b"cuMemAlloc", 2)
    with pytest.raises(CudaOutOfMemory, match="Cure: a smaller batch") as refused:
        driver.allocate(1 << 40)
    free, total = driver.memory()
    assert f"{1 << 40:,} bytes were asked for, {free:,} of {total:,} are free" in str(refused.value)
    driver.free(driver.allocate(16))


@pytest.mark.parametrize("call", ["cuStreamSynchronize", "cuMemAlloc", "cuCtxSynchronize"])
def test_a_lost_context_says_so(driver: Driver, library: ctypes.CDLL, call: str) -> None:
    library.fake_fail(call.encode(), 700)
    doings: dict[str, Callable[[], object]] = {
        "cuStreamSynchronize": lambda: driver.wait_for_stream(DEFAULT_STREAM),
        "cuMemAlloc": lambda: driver.allocate(16),
        "cuCtxSynchronize": driver.synchronise,
    }
    with pytest.raises(CudaContextLost) as lost:
        doings[call]()
    text = str(lost.value)
    assert call in text and "CUDA_ERROR_ILLEGAL_ADDRESS" in text
    assert "context is lost" in text and "Cure: start the process anew" in text


def test_no_device_and_an_old_driver(library: ctypes.CDLL) -> None:
    library.fake_fail(b"cuInit", 100)
    with pytest.raises(CudaError, match=r"CUDA_ERROR_NO_DEVICE.*CUDA_VISIBLE_DEVICES"):
        LibCuda(library)
    with pytest.raises(MissingLibrary, match="Cure: install NVIDIA's driver"):
        LibCuda(ctypes.CDLL(None))
