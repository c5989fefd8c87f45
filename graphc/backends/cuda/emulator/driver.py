"""A Driver whose device is the emulator. What goes to a stream happens when somebody waits for it,
and not before; memory of the host is read when the protocol says so, no later and no sooner."""

from __future__ import annotations

import ctypes
import itertools
import threading
from collections.abc import Callable, Sequence
from typing import Any

from graphc.backends.cuda.driver import (
    SHARED_DEFAULT,
    Attribute,
    Context,
    Dim3,
    Event,
    Executable,
    Function,
    Graph,
    Launch,
    Memory,
    Module,
    Node,
    Stream,
    Usage,
    check_grid,
)
from graphc.backends.cuda.emulator.contexts import in_context
from graphc.backends.cuda.emulator.launch import EmulatedError, Fault, Library
from graphc.backends.cuda.emulator.schedule import Schedule
from graphc.backends.cuda.emulator.toolchain import Toolchain
from graphc.backends.cuda.errors import error_of
from graphc.backends.cuda.source import SHARED_MOST

ATTRIBUTES = {
    **dict.fromkeys(Attribute, 0),  # it has none: clocks, caches
    Attribute.MAX_THREADS_PER_BLOCK: 1024,
    Attribute.MAX_THREADS_PER_MULTIPROCESSOR: 2048,
    Attribute.WARP_SIZE: 32,
    Attribute.MULTIPROCESSOR_COUNT: 4,
    Attribute.COMPUTE_CAPABILITY_MAJOR: 9,
    Attribute.COMPUTE_CAPABILITY_MINOR: 0,
    Attribute.MAX_SHARED_MEMORY_PER_BLOCK_OPTIN: SHARED_MOST,
}
# What CUDA says of each kind of fault.
ERRORS = {
    Fault.LAUNCH: "CUDA_ERROR_LAUNCH_FAILED",
    Fault.ADDRESS: "CUDA_ERROR_ILLEGAL_ADDRESS",
    Fault.ALIGNMENT: "CUDA_ERROR_MISALIGNED_ADDRESS",
    Fault.HANG: "CUDA_ERROR_LAUNCH_TIMEOUT",
}
POISON = 0xFF  # what new memory is full of: NaN, for every float
Work = Callable[[Schedule], object]


class Prepared:
    """See Launch."""

    def __init__(
        self, kernel: Kernel, grid: Dim3, block: Dim3, arguments: bytes, shared: int
    ) -> None:
        check_grid(grid, block)
        self.kernel, self.grid, self.block, self.shared = kernel, grid, block, shared
        self._packed = bytearray(arguments)
        self.arguments = memoryview(self._packed)

    def resize(self, grid: Dim3) -> None:
        """See Launch."""
        check_grid(grid, self.block)
        self.grid = grid

    def as_it_is(self) -> Work:
        """Runs it under a schedule, with the arguments that it has now."""
        library, name = self.kernel.library, self.kernel.name
        grid, block, packed = self.grid, self.block, bytes(self._packed)
        return lambda schedule: library.run(name, grid, block, packed, self.shared, schedule)


class Kernel:
    """A function of a module; `shared_most`: bytes of shared memory that launches may ask for."""

    def __init__(self, library: Library, name: str) -> None:
        self.library, self.name, self.shared_most = library, name, SHARED_DEFAULT


class Queue:
    """A stream: what was begun and has not happened."""

    def __init__(self) -> None:
        self.work: list[Work] = []
        self.captured: list[Work] | None = None  # instead, while somebody captures
        self.spoilt = False


@in_context
class EmulatedDriver:
    """See Driver. `size`: bytes of the device's memory; `schedule`: of all launches; `current`:
    whether the context is, in the thread that makes this."""

    def __init__(
        self, toolchain: Toolchain, size: int = 1 << 28, schedule: Schedule | None = None,
        current: bool = True,
    ) -> None:
        self.thread = threading.local()
        self.thread.current = current
        self.toolchain, self.size, self.schedule = toolchain, size, schedule or Schedule()
        self.runtime = toolchain.runtime
        self.pieces: dict[int, int] = {}  # address: bytes, of the device
        self.pinned: dict[int, int] = {}  # the same of the host
        self._handles = itertools.count(0x5000000001)
        self._things: dict[int, Any] = {}
        self._streams = {Stream(0): Queue()}
        self._lost: Exception | None = None
        self._turn = threading.RLock()  # whoever waits does what there is to do, one at a time

    def _new(self, thing: Any) -> int:
        handle = next(self._handles)
        self._things[handle] = thing
        return handle

    # devices and contexts

    def version(self) -> tuple[int, int]:
        return (12, 4)

    def device_count(self) -> int:
        return 1

    def device_name(self, device: int) -> str:
        return "emulated"

    def device_memory(self, device: int) -> int:
        return self.size

    def attribute(self, device: int, attribute: Attribute) -> int:
        return ATTRIBUTES[attribute]

    def retain(self, device: int) -> Context:
        return Context(1)

    def release(self, device: int) -> None: ...

    def make_current(self, context: Context) -> None:
        self.thread.current = True

    def synchronise(self) -> None:
        for stream in self._streams:
            self._run(stream, "cuCtxSynchronize")

    def profile(self, on: bool) -> None:
        """Nobody watches."""

    def memory(self) -> Memory:
        return Memory(self.size - sum(self.pieces.values()), self.size)

    # code

    def load(self, cubin: bytes) -> Module:
        """A library that Toolchain.compile made, as bytes of its file."""
        return Module(self._new(self.toolchain.load(cubin)))

    def unload(self, module: Module) -> None:
        del self._things[module]

    def function(self, module: Module, name: str) -> Function:
        library: Library = self._things[module]
        if name not in library.kernels:
            raise error_of("cuModuleGetFunction", "CUDA_ERROR_NOT_FOUND", "named symbol", name)
        return Function(self._new(Kernel(library, name)))

    def usage(self, function: Function) -> Usage:
        return Usage(32, 0, 0, 1024)

    def allow_shared(self, function: Function, size: int) -> None:
        if size > SHARED_MOST:
            raise error_of("cuFuncSetAttribute", "CUDA_ERROR_INVALID_VALUE", f"{size} bytes")
        self._things[function].shared_most = size

    def blocks_at_once(self, function: Function, threads: int, shared: int = 0) -> int:
        return 2048 // threads

    def prepare(
        self, function: Function, grid: Dim3, block: Dim3, arguments: bytes, shared: int = 0
    ) -> Prepared:
        return Prepared(self._things[function], grid, block, arguments, shared)

    def launch(self, launch: Launch, stream: Stream) -> None:
        assert isinstance(launch, Prepared)
        if launch.shared > launch.kernel.shared_most:
            raise error_of(
                "cuLaunchKernel", "CUDA_ERROR_INVALID_VALUE",
                f"{launch.shared} bytes of shared memory, {launch.kernel.shared_most} are allowed",
            )
        self._begin(stream, launch.as_it_is())

    # memory

    def allocate(self, size: int) -> int:
        if size <= 0:
            raise error_of("cuMemAlloc_v2", "CUDA_ERROR_INVALID_VALUE", f"{size} bytes")
        free = self.memory().free
        if size > free:
            detail = f"{size:,} bytes were asked for, {free:,} of {self.size:,} are free"
            raise error_of("cuMemAlloc_v2", "CUDA_ERROR_OUT_OF_MEMORY", "out of memory", detail)
        return self._allocated(self.pieces, size)

    def free(self, address: int) -> None:
        self.synchronise()
        self._freed("cuMemFree_v2", self.pieces, address)

    def allocate_host(self, size: int) -> int:
        if size <= 0:
            raise error_of("cuMemHostAlloc", "CUDA_ERROR_INVALID_VALUE", f"{size} bytes")
        return self._allocated(self.pinned, size)

    def free_host(self, address: int) -> None:
        self.synchronise()
        self._freed("cuMemFreeHost", self.pinned, address)

    def _allocated(self, pieces: dict[int, int], size: int) -> int:
        address = self.runtime.allocate(size)
        ctypes.memset(address, POISON, size)
        pieces[address] = size
        return address

    def _freed(self, call: str, pieces: dict[int, int], address: int) -> None:
        if pieces.pop(address, None) is None:
            raise error_of(call, "CUDA_ERROR_INVALID_VALUE", f"no piece begins at {address:#x}")
        self.runtime.free(address)

    def device_address(self, host: int) -> int:
        return host

    def copy_in(self, target: int, source: int, size: int, stream: Stream) -> None:
        self._inside("cuMemcpyHtoDAsync_v2", target, size)
        if _holds(self.pinned, source, size):
            self._begin(stream, lambda _: _move(target, source, size))
            return
        taken = ctypes.string_at(source, size)  # pageable memory is read at once
        self._begin(stream, lambda _: _move(target, taken, size))

    def copy_out(self, target: int, source: int, size: int, stream: Stream) -> None:
        self._inside("cuMemcpyDtoHAsync_v2", source, size)
        self._begin(stream, lambda _: _move(target, source, size))
        if not _holds(self.pinned, target, size):
            self._run(stream, "cuMemcpyDtoHAsync_v2")

    def copy(self, target: int, source: int, size: int, stream: Stream) -> None:
        self._begin(stream, self._copying(target, source, size))

    def _copying(self, target: int, source: int, size: int) -> Work:
        for address in (target, source):
            self._inside("cuMemcpyDtoDAsync_v2", address, size)
        return lambda _: _move(target, source, size)

    def fill(self, target: int, value: int, width: int, count: int, stream: Stream) -> None:
        self._begin(stream, self._filling(target, value, width, count))

    def _filling(self, target: int, value: int, width: int, count: int) -> Work:
        self._inside(f"cuMemsetD{8 * width}Async", target, width * count)
        pattern = value.to_bytes(8, "little")[:width] * count
        return lambda _: _move(target, pattern, len(pattern))

    def _inside(self, call: str, address: int, size: int) -> None:
        if not (_holds(self.pieces, address, size) or _holds(self.pinned, address, size)):
            raise error_of(call, "CUDA_ERROR_INVALID_VALUE", f"{size} bytes at {address:#x}")

    # streams and events

    def create_stream(self, priority: int = 0) -> Stream:
        stream = Stream(self._new("stream"))
        self._streams[stream] = Queue()
        return stream

    def destroy_stream(self, stream: Stream) -> None:
        self._run(stream, "cuStreamDestroy_v2")
        del self._streams[stream]

    def wait_for_stream(self, stream: Stream) -> None:
        self._run(stream, "cuStreamSynchronize")

    def stream_done(self, stream: Stream) -> bool:
        return not self._streams[stream].work

    def order(self, stream: Stream, event: Event) -> None:
        self._not_captured(stream, "cuStreamWaitEvent")
        self._begin(stream, self._reaching(event))

    def create_event(self, timing: bool = False) -> Event:
        return Event(self._new(Mark()))

    def destroy_event(self, event: Event) -> None:
        self._reaching(event)(self.schedule)

    def record(self, event: Event, stream: Stream) -> None:
        self._not_captured(stream, "cuEventRecord")
        mark: Mark = self._things[event]
        mark.stream, mark.happened = stream, False
        mark.latest += 1
        turn = mark.latest

        def happen(_: Schedule) -> None:
            mark.happened = mark.happened or turn == mark.latest

        self._begin(stream, happen)

    def event_done(self, event: Event) -> bool:
        return bool(self._things[event].happened)

    def wait_for_event(self, event: Event) -> None:
        self._reaching(event)(self.schedule)

    def _reaching(self, event: Event) -> Work:
        """Runs what an event, as it was recorded last, waits for."""
        mark: Mark = self._things[event]

        def reach(_: Schedule) -> None:
            with self._turn:
                while not mark.happened:
                    self._next(mark.stream, "cuEventSynchronize")

        return reach

    def elapsed(self, start: Event, end: Event) -> float:
        return 0.0

    def _begin(self, stream: Stream, work: Work) -> None:
        self._raise("a call")
        queue = self._streams[stream]
        (queue.work if queue.captured is None else queue.captured).append(work)

    def _not_captured(self, stream: Stream, call: str) -> None:
        """Nothing can wait for what does not happen; the capture is over then."""
        queue = self._streams[stream]
        if queue.captured is not None:
            queue.spoilt = True
            raise error_of(call, "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED", "not while capturing")

    def _run(self, stream: Stream, call: str) -> None:
        self._raise(call)
        self._not_captured(stream, call)
        with self._turn:
            while self._streams[stream].work:
                self._next(stream, call)

    def _next(self, stream: Stream, call: str) -> None:
        work = self._streams[stream].work.pop(0)
        try:
            work(self.schedule)
        except EmulatedError as failed:
            name = ERRORS[failed.fault]
            self._lost = error_of(call, name, "an emulated device", str(failed))
            self._raise(call)

    def _raise(self, call: str) -> None:
        if self._lost is not None:
            raise self._lost

    # graphs

    def create_graph(self) -> Graph:
        return Graph(self._new({}))

    def destroy_graph(self, graph: Graph) -> None:
        for handle in (*self._things[graph], graph):
            del self._things[handle]

    def _updated(self, call: str, executable: Executable, node: Node) -> Any:
        """An executable's nodes, of which one is named by a node of a graph that is there."""
        if node not in self._things:
            raise error_of(call, "CUDA_ERROR_INVALID_VALUE", "a node of a destroyed graph")
        return self._things[executable]

    def _add(self, graph: Graph, after: Sequence[Node], work: Work) -> Node:
        nodes: dict[Node, tuple[Sequence[Node], Work]] = self._things[graph]
        assert all(node in nodes for node in after)
        node = Node(self._new("node"))
        nodes[node] = (tuple(after), work)
        return node

    def add_launch(self, graph: Graph, after: Sequence[Node], launch: Launch) -> Node:
        assert isinstance(launch, Prepared)
        return self._add(graph, after, launch.as_it_is())

    def add_copy(
        self, graph: Graph, after: Sequence[Node], target: int, source: int, size: int
    ) -> Node:
        return self._add(graph, after, self._copying(target, source, size))

    def add_fill(
        self, graph: Graph, after: Sequence[Node], target: int, value: int, width: int, count: int
    ) -> Node:
        return self._add(graph, after, self._filling(target, value, width, count))

    def begin_capture(self, stream: Stream) -> None:
        call, queue = "cuStreamBeginCapture_v2", self._streams[stream]
        if stream == Stream(0):
            raise error_of(call, "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED", "the legacy stream")
        if queue.captured is not None:
            raise error_of(call, "CUDA_ERROR_ILLEGAL_STATE", "it is captured already")
        queue.captured, queue.spoilt = [], False

    def end_capture(self, stream: Stream) -> Graph:
        queue = self._streams[stream]
        captured, queue.captured = queue.captured, None
        if captured is None or queue.spoilt:
            name = "ILLEGAL_STATE" if captured is None else "STREAM_CAPTURE_INVALIDATED"
            raise error_of("cuStreamEndCapture", f"CUDA_ERROR_{name}", "no capture")
        graph, after = self.create_graph(), list[Node]()
        for work in captured:
            after = [self._add(graph, after, work)]
        return graph

    def add_graph(self, graph: Graph, after: Sequence[Node], inner: Graph) -> Node:
        return self._add(graph, after, Inner(_late(self._things[inner])))

    def update_graph(self, executable: Executable, node: Node, inner: Graph) -> None:
        nodes = self._updated("cuGraphExecChildGraphNodeSetParams", executable, node)
        after, old = nodes[node]
        made = Inner(_late(self._things[inner]))
        if len(made.works) != len(old.works):
            raise error_of(
                "cuGraphExecChildGraphNodeSetParams", "CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE",
                "other nodes",
            )
        nodes[node] = after, made

    def instantiate(self, graph: Graph) -> Executable:
        return Executable(self._new(dict(self._things[graph])))

    def destroy_executable(self, executable: Executable) -> None:
        del self._things[executable]

    def update_launch(self, executable: Executable, node: Node, launch: Launch) -> None:
        assert isinstance(launch, Prepared)
        nodes = self._updated("cuGraphExecKernelNodeSetParams_v2", executable, node)
        nodes[node] = (nodes[node][0], launch.as_it_is())

    def launch_graph(self, executable: Executable, stream: Stream) -> None:
        for work in _late(self._things[executable]):
            self._begin(stream, work)


class Inner:
    """A graph as a node."""

    def __init__(self, works: list[Work]) -> None:
        self.works = works

    def __call__(self, schedule: Schedule) -> None:
        for work in self.works:
            work(schedule)


class Mark:
    """An event: the stream where it was recorded, how often, and whether the last has happened."""

    def __init__(self) -> None:
        self.stream, self.latest, self.happened = Stream(0), 0, True


def _holds(pieces: dict[int, int], address: int, size: int) -> bool:
    """Whether some bytes are all in one piece."""
    return any(start <= address and address + size <= start + n for start, n in pieces.items())


def _move(target: int, source: int | bytes, size: int) -> None:
    ctypes.memmove(target, source, size)


def _late(nodes: dict[Node, tuple[Sequence[Node], Work]]) -> list[Work]:
    """Nodes as late as their edges allow: one whose edge is missing runs too early, or too late."""
    order: list[Work] = []
    done: set[Node] = set()
    left = dict(nodes)
    while left:
        ready = [node for node, (after, _) in left.items() if done.issuperset(after)]
        node = ready[-1]
        order.append(left.pop(node)[1])
        done.add(node)
    return order
