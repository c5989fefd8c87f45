"""What graphc asks of a CUDA driver. Handles, addresses and sizes are integers, so that one on an
emulated device is a Driver, too; `libcuda.py` is NVIDIA's.

Every call may raise CudaError, or one of its kinds. What goes to a stream has only begun when a
call returns, and an error of it may be raised by any later call.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from enum import IntEnum
from typing import NamedTuple, NewType, Protocol

Context = NewType("Context", int)
Module = NewType("Module", int)
Function = NewType("Function", int)
Stream = NewType("Stream", int)
Event = NewType("Event", int)
Graph = NewType("Graph", int)
Node = NewType("Node", int)
Executable = NewType("Executable", int)  # a graph that is ready to be launched
Dim3 = tuple[int, int, int]

DEFAULT_STREAM = Stream(0)  # CUDA's legacy stream: it waits for others and cannot be captured
GRID_LIMITS: Dim3 = (2**31 - 1, 65535, 65535)
SHARED_DEFAULT = 48 << 10  # bytes of shared memory that a function may use without asking


class Attribute(IntEnum):
    """Of a device; cuda.h's CU_DEVICE_ATTRIBUTE_ names and numbers."""

    MAX_THREADS_PER_BLOCK = 1
    WARP_SIZE = 10
    MAX_REGISTERS_PER_BLOCK = 12
    CLOCK_RATE = 13  # kHz
    MULTIPROCESSOR_COUNT = 16
    INTEGRATED = 18
    PCI_BUS_ID = 33
    PCI_DEVICE_ID = 34
    MEMORY_CLOCK_RATE = 36  # kHz
    GLOBAL_MEMORY_BUS_WIDTH = 37  # bits
    L2_CACHE_SIZE = 38
    MAX_THREADS_PER_MULTIPROCESSOR = 39
    PCI_DOMAIN_ID = 50
    COMPUTE_CAPABILITY_MAJOR = 75
    COMPUTE_CAPABILITY_MINOR = 76
    MAX_SHARED_MEMORY_PER_MULTIPROCESSOR = 81
    MAX_REGISTERS_PER_MULTIPROCESSOR = 82
    MULTI_GPU_BOARD = 84
    MAX_SHARED_MEMORY_PER_BLOCK_OPTIN = 97
    MAX_BLOCKS_PER_MULTIPROCESSOR = 106
    RESERVED_SHARED_MEMORY_PER_BLOCK = 111


class Usage(NamedTuple):
    """What a function takes of a multiprocessor: per thread registers and bytes of local memory
    (spills lie there, too), per block bytes of static shared memory and threads at most."""

    registers: int
    local_bytes: int
    shared_bytes: int
    max_threads: int


class Memory(NamedTuple):
    """Bytes of a device."""

    free: int
    total: int


class Launch(Protocol):
    """A launch that is ready: made once by Driver.prepare, sent often."""

    @property
    def arguments(self) -> memoryview:
        """Its packed arguments; what is written here, the next launch has."""

    def resize(self, grid: Dim3) -> None:
        """Other numbers of blocks from now on."""


class Driver(Protocol):
    """One process's driver."""

    # devices and contexts

    def version(self) -> tuple[int, int]:
        """The newest CUDA that it runs: (12, 4)."""

    def device_count(self) -> int:
        """How many devices the process may use."""

    def device_name(self, device: int) -> str:
        """"NVIDIA H200" """

    def device_memory(self, device: int) -> int:
        """Bytes in all."""

    def attribute(self, device: int, attribute: Attribute) -> int:
        """A number of the device."""

    def retain(self, device: int) -> Context:
        """The device's primary context, which CuPy and PyTorch share; `release` lets it go."""

    def release(self, device: int) -> None:
        """One `retain` less."""

    def make_current(self, context: Context) -> None:
        """This thread's calls are about that context from now on."""

    def synchronise(self) -> None:
        """Waits for all that was begun in the current context."""

    def profile(self, on: bool) -> None:
        """A profiler that watches this process (Nsight's, with --capture-range=cudaProfilerApi)
        records from now on, or no more. Without one nothing happens."""

    def memory(self) -> Memory:
        """Of the current context's device."""

    # code

    def load(self, cubin: bytes) -> Module:
        """Machine code, on the device."""

    def unload(self, module: Module) -> None:
        """Its functions are gone."""

    def function(self, module: Module, name: str) -> Function:
        """A kernel by its name."""

    def usage(self, function: Function) -> Usage:
        """What a launch of it takes."""

    def allow_shared(self, function: Function, size: int) -> None:
        """Lets launches ask for so many bytes of dynamic shared memory; needed above
        SHARED_DEFAULT."""

    def blocks_at_once(self, function: Function, threads: int, shared: int = 0) -> int:
        """Blocks of so many threads, and bytes of dynamic shared memory, that one multiprocessor
        holds."""

    def prepare(
        self, function: Function, grid: Dim3, block: Dim3, arguments: bytes, shared: int = 0
    ) -> Launch:
        """A launch of `pack`ed arguments. Raises ValueError for an impossible grid."""

    def launch(self, launch: Launch, stream: Stream) -> None:
        """Begins it; its arguments are read before this returns."""

    # memory

    def allocate(self, size: int) -> int:
        """The address of new memory on the current device, aligned to 256 bytes. Raises
        CudaOutOfMemory."""

    def free(self, address: int) -> None:
        """Waits for the device, then gives memory back."""

    def allocate_host(self, size: int) -> int:
        """The address of pinned memory, for every context; devices address it, too
        (`device_address`)."""

    def free_host(self, address: int) -> None:
        """Gives pinned memory back."""

    def device_address(self, host: int) -> int:
        """Where the current device sees pinned memory."""

    def copy_in(self, target: int, source: int, size: int, stream: Stream) -> None:
        """From the host to the device. Pinned memory must stay as it is until this has happened;
        pageable memory is read before the call returns."""

    def copy_out(self, target: int, source: int, size: int, stream: Stream) -> None:
        """From the device to the host: into pinned memory later, else before the call returns."""

    def copy(self, target: int, source: int, size: int, stream: Stream) -> None:
        """Within the device."""

    def fill(self, target: int, value: int, width: int, count: int, stream: Stream) -> None:
        """`count` elements of `width` bytes (1, 2 or 4)."""

    # streams and events

    def create_stream(self, priority: int = 0) -> Stream:
        """One that does not wait for the default stream; lower numbers come first."""

    def destroy_stream(self, stream: Stream) -> None:
        """What was begun on it still happens."""

    def wait_for_stream(self, stream: Stream) -> None:
        """The host waits for all that was begun on it."""

    def stream_done(self, stream: Stream) -> bool:
        """Whether all of it has happened."""

    def order(self, stream: Stream, event: Event) -> None:
        """What comes next on a stream waits for an event; the host does not."""

    def create_event(self, timing: bool = False) -> Event:
        """One that has happened; with `timing`, `elapsed` may be asked."""

    def destroy_event(self, event: Event) -> None:
        """Whoever waits for it still does."""

    def record(self, event: Event, stream: Stream) -> None:
        """It happens when all that was begun on the stream has."""

    def event_done(self, event: Event) -> bool:
        """Whether it has happened."""

    def wait_for_event(self, event: Event) -> None:
        """The host waits until it has happened."""

    def elapsed(self, start: Event, end: Event) -> float:
        """Milliseconds between two events with timing that have happened."""

    # graphs

    def create_graph(self) -> Graph:
        """An empty one."""

    def destroy_graph(self, graph: Graph) -> None:
        """Its executables stay, as they are: its nodes, by which they are updated, end with it."""

    def add_launch(self, graph: Graph, after: Sequence[Node], launch: Launch) -> Node:
        """A launch with the arguments that it has now, once the nodes `after` have run."""

    def add_copy(
        self, graph: Graph, after: Sequence[Node], target: int, source: int, size: int
    ) -> Node:
        """A copy within the device, or between it and pinned memory."""

    def add_fill(
        self, graph: Graph, after: Sequence[Node], target: int, value: int, width: int, count: int
    ) -> Node:
        """As `fill`."""

    def begin_capture(self, stream: Stream) -> None:
        """What goes to a stream from now on, and it is not the default one, becomes a graph instead
        of happening. Nobody may wait for that stream meanwhile."""

    def end_capture(self, stream: Stream) -> Graph:
        """What was captured."""

    def add_graph(self, graph: Graph, after: Sequence[Node], inner: Graph) -> Node:
        """All of another graph, as it is now."""

    def instantiate(self, graph: Graph) -> Executable:
        """A graph that can be launched; later nodes of the graph are not in it."""

    def destroy_executable(self, executable: Executable) -> None:
        """A launch that was begun still happens."""

    def update_launch(self, executable: Executable, node: Node, launch: Launch) -> None:
        """Other arguments, grid or block for a node of the graph that it was made of, from the
        next launch on; the function's context stays."""

    def update_graph(self, executable: Executable, node: Node, inner: Graph) -> None:
        """Other arguments for a node that is a graph: another one of the same nodes. Raises
        CudaError for one that has others; then the executable is as it was."""

    def launch_graph(self, executable: Executable, stream: Stream) -> None:
        """Begins all of it; of one executable, one after the other."""


def pack(kinds: str, values: Sequence[int | float | bool]) -> bytes:
    """A kernel's arguments as a launch wants them: each at a multiple of its size, as a C compiler
    lays out the parameters. `kinds`: a letter of struct's for each, P for an address."""
    return struct.pack(f"@{kinds}", *values)


def check_grid(grid: Dim3, block: Dim3) -> None:
    """Raises ValueError for numbers of blocks or threads that no device has."""
    if not all(1 <= n <= most for n, most in zip(grid, GRID_LIMITS, strict=True)):
        raise ValueError(f"a grid of {grid}: each is at least 1, at most {GRID_LIMITS}")
    if not (all(n >= 1 for n in block) and block[0] * block[1] * block[2] <= 1024):
        raise ValueError(f"a block of {block}: each is at least 1, and 1024 threads at most")
