"""New memory that will be written is made ready by another thread, and nothing else is."""

import ctypes
import mmap
import os
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from graphc.backends.host import allocator, cpus, touched
from graphc.backends.host.allocator import LARGE, Allocator
from graphc.backends.host.regions import own_pages

BYTE = np.dtype(np.uint8)
SIZE = 3 << 20
linux = pytest.mark.skipif(not hasattr(mmap, "MADV_HUGEPAGE"), reason="Linux alone has the call")


@pytest.fixture
def ahead(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """As where there are several CPUs, all near to the memory."""
    found = touched._madvise
    found.cache_clear()
    monkeypatch.setattr(cpus, "available", lambda: 2)
    monkeypatch.setattr(touched, "_is_near", lambda: True)
    yield
    settle()
    found.cache_clear()


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """What is asked for: where it starts and its bytes."""
    found: list[tuple[int, int]] = []
    monkeypatch.setattr(
        allocator, "touch", lambda memory, start, size: found.append((start, size))
    )
    return found


def settle() -> None:
    end = time.monotonic() + 30
    while touched._runs:
        assert time.monotonic() < end, "the thread goes on"
        time.sleep(0.001)


def resident(memory: mmap.mmap, size: int) -> list[bool]:
    """Of each page, whether it is there."""
    address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    pages = (ctypes.c_ubyte * (size // mmap.PAGESIZE))()
    assert ctypes.CDLL(None).mincore(ctypes.c_void_p(address), ctypes.c_size_t(size), pages) == 0
    return [bool(page & 1) for page in pages]


def works() -> bool:
    """Whether this kernel knows the call."""
    memory, madvise = own_pages(mmap.PAGESIZE), touched._madvise()
    address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    return madvise is not None and not madvise(address, mmap.PAGESIZE, touched._POPULATE_WRITE)


@linux
@pytest.mark.usefixtures("ahead")
def test_pages_are_there_and_bytes_stay() -> None:
    if not works():
        pytest.skip("a kernel before 5.14")
    memory = own_pages(SIZE)
    memory.madvise(mmap.MADV_NOHUGEPAGE)  # by single pages
    assert not any(resident(memory, SIZE))
    memory[SIZE // 2] = 7
    touched.touch(memory, mmap.PAGESIZE + 64, SIZE // 2)
    settle()
    there = resident(memory, SIZE)
    last = 1 + (64 + SIZE // 2) // mmap.PAGESIZE
    assert not there[0] and all(there[1 : last + 1]) and not any(there[last + 1 :])
    assert memory[SIZE // 2] == 7
    assert not any(memory[: SIZE // 2]) and not any(memory[SIZE // 2 + 1 :])


@linux
@pytest.mark.usefixtures("ahead")
def test_what_the_system_refuses_ends_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    pieces = []

    def refused(address: int, size: int, advice: int) -> int:
        pieces.append(size)
        return -1

    monkeypatch.setattr(touched, "_madvise", lambda: refused)
    memory = own_pages(4 * touched._PIECE)
    for _ in range(2):
        touched.touch(memory, 0, 4 * touched._PIECE)
        settle()
    assert pieces == [touched._PIECE] * 2


@linux
@pytest.mark.usefixtures("ahead")
def test_a_forked_child_has_a_thread_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(touched, "_runs", True)  # as if the fork came while it was at work
    monkeypatch.setattr(touched._thread, "start_new_thread", lambda work, given: work())
    pid = os.fork()
    if pid == 0:
        monkeypatch.setattr(touched, "_madvise", lambda: lambda *given: 0)
        touched.touch(own_pages(SIZE), 0, SIZE)
        os._exit(0 if not touched._waiting and not touched._runs else 1)
    monkeypatch.setattr(touched, "_runs", False)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


@pytest.mark.parametrize(("cpu_count", "nodes", "expected"), [
    (2, "0\n", True), (1, "0\n", False), (8, "0-1\n", False), (2, None, True),
])
def test_where_somebody_is_ahead(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, cpu_count: int, nodes: str | None,
    expected: bool,
) -> None:
    if nodes is not None:
        file = tmp_path / "sys/devices/system/node/online"
        file.parent.mkdir(parents=True)
        file.write_text(nodes)
    near = touched._is_near(tmp_path)
    monkeypatch.setattr(touched, "_is_near", lambda: near)
    monkeypatch.setattr(cpus, "available", lambda: cpu_count)
    found = touched._madvise.__wrapped__() is not None
    assert found == (expected and hasattr(mmap, "MADV_HUGEPAGE"))


def test_what_is_new_and_will_be_written_is_asked_for(asked: list[tuple[int, int]]) -> None:
    mine = Allocator()
    first = mine.empty((LARGE + 1,), BYTE)
    assert asked == [(0, LARGE + mmap.PAGESIZE)]
    mine.empty((LARGE - 1,), BYTE)  # small: the C library's
    del first
    again = mine.empty((LARGE,), BYTE)  # somebody had it before
    assert len(asked) == 1
    large = mine.empty((2 * touched.MOST,), BYTE)
    assert asked[1:] == [(0, touched.MOST)]
    allocator.alone(LARGE)  # an arena
    allocator.alone(LARGE - 1)
    assert asked[2:] == [(0, LARGE)]
    del again, large


def test_zeros_are_asked_for_where_they_are_not_many(asked: list[tuple[int, int]]) -> None:
    mine = Allocator()
    few = mine.zeros((touched.MOST_ZEROS,), BYTE)
    assert asked == [(0, touched.MOST_ZEROS)] and not few.any()
    del few
    again = mine.zeros((touched.MOST_ZEROS,), BYTE)
    many = mine.zeros((touched.MOST_ZEROS + 1,), BYTE)
    assert len(asked) == 1 and not again.any() and many.size


@pytest.mark.usefixtures("ahead")
def test_zeros_that_are_written_at_once_stay_written() -> None:
    mine, size = Allocator(), touched.MOST_ZEROS
    for value in range(1, 9):
        array = mine.zeros((size,), BYTE)
        assert not array[:: size // 64].any()
        array[:: mmap.PAGESIZE] = value
        settle()
        assert int(array.sum(dtype=np.int64)) == value * size // mmap.PAGESIZE
