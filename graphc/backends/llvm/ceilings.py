"""What this machine can do at most: fused multiply-adds and copied bytes a second, measured.

Kernels are judged by it (graphc.profiler, benchmarks); nothing that compiles reads it.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import json
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from graphc.backends.host.store import Store
from graphc.backends.llvm.jit import compile_object
from graphc.backends.llvm.library import Library
from graphc.backends.llvm.target import Target, host_target

_CHAINS = 12  # independent sums: more than latency times units (5 x 2), and 16 registers hold them
_STEPS = 6_000_000  # of each chain: ten milliseconds, or threads end before each has a core
_COPIED = 128 << 20  # bytes of a thread's copy: beyond the caches
_ROUNDS = 7


class Ceilings(NamedTuple):
    """A second's bytes, read and written by a copy of memory beyond the caches, and floating-point
    operations, f32 multiply-adds in registers, two each."""

    bytes: float
    flops: float


def measured(threads: int, directory: Path | None = None) -> Ceilings:
    """Takes about a second at the first question of a machine; kept in `directory`."""
    target = host_target()
    store = Store(directory, b"graphc ceilings 3\n", ".ceilings")
    key = hashlib.sha256(repr((target, threads)).encode()).digest()
    kept = store.read(key)
    if kept is not None:
        return Ceilings(*json.loads(kept))
    limits = Limits(threads)
    copying = min(limits.copying(threads) for _ in range(_ROUNDS))
    adding = min(limits.adding(threads) for _ in range(_ROUNDS))
    found = Ceilings(limits.bytes * threads / copying, limits.flops * threads / adding)
    store.write(key, json.dumps(found).encode())
    return found


class Limits:
    """Seconds in which each of some threads, `most` or fewer, does the same work at once: copies of
    `bytes`, read and written, or `flops` of multiply-adds. The first is slower: pages, caches."""

    def __init__(self, most: int) -> None:
        target = host_target()
        self.bytes = 2.0 * _COPIED
        self.flops = 2.0 * target.lanes(4) * _CHAINS * _STEPS
        run, self._library = _chains(target)
        results = [(ctypes.c_float * 16)() for _ in range(most)]
        pairs = [(ctypes.create_string_buffer(_COPIED), ctypes.create_string_buffer(_COPIED))
                 for _ in range(most)]
        for pair in pairs:
            for buffer in pair:
                ctypes.memset(buffer, 1, _COPIED)  # pages that are there
        self._adding = [functools.partial(run, _STEPS, result) for result in results]
        self._copying = [functools.partial(ctypes.memmove, a, b, _COPIED) for a, b in pairs]

    def adding(self, threads: int) -> float:
        """Multiply-adds in registers."""
        return _together(self._adding[:threads])

    def copying(self, threads: int) -> float:
        """Beyond the caches."""
        return _together(self._copying[:threads])


def _chains(target: Target) -> tuple[Callable[..., None], Library]:
    """A function (steps, result) that does nothing but multiply-adds in registers."""
    vector = f"<{target.lanes(4)} x float>"
    lines = [
        f"declare {vector} @llvm.fma.v{target.lanes(4)}f32({vector}, {vector}, {vector})",
        "define void @chains(i64 %steps, ptr %result) {", "entry:",
        "  %number = load volatile float, ptr %result",
        f"  %one = insertelement {vector} poison, float %number, i32 0",
        f"  %all = shufflevector {vector} %one, {vector} poison, "
        f"<{target.lanes(4)} x i32> zeroinitializer",
        "  br label %loop", "loop:", "  %step = phi i64 [ 0, %entry ], [ %next, %loop ]",
    ]
    for chain in range(_CHAINS):
        lines.append(f"  %c{chain} = phi {vector} [ %all, %entry ], [ %d{chain}, %loop ]")
    for chain in range(_CHAINS):
        lines.append(
            f"  %d{chain} = call {vector} @llvm.fma.v{target.lanes(4)}f32"
            f"({vector} %c{chain}, {vector} %all, {vector} %all)"
        )
    lines += [
        "  %next = add i64 %step, 1", "  %more = icmp ult i64 %next, %steps",
        "  br i1 %more, label %loop, label %done", "done:",
    ]
    for chain in range(_CHAINS):
        lines.append(f"  store volatile {vector} %d{chain}, ptr %result, align 4")
    lines += ["  ret void", "}"]
    library = Library([compile_object("\n".join(lines), target)])
    kind = ctypes.CFUNCTYPE(None, ctypes.c_int64, ctypes.c_void_p)
    return kind(library.address("chains")), library


def _together(work: Sequence[Callable[[], object]]) -> float:
    """Seconds in which all of it is done, a thread each (ctypes lets go of the GIL)."""
    gate = threading.Barrier(len(work) + 1)

    def run(job: Callable[[], object]) -> None:
        gate.wait()
        job()
        gate.wait()

    threads = [threading.Thread(target=run, args=(job,)) for job in work]
    for thread in threads:
        thread.start()
    gate.wait()
    begin = time.perf_counter()
    gate.wait()
    seconds = time.perf_counter() - begin
    for thread in threads:
        thread.join()
    return seconds
