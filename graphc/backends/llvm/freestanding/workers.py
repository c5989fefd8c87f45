"""The threads of a context, LLVM IR: @graphc_par for its kernels. What starts and ends them is
workers_control.py.

The regions are those of the process's pool (regions.py). What differs: a pool is memory of its
context, found by a thread-local word while a call runs, so that contexts on several threads do not
wait for each other; nobody's affinity is touched; and workers know the process they were started
in, so that a forked child, which has none of them, starts its own. When the library is unloaded,
those that live are joined.
"""

from __future__ import annotations

from graphc.backends.llvm.freestanding.workers_control import (
    CONTROL,
    ENDING,
    SPINNING,
    STARTING,
)
from graphc.backends.llvm.pool import SPINS
from graphc.backends.llvm.regions import (
    DECLARED,
    DRAIN,
    REGION,
    SERIAL,
    STOPPING,
    WORKING,
    rendered,
    system_of,
)
from graphc.backends.llvm.target import Target

# of a pool, by bytes: each word that several threads write has a line (two) of its own
_FIELDS = {
    "fn": 0, "arg": 8, "chunks": 16, "ranges": 24, "remaining": 128, "done": 256, "epoch": 384,
    "sleepers": 512, "busy": 640, "stop": 768, "wanted": 896, "workers": 900, "spins": 904,
    "pid": 908, "claimed": 912, "records": 920, "next": 928,
}
# of a worker, among the records: its pool, its number, its thread
_RECORD = "{ ptr, i64, i64, i64 }"

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

_STATE = """
@current = internal thread_local(initialexec) global ptr null
@pools = internal global ptr null      ; those of living contexts
@lock = internal global i32 0          ; the number of the process that has the list
@unloaded = internal global [1 x ptr] [ptr @unload], section ".fini_array", align 8
@llvm.used = appending global [1 x ptr] [ptr @unloaded], section "llvm.metadata"
declare i32 @getpid()
declare i32 @sched_getaffinity(i32, i64, ptr)
declare i64 @llvm.ctpop.i64(i64)
"""

_WORKER = """\
define internal ptr @worker(ptr %record) nounwind {
entry:
  %pool = load ptr, ptr %record
  %number.at = getelementptr $RECORD, ptr %record, i32 0, i32 1
  %number = load i64, ptr %number.at
  FIELDS epoch sleepers stop spins
  br label %work
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
  FIELDS fn arg chunks ranges remaining done epoch sleepers busy workers *claimed
  %pair = cmpxchg ptr $busy, i32 0, i32 1 acquire monotonic
  %held = extractvalue { i32, i1 } %pair, 1
  br i1 %held, label %publish, label %serial
"""


def workers_text(target: Target) -> str:
    """The module: threads on Linux (x86-64 and AArch64), one chunk after another elsewhere."""
    system = system_of(target)
    if system is None:
        return SERIAL + _WITHOUT_THREADS
    words = {name: f"%{name}.at" for name in _FIELDS}
    words |= {"claimed": "%claimed", "records": "%records"}
    words |= {
        "self": "ptr %pool", "pool": "ptr %pool, ", "SPINS": str(SPINS), "RECORD": _RECORD,
        "slot": f"getelementptr {_RECORD}, ptr %records, i32 %n, i32 2",
        "NEXT": str(_FIELDS["next"]),
    }
    parts = (
        DECLARED, DRAIN, _WORKER, WORKING, SPINNING, STARTING, ENDING, STOPPING, _REGION, REGION,
        CONTROL,
    )
    return SERIAL + _STATE + rendered("".join(parts), system, words, _places)


def _places(fields: str) -> str:
    """The addresses of fields, and what lies at those with a star."""
    lines = []
    for field in fields.split():
        name = field.lstrip("*")
        lines.append(f"  %{name}.at = getelementptr i8, ptr %pool, i64 {_FIELDS[name]}\n")
        if field != name:
            lines.append(f"  %{name} = load ptr, ptr %{name}.at\n")
    return "".join(lines)
