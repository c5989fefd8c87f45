"""The thread pool: every chunk exactly once, whoever calls, however many, and across fork."""

import ctypes
import functools
import os
import subprocess
import sys
import threading
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from graphc import config
from graphc.backends.llvm.backend import LlvmBackend
from graphc.backends.llvm.jit import compile_object
from graphc.backends.llvm.library import Library
from graphc.backends.llvm.pool import MAX_THREADS, Pool
from graphc.backends.llvm.pool_text import pool_text
from graphc.backends.llvm.target import host_target, make_target
from graphc.engine import pipeline

# mark: counts[chunk] += 1 after some work that grows with the chunk's number modulo 8.
# nested: runs mark over 16 counters of its own, from inside a chunk.
# meet: of 8 chunks: counts[chunk] = the number of chunks begun by then; chunk 0 waits until chunk 4
# has begun, which waits for the last (for some seconds: what waits in vain is seen by the numbers).
# regions: n times graphc_par.
KERNELS = """
declare void @graphc_par(ptr, ptr, i64)
define void @mark(ptr %counts, i64 %chunk) {
entry:
  %low = and i64 %chunk, 7
  %trips = shl i64 %low, 4
  br label %spin
spin:
  %i = phi i64 [ 0, %entry ], [ %next, %spin ]
  %place = getelementptr i32, ptr %counts, i64 %chunk
  %seen = load volatile i32, ptr %place
  %next = add i64 %i, 1
  %more = icmp sle i64 %next, %trips
  br i1 %more, label %spin, label %exit
exit:
  %before = atomicrmw add ptr %place, i32 1 monotonic
  ret void
}
define void @nested(ptr %counts, i64 %chunk) {
  %offset = shl i64 %chunk, 4
  %own = getelementptr i32, ptr %counts, i64 %offset
  call void @graphc_par(ptr @mark, ptr %own, i64 16)
  ret void
}
declare i32 @sched_yield()
define void @meet(ptr %counts, i64 %chunk) {
entry:
  %all = getelementptr i32, ptr %counts, i64 8
  %before = atomicrmw add ptr %all, i32 1 seq_cst
  %number = add i32 %before, 1
  %own = getelementptr i32, ptr %counts, i64 %chunk
  store atomic i32 %number, ptr %own seq_cst, align 4
  %first = icmp eq i64 %chunk, 0
  %middle = icmp eq i64 %chunk, 4
  %later = select i1 %middle, i64 7, i64 %chunk
  %other = select i1 %first, i64 4, i64 %later
  %place = getelementptr i32, ptr %counts, i64 %other
  br label %wait
wait:
  %i = phi i64 [ 0, %entry ], [ %next, %wait ]
  %yielded = call i32 @sched_yield()
  %seen = load atomic i32, ptr %place seq_cst, align 4
  %next = add i64 %i, 1
  %absent = icmp eq i32 %seen, 0
  %patient = icmp ult i64 %next, 20000000
  %more = and i1 %absent, %patient
  br i1 %more, label %wait, label %exit
exit:
  ret void
}
define void @regions(i64 %n, ptr %fn, ptr %arg, i64 %chunks) {
entry:
  br label %body
body:
  %i = phi i64 [ 0, %entry ], [ %next, %body ]
  call void @graphc_par(ptr %fn, ptr %arg, i64 %chunks)
  %next = add i64 %i, 1
  %more = icmp slt i64 %next, %n
  br i1 %more, label %body, label %exit
exit:
  ret void
}
"""


@functools.cache
def kernels() -> tuple[Pool, Library]:
    """One pool for the module, and kernels linked against it."""
    pool = Pool(2)
    objects = [compile_object(KERNELS, host_target())]
    return pool, Library(objects, {"graphc_par": pool.address})


def regions(count: int, name: str, chunks: int, counters: int) -> np.ndarray:
    """Runs `count` regions of a kernel; returns how often each counter was raised."""
    _, library = kernels()
    counts = np.zeros(counters, np.int32)
    integer, pointer = ctypes.c_int64, ctypes.c_void_p
    run = ctypes.CFUNCTYPE(None, integer, pointer, pointer, integer)(library.address("regions"))
    run(count, library.address(name), counts.ctypes.data, chunks)
    return counts


def in_child(check: Callable[[], bool]) -> None:
    """Forks; the child must find the check true."""
    with warnings.catch_warnings():  # Python 3.12 warns of threads, which is the point here
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if child == 0:
        os._exit(0 if check() else 1)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0


@pytest.fixture(autouse=True, params=[1, 2, 5])
def threads(request: pytest.FixtureRequest) -> int:
    """Every test runs with each of these pool sizes."""
    count: int = request.param
    kernels()[0].set_threads(count)
    return count


@pytest.mark.parametrize("chunks", [0, 1, 2, 3, 4, 5, 6, 43, 64, 1000])
def test_every_chunk_once(chunks: int) -> None:
    counts = regions(1, "mark", chunks, chunks + 1)
    assert counts[:chunks].tolist() == [1] * chunks and counts[chunks] == 0


@pytest.mark.parametrize("threads", [2], indirect=True)
def test_each_thread_goes_along_a_range_and_then_helps_the_others() -> None:
    """Two that took turns would share the memory of neighbouring chunks."""
    *order, begun = regions(1, "meet", 8, 9).tolist()
    assert begun == 8
    assert order in ([1, 3, 4, 5, 2, 6, 7, 8], [2, 3, 4, 5, 1, 6, 7, 8])


def test_thousands_of_regions() -> None:
    for chunks in (2, 7):
        assert regions(4000, "mark", chunks, chunks).tolist() == [4000] * chunks


def test_regions_inside_regions() -> None:
    assert regions(200, "nested", 9, 9 * 16).tolist() == [200] * (9 * 16)


def concurrently(work: Callable[[], None], count: int) -> list[threading.Thread]:
    workers = [threading.Thread(target=work) for _ in range(count)]
    for worker in workers:
        worker.start()
    return workers


def test_four_python_threads_at_once() -> None:
    failures: list[np.ndarray] = []

    def work() -> None:
        for chunks in (2, 5, 33):
            counts = regions(500, "mark", chunks, chunks)
            if counts.tolist() != [500] * chunks:
                failures.append(counts)

    for worker in concurrently(work, 4):
        worker.join()
    assert not failures


def test_resizing_under_way(threads: int) -> None:
    """Sizes change while two threads run regions."""
    failures: list[np.ndarray] = []

    def work() -> None:
        for _ in range(40):
            counts = regions(50, "mark", 6, 6)
            if counts.tolist() != [50] * 6:
                failures.append(counts)

    workers = concurrently(work, 2)
    for count in (3, 1, 2, 4, threads):
        kernels()[0].set_threads(count)
    for worker in workers:
        worker.join()
    assert not failures and kernels()[0].threads == threads


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_fork() -> None:
    """The child's pool works (with workers of its own), and so does the parent's afterwards."""

    def check() -> bool:
        return regions(300, "mark", 5, 5).tolist() == [300] * 5

    assert check()
    in_child(check)
    assert check()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_fork_while_another_thread_is_in_a_region() -> None:
    ending = threading.Event()

    def work() -> None:
        while not ending.is_set():
            regions(50, "mark", 8, 8)

    (worker,) = concurrently(work, 1)
    try:
        for _ in range(5):
            in_child(lambda: regions(100, "mark", 5, 5).tolist() == [100] * 5)
    finally:
        ending.set()
        worker.join()


def test_a_process_can_end_while_workers_spin(threads: int) -> None:
    """And a pool can be collected: its workers are ended before their code is unmapped."""
    script = f"""
import ctypes, gc
from graphc.backends.llvm.pool import Pool
function = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64)
chunk = function(lambda arg, index: None)
for collected in (True, False):
    pool = Pool({threads})
    par = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64)(pool.address)
    par(ctypes.cast(chunk, ctypes.c_void_p), None, 4)
    if collected:
        del pool, par
        gc.collect()
"""
    root = Path(__file__).parents[3]
    done = subprocess.run([sys.executable, "-c", script], cwd=root, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


def test_sizes_are_checked() -> None:
    pool = kernels()[0]
    for threads in (0, -1, MAX_THREADS + 1):
        with pytest.raises(ValueError, match="threads must be between 1 and"):
            pool.set_threads(threads)
        with pytest.raises(ValueError, match="threads must be between 1 and"):
            Pool(threads)


def test_more_threads_than_there_are() -> None:
    """On a machine with more CPUs than that, say."""
    backend, host = LlvmBackend(), pipeline.host(config.current())
    assert backend.pool(host._replace(threads=MAX_THREADS + 976)).threads == MAX_THREADS
    assert backend.pool(host._replace(threads=2)).threads == 2
    assert backend.pool(host._replace(threads=4096)).threads == MAX_THREADS


@pytest.mark.parametrize("triple", ["aarch64-unknown-linux-gnu", "riscv64-unknown-linux-gnu"])
def test_other_targets_compile(triple: str) -> None:
    target = make_target(triple)
    assert ("pthread_create" in pool_text(target)) == (target.arch == "aarch64")
    assert compile_object(pool_text(target), target)


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="needs CPU affinity")
def test_workers_stay_within_the_allowed_cpus() -> None:
    allowed = os.sched_getaffinity(0)
    regions(50, "mark", 8, 8)
    for thread in Path("/proc/self/task").iterdir():
        assert os.sched_getaffinity(int(thread.name)) <= allowed
