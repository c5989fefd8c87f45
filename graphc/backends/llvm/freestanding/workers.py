"""The threads of a context, LLVM IR: @graphc_par for its kernels. What starts and ends them is
workers_control.py.

The regions are those of pool_text.py: each thread claims the chunks of a range of its own, then
what is left of the others'. What differs: a pool is memory of its context, found by a thread-local
word while a call runs, so that contexts on several threads do not wait for each other; nobody's
affinity is touched; and workers know the process they were started in, so that a forked child,
which has none of them, starts its own. When the library is unloaded, those that live are joined.
"""

from __future__ import annotations

import re

from graphc.backends.llvm.freestanding.workers_control import CONTROL, STARTING
from graphc.backends.llvm.target import Target

# of a pool, by bytes: each word that several threads write has a line (two) of its own
_FIELDS = {
    "fn": 0, "arg": 8, "chunks": 16, "ranges": 24, "remaining": 128, "done": 256, "epoch": 384,
    "sleepers": 512, "busy": 640, "stop": 768, "wanted": 896, "workers": 900, "spins": 904,
    "pid": 908, "claimed": 912, "records": 920, "next": 928,
}
_SYSTEMS = {
    "x86_64": (202, "@llvm.x86.sse2.pause()"),
    "aarch64": (98, "@llvm.aarch64.isb(i32 15)"),
}
SPINS = 20_000  # of an idle worker before it sleeps: see pool.py

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
define hidden void @graphc_par(ptr %fn, ptr %arg, i64 %chunks) nounwind {
  call void @serial(ptr %fn, ptr %arg, i64 %chunks)
  ret void
}
define hidden void @graphc_pool_place(ptr %pool, ptr %claimed, ptr %records) nounwind {
  ret void
}
define hidden i32 @graphc_pool_resize(ptr %pool, i32 %threads) nounwind {
  ret i32 1
}
define hidden void @graphc_pool_enter(ptr %pool) nounwind {
  ret void
}
define hidden void @graphc_pool_leave() nounwind {
  ret void
}
define hidden void @graphc_pool_list(ptr %pool) nounwind {
  ret void
}
define hidden void @graphc_pool_forget(ptr %pool) nounwind {
  ret void
}
"""

_DECLARED = """
@current = internal thread_local(initialexec) global ptr null
@pools = internal global ptr null      ; those of living contexts
@lock = internal global i32 0          ; the number of the process that has the list
@unloaded = internal global [1 x ptr] [ptr @unload], section ".fini_array", align 8
@llvm.used = appending global [1 x ptr] [ptr @unloaded], section "llvm.metadata"
declare i64 @syscall(i64, ...)
declare i32 @getpid()
declare i32 @pthread_create(ptr, ptr, ptr, ptr)
declare i32 @pthread_join(i64, ptr)
declare i32 @pthread_sigmask(i32, ptr, ptr)
declare i32 @sigfillset(ptr)
declare i32 @sched_getaffinity(i32, i64, ptr)
declare i32 @sched_yield()
declare i64 @llvm.ctpop.i64(i64)
declare void @llvm.x86.sse2.pause()
declare void @llvm.aarch64.isb(i32)
"""

_WORKER = """
; On the epoch: 128 waits while it is `value`, 129 wakes `value` sleepers (both process-private).
define internal i64 @futex(ptr %epoch, i64 %operation, i32 %value) nounwind {
  %result = call i64 (i64, ...) @syscall(
      i64 FUTEX, ptr %epoch, i64 %operation, i32 %value, ptr null, ptr null, i64 0)
  ret i64 %result
}
; Runs chunks until none is left, those of the thread's own range first. A late worker that looks
; between two regions finds remaining <= 0; one that has counted itself in has acquired the region's
; fn, arg, chunks and ranges, and they stay until its chunk is done. As many are counted in as there
; are chunks, and a range that is empty stays so: going around, everyone finds one.
define internal void @drain(ptr %pool, i64 %number) nounwind {
entry:
  FIELDS arg chunks ranges remaining done claimed
  br label %claim
claim:
  %left = atomicrmw sub ptr %remaining.at, i64 1 acq_rel
  %some = icmp sgt i64 %left, 0
  br i1 %some, label %begin, label %exit
begin:
  %fn = load ptr, ptr %pool
  %arg = load ptr, ptr %arg.at
  %chunks = load i64, ptr %chunks.at
  %ranges = load i64, ptr %ranges.at
  %counters = load ptr, ptr %claimed.at
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
  %counter = getelementptr [16 x i64], ptr %counters, i64 %range
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
  %count = atomicrmw add ptr %done.at, i64 1 release
  br label %claim
exit:
  ret void
}
; Reads the epoch, then works, then waits for the epoch to move: no region is missed.
define internal ptr @worker(ptr %record) nounwind {
entry:
  %pool = load ptr, ptr %record
  %number.at = getelementptr i8, ptr %record, i64 8
  %number = load i64, ptr %number.at
  FIELDS epoch sleepers stop spins
  br label %work
work:
  %epoch = load atomic i32, ptr %epoch.at seq_cst, align 4
  %stop = load atomic i32, ptr %stop.at seq_cst, align 4
  %ends = icmp ne i32 %stop, 0
  br i1 %ends, label %exit, label %begin
begin:
  call void @drain(ptr %pool, i64 %number)
  %spins = load atomic i32, ptr %spins.at monotonic, align 4
  br label %spin
spin:
  %count = phi i32 [ 0, %begin ], [ %counted, %idle ]
  %now = load atomic i32, ptr %epoch.at acquire, align 4
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
  %s0 = atomicrmw add ptr %sleepers.at, i32 1 seq_cst
  %slept = call i64 @futex(ptr %epoch.at, i64 128, i32 %epoch)
  %s1 = atomicrmw sub ptr %sleepers.at, i32 1 seq_cst
  %woken = load atomic i32, ptr %epoch.at acquire, align 4
  %still = icmp eq i32 %woken, %epoch
  br i1 %still, label %sleep, label %work
exit:
  ret ptr null
}
"""

_REGION = """
define hidden void @graphc_par(ptr %fn, ptr %arg, i64 %chunks) nounwind {
entry:
  %pool = load ptr, ptr @current
  %none = icmp eq ptr %pool, null
  %few = icmp slt i64 %chunks, 2
  %alone = or i1 %none, %few
  br i1 %alone, label %serial, label %lock
serial:
  call void @serial(ptr %fn, ptr %arg, i64 %chunks)
  ret void
lock: ; a region inside a region finds it taken
  FIELDS arg chunks ranges remaining done epoch sleepers busy workers claimed
  %pair = cmpxchg ptr %busy.at, i32 0, i32 1 acquire monotonic
  %held = extractvalue { i32, i1 } %pair, 1
  br i1 %held, label %publish, label %serial
publish:
  store ptr %fn, ptr %pool
  store ptr %arg, ptr %arg.at
  store i64 %chunks, ptr %chunks.at
  %hands = load i32, ptr %workers.at
  %hands64 = sext i32 %hands to i64
  %all = add nsw i64 %hands64, 1
  %fewer = icmp slt i64 %chunks, %all
  %ranges = select i1 %fewer, i64 %chunks, i64 %all
  store i64 %ranges, ptr %ranges.at
  %counters = load ptr, ptr %claimed.at
  br label %clear
clear:
  %range = phi i64 [ 0, %publish ], [ %range1, %clear ]
  %counter = getelementptr [16 x i64], ptr %counters, i64 %range
  store atomic i64 0, ptr %counter monotonic, align 8
  %range1 = add nuw nsw i64 %range, 1
  %cleared = icmp eq i64 %range1, %ranges
  br i1 %cleared, label %open, label %clear
open:
  store atomic i64 0, ptr %done.at monotonic, align 8
  store atomic i64 %chunks, ptr %remaining.at release, align 8
  %epoch = atomicrmw add ptr %epoch.at, i32 1 seq_cst
  %sleepers = load atomic i32, ptr %sleepers.at seq_cst, align 4
  %asleep = icmp ne i32 %sleepers, 0
  br i1 %asleep, label %count, label %work
count: ; wake only as many as there are chunks for, beyond those who still spin
  %awake = sub i32 %hands, %sleepers
  %awake64 = sext i32 %awake to i64
  %others = sub i64 %chunks, 1
  %lacking = sub i64 %others, %awake64
  %needed = icmp sgt i64 %lacking, 0
  br i1 %needed, label %wake, label %work
wake:
  %many = icmp sgt i64 %lacking, 1024
  %wakes = select i1 %many, i64 1024, i64 %lacking
  %wakes32 = trunc i64 %wakes to i32
  %woken = call i64 @futex(ptr %epoch.at, i64 129, i32 %wakes32)
  br label %work
work:
  call void @drain(ptr %pool, i64 0)
  br label %wait
wait:
  %spun = phi i32 [ 0, %work ], [ %spun1, %pause ], [ 0, %yield ]
  %done = load atomic i64, ptr %done.at acquire, align 8
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
  store atomic i32 0, ptr %busy.at release, align 4
  ret void
}
"""

def workers_text(target: Target) -> str:
    """The module: threads on Linux (x86-64 and AArch64), one chunk after another elsewhere."""
    system = _SYSTEMS.get(target.arch)
    if system is None or "linux" not in target.triple:
        return _SERIAL + _WITHOUT_THREADS
    futex, pause = system
    text = "".join((_SERIAL, _DECLARED, _WORKER, STARTING, _REGION, CONTROL))
    text = re.sub(r"^  FIELDS (.*)$", _places, text, flags=re.MULTILINE)
    for name, value in (
        ("FUTEX", futex), ("PAUSE", pause), ("SPINS", SPINS), ("NEXT", _FIELDS["next"]),
    ):
        text = text.replace(name, str(value))
    return text


def _places(found: re.Match[str]) -> str:
    """The addresses of fields."""
    return "\n".join(
        f"  %{name}.at = getelementptr i8, ptr %pool, i64 {_FIELDS[name]}"
        for name in found[1].split()
    )
