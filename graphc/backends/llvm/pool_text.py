"""The thread pool's code, LLVM IR: graphc_par, and what pool.py calls besides. Each word that
several threads write has a cache line (two, for the prefetcher) of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from graphc.backends.llvm.target import Target

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
; Runs chunks until none is left, those of the thread's own range first. A late worker that looks
; between two regions finds remaining <= 0; one that has counted itself in has acquired the region's
; fn, arg, chunks and ranges, and they stay until its chunk is done. As many are counted in as there
; are chunks, and a range that is empty stays so: going around, everyone finds one.
define internal void @drain(i64 %number) nounwind {
entry:
  br label %claim
claim:
  %left = atomicrmw sub ptr @remaining, i64 1 acq_rel
  %some = icmp sgt i64 %left, 0
  br i1 %some, label %begin, label %exit
begin:
  %fn = load ptr, ptr @fn
  %arg = load ptr, ptr @arg
  %chunks = load i64, ptr @chunks
  %ranges = load i64, ptr @ranges
  %own = urem i64 %number, %ranges
  br label %look
look:
  %range = phi i64 [ %own, %begin ], [ %next, %empty ]
  %up = add nuw nsw i64 %range, 1
  %low = mul nuw nsw i64 %range, %chunks
  %high = mul nuw nsw i64 %up, %chunks
  %first = udiv i64 %low, %ranges
  %end = udiv i64 %high, %ranges
  %size = sub nsw i64 %end, %first
  %counter = getelementptr [16 x i64], ptr @claimed, i64 %range
  %seen = load atomic i64, ptr %counter monotonic, align 8
  %open = icmp slt i64 %seen, %size
  br i1 %open, label %try, label %empty
try:
  %at = atomicrmw add ptr %counter, i64 1 monotonic
  %found = icmp slt i64 %at, %size
  br i1 %found, label %run, label %empty
empty:
  %last = icmp eq i64 %up, %ranges
  %next = select i1 %last, i64 0, i64 %up
  br label %look
run:
  %chunk = add nsw i64 %first, %at
  call void %fn(ptr %arg, i64 %chunk)
  %count = atomicrmw add ptr @done, i64 1 release
  br label %claim
exit:
  ret void
}
; Reads the epoch, then works, then waits for the epoch to move: no region is missed.
define internal ptr @worker(ptr %numbered) nounwind {
entry:
  %number = ptrtoint ptr %numbered to i64
  br label %work
work:
  %epoch = load atomic i32, ptr @epoch seq_cst, align 4
  %stop = load atomic i32, ptr @stop seq_cst, align 4
  %ends = icmp ne i32 %stop, 0
  br i1 %ends, label %exit, label %begin
begin:
  call void @drain(i64 %number)
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
  %number = inttoptr i32 %n1 to ptr ; the caller is 0
  %failed = call i32 @pthread_create(ptr %slot, ptr null, ptr @worker, ptr %number)
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
  %hands = load i32, ptr @workers
  %hands64 = sext i32 %hands to i64
  %all = add nsw i64 %hands64, 1
  %fewer = icmp slt i64 %chunks, %all
  %ranges = select i1 %fewer, i64 %chunks, i64 %all
  store i64 %ranges, ptr @ranges
  br label %clear
clear:
  %range = phi i64 [ 0, %publish ], [ %range1, %clear ]
  %counter = getelementptr [16 x i64], ptr @claimed, i64 %range
  store atomic i64 0, ptr %counter monotonic, align 8
  %range1 = add nuw nsw i64 %range, 1
  %cleared = icmp eq i64 %range1, %ranges
  br i1 %cleared, label %open, label %clear
open:
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
  call void @drain(i64 0)
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
