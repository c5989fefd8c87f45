"""What the threads of a pool do with a region, LLVM IR: the text of both pools, the process's
(pool_text.py) and that of a library's context (freestanding/workers.py).

What differs is where a pool's words are: globals, or fields of a pool that functions are given. So
`$name` stands for the address of a word, `${pool}` for an argument in front of others (`${self}`:
alone), `$slot` finds where thread %n is kept. At a line `FIELDS a *b`, the addresses of a and b are
worked out, if they are fields; a star: b holds the address of other memory, which `$b` then is.
"""

from __future__ import annotations

import re
import string
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from graphc.backends.llvm.target import Target

# futex's number and a pause of tens of nanoseconds ("yield" on ARM is a nop on most cores).
_SYSTEMS = {
    "x86_64": (202, "@llvm.x86.sse2.pause()"),
    "aarch64": (98, "@llvm.aarch64.isb(i32 15)"),
}

# One chunk after another: what every path falls back to.
SERIAL = """
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

DECLARED = """
declare i64 @syscall(i64, ...)
declare i32 @pthread_create(ptr, ptr, ptr, ptr)
declare i32 @pthread_join(i64, ptr)
declare i32 @pthread_sigmask(i32, ptr, ptr)
declare i32 @sigfillset(ptr)
declare i32 @sched_yield()
declare void @llvm.x86.sse2.pause()
declare void @llvm.aarch64.isb(i32)
"""

DRAIN = """
; On the epoch: 128 waits while it is `value`, 129 wakes `value` sleepers (both process-private).
define internal i64 @futex(${pool}i64 %operation, i32 %value) nounwind {
  FIELDS epoch
  %result = call i64 (i64, ...) @syscall(
      i64 $FUTEX, ptr $epoch, i64 %operation, i32 %value, ptr null, ptr null, i64 0)
  ret i64 %result
}
; Runs chunks until none is left, those of the thread's own range first. A late worker that looks
; between two regions finds remaining <= 0; one that has counted itself in has acquired the region's
; fn, arg, chunks and ranges, and they stay until its chunk is done. As many are counted in as there
; are chunks, and a range that is empty stays so: going around, everyone finds one.
define internal void @drain(${pool}i64 %number) nounwind {
entry:
  FIELDS fn arg chunks ranges remaining done *claimed
  br label %claim
claim:
  %left = atomicrmw sub ptr $remaining, i64 1 acq_rel
  %some = icmp sgt i64 %left, 0
  br i1 %some, label %begin, label %exit
begin:
  %fn = load ptr, ptr $fn
  %arg = load ptr, ptr $arg
  %chunks = load i64, ptr $chunks
  %ranges = load i64, ptr $ranges
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
  %counter = getelementptr [16 x i64], ptr $claimed, i64 %range
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
  %count = atomicrmw add ptr $done, i64 1 release
  br label %claim
exit:
  ret void
}
"""

# A worker, behind what finds out its %number: it reads the epoch, then works, then waits for the
# epoch to move, so that no region is missed.
WORKING = """\
work:
  %epoch = load atomic i32, ptr $epoch seq_cst, align 4
  %stop = load atomic i32, ptr $stop seq_cst, align 4
  %ends = icmp ne i32 %stop, 0
  br i1 %ends, label %exit, label %begin
begin:
  call void @drain(${pool}i64 %number)
  %spins = load atomic i32, ptr $spins monotonic, align 4
  br label %spin
spin:
  %count = phi i32 [ 0, %begin ], [ %counted, %idle ]
  %now = load atomic i32, ptr $epoch acquire, align 4
  %same = icmp eq i32 %now, %epoch
  br i1 %same, label %idle, label %work
idle:
  call void $PAUSE
  %counted = add i32 %count, 1
  %longer = icmp ult i32 %counted, %spins
  br i1 %longer, label %spin, label %sleep
; The caller raises the epoch, then reads sleepers; we raise sleepers, then futex compares the
; epoch: one of us sees the other.
sleep:
  %s0 = atomicrmw add ptr $sleepers, i32 1 seq_cst
  %slept = call i64 @futex(${pool}i64 128, i32 %epoch)
  %s1 = atomicrmw sub ptr $sleepers, i32 1 seq_cst
  %woken = load atomic i32, ptr $epoch acquire, align 4
  %still = icmp eq i32 %woken, %epoch
  br i1 %still, label %sleep, label %work
exit:
  ret ptr null
}
"""

def starting(prepared: str, recorded: str) -> str:
    """What starts the workers. `prepared`: lines that run once before; `recorded`: lines that make
    %record, what worker number %n is told."""
    return f"""
; Creates the wanted workers (with every signal blocked: signals are for the program's threads).
define internal void @start(${{self}}) nounwind cold {{
entry:
  FIELDS stop wanted workers *records
  %all = alloca [128 x i8], align 8
  %old = alloca [128 x i8], align 8
  %filled = call i32 @sigfillset(ptr %all)
  %blocked = call i32 @pthread_sigmask(i32 2, ptr %all, ptr %old)
  store atomic i32 0, ptr $stop seq_cst, align 4
  %wanted = load atomic i32, ptr $wanted monotonic, align 4
{prepared}\
  br label %head
head:
  %n = phi i32 [ 0, %entry ], [ %n1, %made ]
  %n1 = add i32 %n, 1 ; the caller is 0
  %more = icmp slt i32 %n1, %wanted
  br i1 %more, label %make, label %exit
make:
{recorded}\
  %slot = $slot
  %failed = call i32 @pthread_create(ptr %slot, ptr null, ptr @worker, ptr %record)
  %ok = icmp eq i32 %failed, 0
  br i1 %ok, label %made, label %short
made:
  br label %head
short: ; the system gives no more: be content, and do not ask again
  store atomic i32 %n1, ptr $wanted monotonic, align 4
  br label %exit
exit:
  store i32 %n, ptr $workers
  %restored = call i32 @pthread_sigmask(i32 2, ptr %old, ptr null)
  ret void
}}
"""


STOPPING = """
; Ends the workers; called with the pool held.
define internal void @stop_workers(${self}) nounwind cold {
entry:
  FIELDS epoch stop workers *records
  store atomic i32 1, ptr $stop seq_cst, align 4
  %epoch = atomicrmw add ptr $epoch, i32 1 seq_cst
  %woken = call i64 @futex(${pool}i64 129, i32 2147483647)
  %workers = load i32, ptr $workers
  br label %head
head:
  %n = phi i32 [ 0, %entry ], [ %n1, %join ]
  %more = icmp slt i32 %n, %workers
  br i1 %more, label %join, label %exit
join:
  %slot = $slot
  %thread = load i64, ptr %slot
  %joined = call i32 @pthread_join(i64 %thread, ptr null)
  %n1 = add i32 %n, 1
  br label %head
exit:
  store i32 0, ptr $workers
  ret void
}
"""

# A region, behind what has taken the pool and made sure that workers run.
REGION = """\
publish:
  store ptr %fn, ptr $fn
  store ptr %arg, ptr $arg
  store i64 %chunks, ptr $chunks
  %hands = load i32, ptr $workers
  %hands64 = sext i32 %hands to i64
  %all = add nsw i64 %hands64, 1
  %fewer = icmp slt i64 %chunks, %all
  %ranges = select i1 %fewer, i64 %chunks, i64 %all
  store i64 %ranges, ptr $ranges
  br label %clear
clear:
  %range = phi i64 [ 0, %publish ], [ %range1, %clear ]
  %counter = getelementptr [16 x i64], ptr $claimed, i64 %range
  store atomic i64 0, ptr %counter monotonic, align 8
  %range1 = add nuw nsw i64 %range, 1
  %cleared = icmp eq i64 %range1, %ranges
  br i1 %cleared, label %open, label %clear
open:
  store atomic i64 0, ptr $done monotonic, align 8
  store atomic i64 %chunks, ptr $remaining release, align 8
  %epoch = atomicrmw add ptr $epoch, i32 1 seq_cst
  %sleepers = load atomic i32, ptr $sleepers seq_cst, align 4
  %asleep = icmp ne i32 %sleepers, 0
  br i1 %asleep, label %count, label %work
count: ; wake only as many as there are chunks for, beyond those who still spin
  %workers = load i32, ptr $workers
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
  %woken = call i64 @futex(${pool}i64 129, i32 %wakes32)
  br label %work
work:
  call void @drain(${pool}i64 0)
  br label %wait
wait:
  %spun = phi i32 [ 0, %work ], [ %spun1, %pause ], [ 0, %yield ]
  %done = load atomic i64, ptr $done acquire, align 8
  %finished = icmp eq i64 %done, %chunks
  br i1 %finished, label %release, label %pause
pause:
  call void $PAUSE
  %spun1 = add i32 %spun, 1
  %longer = icmp ult i32 %spun1, 2000
  br i1 %longer, label %wait, label %yield
yield: ; the worker may need this very CPU
  %yielded = call i32 @sched_yield()
  br label %wait
release:
  store atomic i32 0, ptr $busy release, align 4
  ret void
}
"""


def system_of(target: Target) -> tuple[int, str] | None:
    """The number of futex and a pause, where a target has threads."""
    return _SYSTEMS.get(target.arch) if "linux" in target.triple else None


def rendered(
    text: str, system: tuple[int, str], words: dict[str, str], fields: Callable[[str], str]
) -> str:
    """The text with what its `$name` stand for. `fields`: the lines for `FIELDS`."""
    text = re.sub(r"^  FIELDS (.*)\n", lambda found: fields(found[1]), text, flags=re.MULTILINE)
    futex, pause = system
    return string.Template(text).substitute(words, FUTEX=futex, PAUSE=pause)
