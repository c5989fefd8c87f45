"""The devices of a process: contexts, streams and memory over a Driver. Nothing of the driver is
asked before it is needed, so that a process may fork until then."""

from __future__ import annotations

import itertools
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from graphc.backends.cuda import libcuda
from graphc.backends.cuda.allocator import Allocator, Block
from graphc.backends.cuda.driver import (
    DEFAULT_STREAM,
    SHARED_DEFAULT,
    Attribute,
    Context,
    Driver,
    Graph,
    Stream,
)
from graphc.backends.cuda.errors import CudaError, error_of
from graphc.backends.cuda.pinned import PinnedMemory
from graphc.backends.cuda.timing import Timed, Timer

STREAMS = 32  # of a priority: who asks for more gets the first one again, as in torch


# torch's names of a device's properties
FACTS = {
    "multi_processor_count": Attribute.MULTIPROCESSOR_COUNT,
    "warp_size": Attribute.WARP_SIZE,
    "max_threads_per_block": Attribute.MAX_THREADS_PER_BLOCK,
    "max_threads_per_multi_processor": Attribute.MAX_THREADS_PER_MULTIPROCESSOR,
    "regs_per_multiprocessor": Attribute.MAX_REGISTERS_PER_MULTIPROCESSOR,
    "shared_memory_per_block_optin": Attribute.MAX_SHARED_MEMORY_PER_BLOCK_OPTIN,
    "shared_memory_per_multiprocessor": Attribute.MAX_SHARED_MEMORY_PER_MULTIPROCESSOR,
    "L2_cache_size": Attribute.L2_CACHE_SIZE,
    "clock_rate": Attribute.CLOCK_RATE,
    "memory_clock_rate": Attribute.MEMORY_CLOCK_RATE,
    "memory_bus_width": Attribute.GLOBAL_MEMORY_BUS_WIDTH,
    "pci_domain_id": Attribute.PCI_DOMAIN_ID,
    "pci_bus_id": Attribute.PCI_BUS_ID,
    "pci_device_id": Attribute.PCI_DEVICE_ID,
    "is_integrated": Attribute.INTEGRATED,
    "is_multi_gpu_board": Attribute.MULTI_GPU_BOARD,
}


class _Thread(threading.local):
    """What is true of the running thread."""

    index = 0  # of the current device
    active: Device | None = None  # whose context the driver has in this thread
    waits = True  # for copies from pinned memory


class _Selected(threading.local):
    """A device's current stream in the running thread."""

    stream = DEFAULT_STREAM


class Device:
    """A GPU as this process uses it. Its primary context is made at the first use."""

    def __init__(
        self, driver: Driver, index: int = 0, thread: _Thread | None = None,
        pinned: PinnedMemory | None = None,
    ) -> None:
        self.driver, self.index = driver, index
        self.allocator = Allocator(driver, self.activate, index)
        self._thread = thread or _Thread()
        self._pinned = pinned or PinnedMemory(driver, self.activate)
        self._selected = _Selected()
        self._context: Context | None = None
        self.blocking = False  # whether each call of a program is waited for, to find what fails
        self.timer: Timer | None = None  # of all that is launched meanwhile
        self._several = False  # whether work has gone to other streams than the default
        self._process = os.getpid()
        self._lock, self._capture = threading.Lock(), threading.Lock()
        self._capture_stream: Stream | None = None
        self._streams: dict[int, list[Stream]] = {}
        self._turns: dict[int, itertools.count[int]] = {}

    def activate(self) -> None:
        """The running thread's calls of the driver are about this device from now on. Raises
        RuntimeError in a process that was forked from one that used it."""
        if self._thread.active is self and self._process == os.getpid():
            return
        if self._context is None:
            self._begin()
        elif self._process != os.getpid():
            raise RuntimeError(
                "Cannot re-initialize CUDA in forked subprocess. To use CUDA with "
                "multiprocessing, you must use the 'spawn' start method"
            )
        assert self._context is not None
        self.driver.make_current(self._context)
        self._thread.active = self

    def reactivate(self) -> None:
        """The same, where another library may have made another context current."""
        self._thread.active = None
        self.activate()

    def _begin(self) -> None:
        with self._lock:
            if self._context is None:
                self._context = self.driver.retain(self.index)
                self._process = os.getpid()

    @property
    def begun(self) -> bool:
        """Whether it was used."""
        return self._context is not None

    @property
    def is_here(self) -> bool:
        """Whether it was used by this process, and not by one that this one was forked from."""
        return self.begun and self._process == os.getpid()

    # --- streams ------------------------------------------------------------------------------

    def current_stream(self) -> Stream:
        """Where the running thread's work goes; the device is active there from then on."""
        self.activate()
        return self._selected.stream

    def select(self, stream: Stream) -> Stream:
        """The running thread's work goes to a stream from now on; gives the one until now."""
        if stream != DEFAULT_STREAM and not self._several:
            self.synchronise()  # what was written on the default one (constants), others may read
            self._several = True
        before, self._selected.stream = self._selected.stream, stream
        return before

    def stream(self, priority: int = 0) -> Stream:
        """One of STREAMS that the device has for others than the default, in turn. They are never
        destroyed: memory may wait for what was begun there."""
        self.activate()
        with self._lock:
            made = self._streams.setdefault(priority, [])
            turn = next(self._turns.setdefault(priority, itertools.count())) % STREAMS
            if turn == len(made):
                made.append(self.driver.create_stream(priority))
            return made[turn]

    @contextmanager
    def capturing(self) -> Iterator[tuple[Stream, list[Graph]]]:
        """A stream that nobody else has: what is sent to it meanwhile does not happen, but is a
        graph in the list, at the end."""
        self.activate()
        with self._capture:
            if self._capture_stream is None:
                self._capture_stream = self.driver.create_stream()
            found: list[Graph] = []
            self.driver.begin_capture(self._capture_stream)
            try:
                yield self._capture_stream, found
            except BaseException:
                with suppress(CudaError):  # what was captured so far is of no use, if there is any
                    self.driver.destroy_graph(self.driver.end_capture(self._capture_stream))
                raise
            found.append(self.driver.end_capture(self._capture_stream))

    def synchronise(self) -> None:
        """Waits for all that was begun on any stream."""
        self.activate()
        self.driver.synchronise()

    def time(self) -> None:
        """From here on launches are timed; they are sent one by one."""
        self.timer = Timer(self.driver, self.current_stream())

    def times(self) -> list[Timed]:
        """Waits for all that was launched, and ends that."""
        timer, self.timer = self.timer, None
        self.synchronise()
        return [] if timer is None else timer.results()

    # --- memory -------------------------------------------------------------------------------

    def allocate(self, size: int, stream: Stream) -> Block:
        """Bytes for the work of a stream, aligned to 512. Raises OutOfMemoryError."""
        self.activate()
        return self.allocator.allocate(size, stream)

    def free(self, block: Block) -> None:
        """What ends with a Block's own end, now."""
        self.allocator.free(block)

    def sent(self, address: int, stream: Stream) -> None:
        """A copy of what lies at an address of the host was begun, last of all. Pinned memory has
        yet to be read: that is waited for, unless the caller has said that it stays as it is
        (Gpus.unwaited). So is, as in torch, any copy that another stream's work may read."""
        pinned = self._pinned.holds(address)
        if pinned and not self._thread.waits:
            self._pinned.begun(address, stream)
        elif pinned or self._several:
            self.driver.wait_for_stream(stream)

    # --- facts --------------------------------------------------------------------------------

    @property
    def name(self) -> str:
        """"NVIDIA H200" """
        return self.driver.device_name(self.index)

    @property
    def capability(self) -> tuple[int, int]:
        """(9, 0)"""
        return (
            self.attribute(Attribute.COMPUTE_CAPABILITY_MAJOR),
            self.attribute(Attribute.COMPUTE_CAPABILITY_MINOR),
        )

    @property
    def total_memory(self) -> int:
        """Bytes."""
        return self.driver.device_memory(self.index)

    def facts(self) -> dict[str, int]:
        """Its numbers, by the names of torch's properties."""
        return {
            "shared_memory_per_block": SHARED_DEFAULT,
            **{name: self.attribute(attribute) for name, attribute in FACTS.items()},
        }

    def attribute(self, attribute: Attribute) -> int:
        """A number of the device."""
        return self.driver.attribute(self.index, attribute)


class Gpus:
    """The devices of a Driver, which `find` gives at the first question. Where it raises
    RuntimeError there are none, and `missing` is what it said."""

    def __init__(self, find: Callable[[], Driver]) -> None:
        self._find = find
        self._thread = _Thread()
        self._lock = threading.Lock()
        self._devices: list[Device] | None = None
        self.missing: RuntimeError | None = None
        self.pinned: PinnedMemory

    @property
    def devices(self) -> list[Device]:
        """All that the process may use."""
        if self._devices is None:
            with self._lock:
                if self._devices is None:
                    self._devices = self._found()
        return self._devices

    def _found(self) -> list[Device]:
        try:
            driver = self._find()
            count = driver.device_count()
        except RuntimeError as missing:
            self.missing = missing
            return []
        self.pinned = PinnedMemory(driver, self._activate)
        return [Device(driver, index, self._thread, self.pinned) for index in range(count)]

    def _activate(self) -> None:
        (self._thread.active or self.devices[self._thread.index]).activate()

    @contextmanager
    def unwaited(self) -> Iterator[None]:
        """Copies from pinned memory that the running thread begins may read it later."""
        before, self._thread.waits = self._thread.waits, False
        try:
            yield
        finally:
            self._thread.waits = before

    def device(self, index: int) -> Device:
        """One of them. Raises what said that there is none, with the cure."""
        if not self.devices:
            raise self.missing or error_of("cuDeviceGetCount", "CUDA_ERROR_NO_DEVICE", "no device")
        return self.devices[index]

    @property
    def begun(self) -> bool:
        """Whether a device was used; asks nothing."""
        return any(device.begun for device in self._devices or ())

    @property
    def current_index(self) -> int:
        """The number of the running thread's device."""
        return self._thread.index

    def select(self, index: int) -> int:
        """That device is the running thread's from now on; gives the number of the one until now.
        """
        before, self._thread.index = self._thread.index, index
        return before


GPUS = Gpus(libcuda.driver)  # this machine's
