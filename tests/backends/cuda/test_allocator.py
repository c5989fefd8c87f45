"""Memory of a device, kept between uses: in the order of streams, counted, and with an end."""

from __future__ import annotations

import gc
import itertools
import random
import threading

import numpy as np
import pytest

from graphc.backends.cuda.allocator import GRAIN, Allocator, Block
from graphc.backends.cuda.device import Device
from graphc.backends.cuda.driver import DEFAULT_STREAM, Stream
from graphc.backends.cuda.emulator import Toolchain
from graphc.backends.cuda.emulator.driver import EmulatedDriver
from graphc.backends.cuda.errors import CudaOutOfMemory
from graphc.backends.cuda.pinned import PinnedMemory
from graphc.ir.memory import OutOfMemoryError

KB, MB = 1 << 10, 1 << 20


@pytest.fixture
def driver(toolchain: Toolchain) -> EmulatedDriver:
    return EmulatedDriver(toolchain, size=64 * MB)


@pytest.fixture
def allocator(driver: EmulatedDriver) -> Allocator:
    return Device(driver).allocator


def taken(allocator: Allocator, *sizes: int, stream: Stream = DEFAULT_STREAM) -> list[Block]:
    return [allocator.allocate(size, stream) for size in sizes]


def test_what_is_freed_serves_its_stream_at_once(
    allocator: Allocator, driver: EmulatedDriver
) -> None:
    other = driver.create_stream()
    (block,) = taken(allocator, 5 * MB)
    address = block.address
    driver.fill(address, 1, 4, 100, DEFAULT_STREAM)  # which has not happened
    del block
    (apart,) = taken(allocator, 5 * MB, stream=other)
    (again,) = taken(allocator, 5 * MB)
    assert again.address == address != apart.address
    assert not driver.stream_done(DEFAULT_STREAM)


def test_chunks_are_cut_and_joined(allocator: Allocator) -> None:
    blocks = taken(allocator, 100, 512, 513, 1000)
    starts = [block.address - blocks[0].address for block in blocks]
    assert starts == [0, 512, 1024, 2048] and len(allocator.segments()) == 1
    allocator.free(blocks[1])
    (one,) = taken(allocator, 200)
    assert one.address == blocks[1].address
    for block in (*blocks, one):
        allocator.free(block)
        allocator.free(block)  # the second time does nothing
    (whole,) = taken(allocator, MB)
    assert whole.address == blocks[0].address
    assert allocator.statistics.segment.current == 1


def test_the_smallest_that_fits_is_taken(allocator: Allocator) -> None:
    held = taken(allocator, 30 * KB, GRAIN, 10 * KB, GRAIN, 20 * KB, GRAIN)
    places = {block.size: block.address for block in held[::2]}
    for block in held[::2]:
        allocator.free(block)
    assert taken(allocator, 9 * KB)[0].address == places[10 * KB]
    assert taken(allocator, 15 * KB)[0].address == places[20 * KB]


def test_a_block_waits_for_the_streams_that_use_it(
    allocator: Allocator, driver: EmulatedDriver
) -> None:
    """The copy on the other stream must not see what the next owner writes."""
    for recorded in (True, False):
        other = driver.create_stream()
        (block,) = taken(allocator, 4096)
        result = driver.allocate(4096)
        driver.fill(block.address, 7, 1, 4096, DEFAULT_STREAM)
        driver.wait_for_stream(DEFAULT_STREAM)
        driver.copy(result, block.address, 4096, other)
        if recorded:
            allocator.record_stream(block, other)
        address = block.address
        allocator.free(block)
        (following,) = taken(allocator, 4096)
        driver.fill(following.address, 9, 1, 4096, DEFAULT_STREAM)
        driver.wait_for_stream(DEFAULT_STREAM)
        seen = np.zeros(4096, np.uint8)
        driver.copy_out(seen.ctypes.data, result, 4096, other)
        assert (following.address != address) == recorded
        assert (seen == (7 if recorded else 9)).all()
        allocator.free(following)
    assert allocator.statistics.active.current == 0


def test_another_streams_segment_is_taken_over_behind_an_event(
    allocator: Allocator, driver: EmulatedDriver
) -> None:
    other = driver.create_stream()
    (block,) = taken(allocator, 40 * MB)
    driver.fill(block.address, 1, 1, 8, DEFAULT_STREAM)
    address = block.address
    allocator.free(block)
    (following,) = taken(allocator, 36 * MB, stream=other)  # a second one has no room
    assert following.address == address and allocator.statistics.retries == 1
    driver.fill(address, 2, 1, 8, other)
    seen = np.zeros(8, np.uint8)
    driver.copy_out(seen.ctypes.data, address, 8, other)
    driver.synchronise()
    driver.copy_out(seen.ctypes.data, address, 8, other)
    assert (seen == 2).all()  # the first fill came first


def test_the_cache_gives_way_before_there_is_too_little(
    allocator: Allocator, driver: EmulatedDriver
) -> None:
    for block in taken(allocator, 15 * MB, 15 * MB, 15 * MB):
        allocator.free(block)
    del block
    assert allocator.statistics.reserved_bytes.current == 48 * MB
    (large,) = taken(allocator, 60 * MB)
    found = allocator.statistics
    assert (found.retries, found.refusals) == (1, 0)
    assert found.reserved_bytes.current == 60 * MB and len(driver.pieces) == 1
    del large
    allocator.empty_cache()
    assert not driver.pieces and allocator.statistics.reserved_bytes.current == 0


def test_too_much_says_so_and_goes_on(allocator: Allocator, driver: EmulatedDriver) -> None:
    (kept,) = taken(allocator, 10 * MB)
    with pytest.raises(
        OutOfMemoryError,
        match=r"^CUDA out of memory. Tried to allocate 60.00 MiB. GPU 0 has a total capacity of "
        r"64.00 MiB of which 54.00 MiB is free. Of the allocated memory 10.00 MiB is allocated by "
        r"graphc, and 0 bytes is reserved",
    ) as raised:
        taken(allocator, 60 * MB)
    assert isinstance(raised.value.__cause__, CudaOutOfMemory)
    assert issubclass(CudaOutOfMemory, OutOfMemoryError)
    assert allocator.statistics.refusals == 1
    assert taken(allocator, 10 * MB)[0].address != kept.address
    (last,) = taken(allocator, 5 * MB, stream=driver.create_stream())  # a segment has no room
    assert last.size == 5 * MB
    allocator.limit = 12 * MB
    with pytest.raises(OutOfMemoryError, match=r"12.00 MiB allowed"):
        taken(allocator, 11 * MB)


def test_counters(allocator: Allocator) -> None:
    blocks = taken(allocator, 1000, 2 * MB, 0)
    found = allocator.statistics.named()
    assert blocks[2].address == 0 and found["allocation.all.current"] == 2
    assert found["allocated_bytes.small_pool.current"] == 1024
    assert found["requested_bytes.all.current"] == 1000 + 2 * MB
    assert found["reserved_bytes.large_pool.peak"] == 20 * MB
    del blocks
    allocator.statistics.reset_peaks()
    found = allocator.statistics.named()
    assert found["allocated_bytes.all.peak"] == found["allocated_bytes.all.current"] == 0
    assert found["allocated_bytes.all.freed"] == found["allocated_bytes.all.allocated"] > 0


def test_random_requests_never_overlap(allocator: Allocator, driver: EmulatedDriver) -> None:
    """Three streams; what is alive is disjoint and inside a segment; all comes back in the end."""
    draw = random.Random(0)
    streams = [DEFAULT_STREAM, driver.create_stream(), driver.create_stream()]
    alive: list[Block] = []
    for _ in range(3000):
        if alive and draw.random() < 0.5:
            block = alive.pop(draw.randrange(len(alive)))
            if draw.random() < 0.2:
                allocator.record_stream(block, draw.choice(streams))
            allocator.free(block)
        else:
            size = draw.choice([1, 700, 5000, 80_000, MB, MB + 1, 3 * MB])
            try:
                alive.append(allocator.allocate(size, draw.choice(streams)))
            except OutOfMemoryError:
                alive.clear()
        ends = sorted((block.address, block.address + block.size) for block in alive)
        assert all(end <= start for (_, end), (start, _) in itertools.pairwise(ends))
    segments = allocator.segments()
    assert all(
        any(start <= b.address and b.address + b.size <= start + n for start, n in segments)
        for b in alive
    )
    counted = allocator.statistics.allocation.current
    assert counted == len(alive)
    alive.clear()
    del block
    allocator.empty_cache()
    assert allocator.segments() == [] and not driver.pieces
    assert allocator.statistics.active_bytes.current == 0


def test_blocks_may_end_in_the_middle_of_a_request(
    driver: EmulatedDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The collector runs where Python lets it: here, while the driver is asked for a segment."""
    allocator = Device(driver).allocator
    kept = taken(allocator, 4096, 4096)
    asked = driver.allocate

    def collecting(size: int) -> int:
        kept.clear()
        gc.collect()
        return asked(size)

    monkeypatch.setattr(driver, "allocate", collecting)
    (block,) = taken(allocator, 30 * MB)
    assert allocator.statistics.allocation.current == 1 and block.size == 30 * MB


def test_threads_share_it(allocator: Allocator) -> None:
    def work(seed: int) -> None:
        draw = random.Random(seed)
        held: list[Block] = []
        for _ in range(400):
            held.append(allocator.allocate(draw.randrange(1, 40_000), DEFAULT_STREAM))
            del held[: draw.randrange(3)]

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert allocator.statistics.allocation.current == 0


# --- pinned memory ----------------------------------------------------------------------------


@pytest.fixture
def pinned(driver: EmulatedDriver) -> PinnedMemory:
    return PinnedMemory(driver, Device(driver).activate)


def test_pinned_memory_returns_once_its_copies_have_happened(
    pinned: PinnedMemory, driver: EmulatedDriver
) -> None:
    stream, target = driver.create_stream(), driver.allocate(4096)
    array = pinned.array(np.full(1024, 3, np.float32))
    address = array.ctypes.data
    assert pinned.holds(address + 4095) and not pinned.holds(address + 4096)
    driver.copy_in(target, address, 4096, stream)
    pinned.begun(address, stream)
    del array
    other = pinned.array(np.zeros(1024, np.float32))
    assert other.ctypes.data != address
    driver.wait_for_stream(stream)
    seen = np.zeros(1024, np.float32)
    driver.copy_out(seen.ctypes.data, target, 4096, stream)
    assert (seen == 3).all()
    again = pinned.array(np.zeros(700, np.float32))
    assert again.ctypes.data == address


def test_views_keep_pinned_memory(pinned: PinnedMemory, driver: EmulatedDriver) -> None:
    part = pinned.array(np.arange(12.0).reshape(3, 4))[1]
    gc.collect()
    other = pinned.array(np.zeros((3, 4)))
    np.testing.assert_array_equal(part, [4, 5, 6, 7])
    del part, other
    pinned.empty_cache()
    assert not driver.pinned
