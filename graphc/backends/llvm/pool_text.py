"""The process's thread pool, LLVM IR: graphc_par, and what pool.py calls besides. What threads do
with a region is regions.py. Each word that several threads write has a cache line (two, for the
prefetcher) of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING

from graphc.backends.llvm.regions import (
    DECLARED,
    DRAIN,
    REGION,
    SERIAL,
    STOPPING,
    WORKING,
    rendered,
    starting,
    system_of,
)

if TYPE_CHECKING:
    from graphc.backends.llvm.target import Target

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

_STATE = """
; The region: written by its caller before `remaining`, read after a chunk was claimed from it.
@fn = internal global ptr null, align 128
@arg = internal global ptr null
@chunks = internal global i64 0
@remaining = internal global i64 0, align 128  ; chunks to claim; below 0 if idle workers looked
@ranges = internal global i64 1
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
; Chunks claimed of each range; more than it has if somebody looked for another there.
@claimed = internal global [1024 x [16 x i64]] zeroinitializer, align 128
declare i32 @pthread_setaffinity_np(i64, i64, ptr)
declare i32 @sched_getcpu()
declare ptr @memcpy(ptr, ptr, i64)
"""

_WORKER = """\
define internal ptr @worker(ptr %numbered) nounwind {
entry:
  %number = ptrtoint ptr %numbered to i64
  br label %work
"""

_STARTING = starting(
    "  store i32 -1, ptr @cpu\n", "  %record = inttoptr i32 %n1 to ptr ; its number\n"
)

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

_WORDS = """
fn arg chunks remaining ranges done epoch sleepers busy stop wanted workers spins claimed
""".split()


def pool_text(target: Target) -> str:
    """The pool's module: threads on Linux (x86-64 and AArch64), one after another elsewhere."""
    system = system_of(target)
    if system is None:
        return SERIAL + _WITHOUT_THREADS
    words = {name: f"@{name}" for name in _WORDS}
    words |= {"self": "", "pool": "", "slot": "getelementptr i64, ptr @threads, i32 %n"}
    parts = (DECLARED, DRAIN, _WORKER, WORKING, _STARTING, STOPPING, _REGION, REGION, _CONTROL)
    return SERIAL + _STATE + rendered("".join(parts), system, words, lambda fields: "")
