"""The thread pool, itself LLVM IR: `void @graphc_par(ptr fn, ptr arg, i64 chunks)`.

graphc_par calls fn(arg, chunk) for every chunk, on the calling thread and on the workers. Whoever
is free claims the next chunk from one atomic counter, so the caller waits only for chunks that a
worker has begun, never for a worker to wake up. A region inside a region, or at the same time as
another thread's, runs on its caller alone. Results must not depend on who runs a chunk.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import os
import threading
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from graphc.backends.host import cpus
from graphc.backends.host.store import Store
from graphc.backends.llvm.identity import identity
from graphc.backends.llvm.image import Image
from graphc.backends.llvm.library import Library

if TYPE_CHECKING:
    from graphc.backends.llvm.cache import ObjectCache
    from graphc.backends.llvm.target import Target

MAX_THREADS = 1024
MASK_BYTES = 128  # of a cpu_set_t

# Idle workers spin this often (0.6 ms on Zen 4) before they sleep: waking one takes 50 us or more.
SPINS = 20_000

# futex's number and a pause of tens of nanoseconds ("yield" on ARM is a nop on most cores).
_SYSTEMS = {
    "x86_64": (202, "@llvm.x86.sse2.pause()"),
    "aarch64": (98, "@llvm.aarch64.isb(i32 15)"),
}

# One chunk after another: what every path falls back to.
_SERIAL = """
define internal void @serial(ptr %fn, ptr %arg, i64 %chunks) nounwind {
entry:
  %some = icmp sgt i64 %chunks, 0
  br i1 %some, label %body, label %exit
body:
  %i = phi i64 [ 0, %entry ], [ %next, %body ]
  call void %fn(ptr %arg, i64 %i)
  %next = add nsw i64 %i, 1
  %more = icmp slt i64 %next, %chunks
  br i1 %more, label %body, label %exit
exit:
  ret void
}
"""

_WITHOUT_THREADS = """
define void @graphc_par(ptr %fn, ptr %arg, i64 %chunks) nounwind {
  call void @serial(ptr %fn, ptr %arg, i64 %chunks)
  ret void
}
define void @graphc_pool_resize(i32 %threads, i32 %spins, i32 %cpus, ptr %allowed) nounwind {
  ret void
}
define void @graphc_pool_reset() nounwind {
  ret void
}
"""

# Each word that several threads write has a cache line (two, for the prefetcher) of its own.
_STATE = """
; The region: written by its caller before `remaining`, read after a chunk was claimed from it.
@fn = internal global ptr null, align 128
@arg = internal global ptr null
@chunks = internal global i64 0
@remaining = internal global i64 0, align 128  ; chunks to claim; below 0 if idle workers looked
@done = internal global i64 0, align 128       ; chunks finished
@epoch = internal global i32 0, align 128      ; counts regions; workers wait for it to change
@sleepers = internal global i32 0, align 128   ; workers in futex, or about to be
@busy = internal global i32 0, align 128       ; 1 while a region or a resize has the pool
@stop = internal global i32 0, align 128       ; 1 tells the workers to return
@wanted = internal global i32 1                ; threads, the caller included
@workers = internal global i32 0               ; running
@spins = internal global i32 0
@cpu = internal global i32 -1                  ; the caller's, when the workers were kept off it
@pinning = internal global i32 0               ; 1 if there is a CPU for every thread
@allowed = internal global [128 x i8] zeroinitializer, align 8
@mask = internal global [128 x i8] zeroinitializer, align 8
@threads = internal global [1024 x i64] zeroinitializer
declare i64 @syscall(i64, ...)
declare i32 @pthread_create(ptr, ptr, ptr, ptr)
declare i32 @pthread_join(i64, ptr)
declare i32 @pthread_setaffinity_np(i64, i64, ptr)
declare i32 @pthread_sigmask(i32, ptr, ptr)
declare i32 @sigfillset(ptr)
declare i32 @sched_getcpu()
declare i32 @sched_yield()
declare ptr @memcpy(ptr, ptr, i64)
declare void @llvm.x86.sse2.pause()
declare void @llvm.aarch64.isb(i32)
"""

_WORKER = """
; On the epoch: 128 waits while it is `value`, 129 wakes `value` sleepers (both process-private).
define internal i64 @futex(i64 %operation, i32 %value) nounwind {
  %result = call i64 (i64, ...) @syscall(
      i64 FUTEX, ptr @epoch, i64 %operation, i32 %value, ptr null, ptr null, i64 0)
  ret i64 %result
}
; Runs chunks until none is left. A late worker that looks between two regions finds remaining <= 0;
; one that claims a chunk has acquired the region's fn, arg and chunks, and they stay until that
; chunk is done.
define internal void @drain() nounwind {
entry:
  br label %claim
claim:
  %left = atomicrmw sub ptr @remaining, i64 1 acq_rel
  %some = icmp sgt i64 %left, 0
  br i1 %some, label %run, label %exit
run:
  %fn = load ptr, ptr @fn
  %arg = load ptr, ptr @arg
  %chunks = load i64, ptr @chunks
  %chunk = sub nsw i64 %chunks, %left
  call void %fn(ptr %arg, i64 %chunk)
  %count = atomicrmw add ptr @done, i64 1 release
  br label %claim
exit:
  ret void
}
; Reads the epoch, then works, then waits for the epoch to move: no region is missed.
define internal ptr @worker(ptr %unused) nounwind {
entry:
  br label %work
work:
  %epoch = load atomic i32, ptr @epoch seq_cst, align 4
  %stop = load atomic i32, ptr @stop seq_cst, align 4
  %ends = icmp ne i32 %stop, 0
  br i1 %ends, label %exit, label %begin
begin:
  call void @drain()
  %spins = load atomic i32, ptr @spins monotonic, align 4
  br label %spin
spin:
  %count = phi i32 [ 0, %begin ], [ %counted, %idle ]
  %now = load atomic i32, ptr @epoch acquire, align 4
  %same = icmp eq i32 %now, %epoch
  br i1 %same, label %idle, label %work
idle:
  call void PAUSE
  %counted = add i32 %count, 1
  %longer = icmp ult i32 %counted, %spins
  br i1 %longer, label %spin, label %sleep
; The caller raises the epoch, then reads sleepers; we raise sleepers, then futex compares the
; epoch: one of us sees the other.
sleep:
  %s0 = atomicrmw add ptr @sleepers, i32 1 seq_cst
  %slept = call i64 @futex(i64 128, i32 %epoch)
  %s1 = atomicrmw sub ptr @sleepers, i32 1 seq_cst
  %woken = load atomic i32, ptr @epoch acquire, align 4
  %still = icmp eq i32 %woken, %epoch
  br i1 %still, label %sleep, label %work
exit:
  ret ptr null
}
; Creates the wanted workers (with every signal blocked: signals are for the program's threads).
define internal void @start() nounwind cold {
entry:
  %all = alloca [128 x i8], align 8
  %old = alloca [128 x i8], align 8
  %filled = call i32 @sigfillset(ptr %all)
  %blocked = call i32 @pthread_sigmask(i32 2, ptr %all, ptr %old)
  store atomic i32 0, ptr @stop seq_cst, align 4
  store i32 -1, ptr @cpu
  %wanted = load atomic i32, ptr @wanted monotonic, align 4
  br label %head
head:
  %n = phi i32 [ 0, %entry ], [ %n1, %made ]
  %n1 = add i32 %n, 1
  %more = icmp slt i32 %n1, %wanted
  br i1 %more, label %make, label %exit
make:
  %slot = getelementptr i64, ptr @threads, i32 %n
  %failed = call i32 @pthread_create(ptr %slot, ptr null, ptr @worker, ptr null)
  %ok = icmp eq i32 %failed, 0
  br i1 %ok, label %made, label %short
made:
  br label %head
short: ; the system gives no more: be content, and do not ask again in every region
  store atomic i32 %n1, ptr @wanted monotonic, align 4
  br label %exit
exit:
  store i32 %n, ptr @workers
  %restored = call i32 @pthread_sigmask(i32 2, ptr %old, ptr null)
  ret void
}
; Ends the workers; called with the pool held.
define internal void @stop_workers() nounwind cold {
entry:
  store atomic i32 1, ptr @stop seq_cst, align 4
  %epoch = atomicrmw add ptr @epoch, i32 1 seq_cst
  %woken = call i64 @futex(i64 129, i32 2147483647)
  %workers = load i32, ptr @workers
  br label %head
head:
  %n = phi i32 [ 0, %entry ], [ %n1, %join ]
  %more = icmp slt i32 %n, %workers
  br i1 %more, label %join, label %exit
join:
  %slot = getelementptr i64, ptr @threads, i32 %n
  %thread = load i64, ptr %slot
  %joined = call i32 @pthread_join(i64 %thread, ptr null)
  %n1 = add i32 %n, 1
  br label %head
exit:
  store i32 0, ptr @workers
  ret void
}
"""

_REGION = """
; Linux wakes a worker on its waker's CPU and, if the other CPUs are not idle, leaves it there to
; wait out the caller's slice. So the workers' affinity excludes the CPU that the caller is on.
define internal void @keep_off(i32 %cpu) nounwind cold {
entry:
  store i32 %cpu, ptr @cpu
  %fits = icmp ult i32 %cpu, 1024
  br i1 %fits, label %build, label %exit
build:
  %copied = call ptr @memcpy(ptr @mask, ptr @allowed, i64 128)
  %at = lshr i32 %cpu, 3
  %byte = getelementptr i8, ptr @mask, i32 %at
  %low = and i32 %cpu, 7
  %bit32 = shl i32 1, %low
  %bit = trunc i32 %bit32 to i8
  %others = xor i8 %bit, -1
  %before = load i8, ptr %byte
  %after = and i8 %before, %others
  store i8 %after, ptr %byte
  %workers = load i32, ptr @workers
  br label %head
head:
  %n = phi i32 [ 0, %build ], [ %n1, %set ]
  %more = icmp slt i32 %n, %workers
  br i1 %more, label %set, label %exit
set:
  %slot = getelementptr i64, ptr @threads, i32 %n
  %thread = load i64, ptr %slot
  %failed = call i32 @pthread_setaffinity_np(i64 %thread, i64 128, ptr @mask)
  %n1 = add i32 %n, 1
  br label %head
exit:
  ret void
}
define void @graphc_par(ptr %fn, ptr %arg, i64 %chunks) nounwind {
entry:
  %wanted = load atomic i32, ptr @wanted monotonic, align 4
  %one = icmp slt i32 %wanted, 2
  %few = icmp slt i64 %chunks, 2
  %alone = or i1 %one, %few
  br i1 %alone, label %serial, label %lock
serial:
  call void @serial(ptr %fn, ptr %arg, i64 %chunks)
  ret void
lock:
  %pair = cmpxchg ptr @busy, i32 0, i32 1 acquire monotonic
  %held = extractvalue { i32, i1 } %pair, 1
  br i1 %held, label %ready, label %serial
ready:
  %running = load i32, ptr @workers
  %absent = icmp eq i32 %running, 0
  br i1 %absent, label %create, label %place
create:
  call void @start()
  br label %place
place:
  %pinning = load i32, ptr @pinning
  %pins = icmp ne i32 %pinning, 0
  br i1 %pins, label %look, label %publish
look:
  %here = call i32 @sched_getcpu()
  %last = load i32, ptr @cpu
  %stayed = icmp eq i32 %here, %last
  br i1 %stayed, label %publish, label %move
move:
  call void @keep_off(i32 %here)
  br label %publish
publish:
  store ptr %fn, ptr @fn
  store ptr %arg, ptr @arg
  store i64 %chunks, ptr @chunks
  store atomic i64 0, ptr @done monotonic, align 8
  store atomic i64 %chunks, ptr @remaining release, align 8
  %epoch = atomicrmw add ptr @epoch, i32 1 seq_cst
  %sleepers = load atomic i32, ptr @sleepers seq_cst, align 4
  %asleep = icmp ne i32 %sleepers, 0
  br i1 %asleep, label %count, label %work
count: ; wake only as many as there are chunks for, beyond those who still spin
  %workers = load i32, ptr @workers
  %awake = sub i32 %workers, %sleepers
  %awake64 = sext i32 %awake to i64
  %others = sub i64 %chunks, 1
  %lacking = sub i64 %others, %awake64
  %needed = icmp sgt i64 %lacking, 0
  br i1 %needed, label %wake, label %work
wake:
  %many = icmp sgt i64 %lacking, 1024
  %wakes = select i1 %many, i64 1024, i64 %lacking
  %wakes32 = trunc i64 %wakes to i32
  %woken = call i64 @futex(i64 129, i32 %wakes32)
  br label %work
work:
  call void @drain()
  br label %wait
wait:
  %spun = phi i32 [ 0, %work ], [ %spun1, %pause ], [ 0, %yield ]
  %done = load atomic i64, ptr @done acquire, align 8
  %finished = icmp eq i64 %done, %chunks
  br i1 %finished, label %release, label %pause
pause:
  call void PAUSE
  %spun1 = add i32 %spun, 1
  %longer = icmp ult i32 %spun1, 2000
  br i1 %longer, label %wait, label %yield
yield: ; the worker may need this very CPU
  %yielded = call i32 @sched_yield()
  br label %wait
release:
  store atomic i32 0, ptr @busy release, align 4
  ret void
}
"""

_CONTROL = """
; Ends the present workers; the next region starts threads - 1 new ones.
define void @graphc_pool_resize(i32 %threads, i32 %spins, i32 %cpus, ptr %allowed) nounwind {
entry:
  br label %lock
lock:
  %pair = cmpxchg ptr @busy, i32 0, i32 1 acquire monotonic
  %held = extractvalue { i32, i1 } %pair, 1
  br i1 %held, label %change, label %yield
yield:
  %yielded = call i32 @sched_yield()
  br label %lock
change:
  call void @stop_workers()
  store atomic i32 %threads, ptr @wanted monotonic, align 4
  store atomic i32 %spins, ptr @spins monotonic, align 4
  %copied = call ptr @memcpy(ptr @allowed, ptr %allowed, i64 128)
  %fits = icmp sle i32 %threads, %cpus
  %pinning = zext i1 %fits to i32
  store i32 %pinning, ptr @pinning
  store atomic i32 0, ptr @busy release, align 4
  ret void
}
; In a forked child, where no worker exists and the parent may have been inside a region.
define void @graphc_pool_reset() nounwind {
  store i32 0, ptr @workers
  store atomic i32 0, ptr @sleepers seq_cst, align 4
  store atomic i64 0, ptr @remaining seq_cst, align 8
  store atomic i32 0, ptr @busy seq_cst, align 4
  ret void
}
"""


def pool_text(target: Target) -> str:
    """The pool's module: threads on Linux (x86-64 and AArch64), one after another elsewhere."""
    system = _SYSTEMS.get(target.arch)
    if system is None or "linux" not in target.triple:
        return _SERIAL + _WITHOUT_THREADS
    futex, pause = system
    text = "".join((_SERIAL, _STATE, _WORKER, _REGION, _CONTROL))
    return text.replace("FUTEX", str(futex)).replace("PAUSE", pause)


def kept_pools(directory: Path | None) -> Store:
    """Where pools are kept linked."""
    return Store(directory, b"graphc pool 1\n", ".pool")


class Pool:
    """A thread pool: compiled when first asked for its address, started when first used.

    It survives fork: the child's first parallel region starts workers of its own.
    """

    def __init__(
        self, threads: int | None = None, cache: Callable[[], ObjectCache] | None = None,
        kept: Store | None = None,
    ) -> None:
        """`cache`: of compiled text, asked for when something is compiled. `kept`: where it is
        found linked, if an earlier process has left it there."""
        self._threads = _checked(cpus.available() if threads is None else threads)
        self._cache, self._kept = cache, kept
        self._library: Library | None = None
        self._lock = threading.Lock()

    @property
    def threads(self) -> int:
        """How many threads run a region, its caller included."""
        return self._threads

    def set_threads(self, threads: int) -> None:
        """Changes the number of threads; waits for a region under way to end."""
        with self._lock:
            self._threads = _checked(threads)
            if self._library is not None:
                _resize(self._library, threads)

    @property
    def address(self) -> int:
        """The address of graphc_par, to link kernels against."""
        return self._built().address("graphc_par")

    def _built(self) -> Library:
        with self._lock:
            if self._library is None:
                self._library = self._linked()
                _resize(self._library, self._threads)
                _follow_forks()
                _built_pools.add(self)
                # The workers must be gone before their code is: at collection and at exit.
                weakref.finalize(self, _resize, self._library, 1)
            return self._library

    def _linked(self) -> Library:
        key = hashlib.sha256(b"pool" + (identity() or b"")).digest()
        found = self._kept.read(key) if self._kept is not None else None
        if found is not None:
            return Library.of(Image.decode(found))
        from graphc.backends.llvm.cache import ObjectCache
        from graphc.backends.llvm.target import host_target

        target, cache = host_target(), (self._cache or ObjectCache)()
        library = Library([cache.compile(pool_text(target), target)])
        if self._kept is not None and library.image is not None:
            self._kept.write(key, library.image.encode())
        return library

    def _after_fork(self) -> None:
        self._lock = threading.Lock()  # whoever held it is not in this process
        if self._library is not None:
            ctypes.CFUNCTYPE(None)(self._library.address("graphc_pool_reset"))()


_built_pools: weakref.WeakSet[Pool] = weakref.WeakSet()


@functools.cache
def _follow_forks() -> None:
    """Registers the children's reset, once."""

    def reset() -> None:
        for pool in list(_built_pools):
            pool._after_fork()

    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=reset)


def _checked(threads: int) -> int:
    if not 1 <= threads <= MAX_THREADS:
        raise ValueError(f"threads must be between 1 and {MAX_THREADS}, got {threads}")
    return threads


def _resize(library: Library, threads: int) -> None:
    mine = cpus.allowed()
    allowed = (ctypes.c_uint8 * MASK_BYTES)()
    for cpu in mine:
        if cpu < 8 * MASK_BYTES:
            allowed[cpu // 8] |= 1 << cpu % 8
    # With less than a CPU for each thread, a worker that spins takes time from one that works.
    spins = SPINS if threads <= cpus.available() else 0
    i32 = ctypes.c_int32
    resize = ctypes.CFUNCTYPE(None, i32, i32, i32, ctypes.c_void_p)
    resize(library.address("graphc_pool_resize"))(threads, spins, len(mine), allowed)
