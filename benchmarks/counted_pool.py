"""A stand-in for the pool that keeps a log: each chunk of each region runs on the calling thread,
between two readings of the processor's clock. What a schedule makes of them, and what is left for
one thread, can then be told without a second core, and beside other programs.

    log = Log()              before anything is compiled: code is linked against it from then on
    log.regions()            since the last call: seconds of each chunk, region by region
"""

from __future__ import annotations

import ctypes
import heapq
import itertools
import time

from graphc.backends.llvm.jit import compile_object
from graphc.backends.llvm.library import Library
from graphc.backends.llvm.pool import Pool
from graphc.backends.llvm.target import host_target

Regions = list[list[float]]

_WORDS = 1 << 22

# The log: of each region the number of its chunks, the clock before the first, and after each.
# A region inside a region is part of its chunk. What finds no room is run, and not told.
_TEXT = f"""
@used = global i64 0
@log = global [{_WORDS} x i64] zeroinitializer
@depth = internal global i64 0
declare i64 @llvm.readcyclecounter()
define internal void @serial(ptr %fn, ptr %arg, i64 %chunks, ptr %at) {{
entry:
  %some = icmp sgt i64 %chunks, 0
  br i1 %some, label %body, label %exit
body:
  %i = phi i64 [ 0, %entry ], [ %next, %on ]
  call void %fn(ptr %arg, i64 %i)
  %next = add nsw i64 %i, 1
  %quiet = icmp eq ptr %at, null
  br i1 %quiet, label %on, label %told
told:
  %clock = call i64 @llvm.readcyclecounter()
  %word = getelementptr i64, ptr %at, i64 %next
  store i64 %clock, ptr %word
  br label %on
on:
  %more = icmp slt i64 %next, %chunks
  br i1 %more, label %body, label %exit
exit:
  ret void
}}
define void @graphc_par(ptr %fn, ptr %arg, i64 %chunks) {{
  %depth = load i64, ptr @depth
  %used = load i64, ptr @used
  %room = add i64 %chunks, 2
  %full = add i64 %used, %room
  %fits = icmp sle i64 %full, {_WORDS}
  %outer = icmp eq i64 %depth, 0
  %tells = and i1 %fits, %outer
  br i1 %tells, label %told, label %quiet
quiet:
  call void @serial(ptr %fn, ptr %arg, i64 %chunks, ptr null)
  ret void
told:
  store i64 1, ptr @depth
  %at = getelementptr i64, ptr @log, i64 %used
  store i64 %chunks, ptr %at
  %first = getelementptr i64, ptr %at, i64 1
  %clock = call i64 @llvm.readcyclecounter()
  store i64 %clock, ptr %first
  call void @serial(ptr %fn, ptr %arg, i64 %chunks, ptr %first)
  store i64 %full, ptr @used
  store i64 0, ptr @depth
  ret void
}}
"""


class Log:
    """Of one thread's calls."""

    def __init__(self) -> None:
        self._library = Library([compile_object(_TEXT, host_target())])
        address = self._library.address("graphc_par")
        Pool.address = property(lambda pool: address)  # type: ignore[assignment,method-assign]
        self._used = ctypes.c_int64.from_address(self._library.address("used"))
        self._log = (ctypes.c_int64 * _WORDS).from_address(self._library.address("log"))
        self._tick = self._seconds_of_tick()

    def regions(self) -> Regions:
        """Those since the last call: seconds of each chunk."""
        words, found = self._log[: self._used.value], []
        self._used.value = 0
        at = 0
        while at < len(words):
            clocks = words[at + 1 : at + 2 + words[at]]
            found.append([self._tick * (b - a) for a, b in itertools.pairwise(clocks)])
            at += 2 + words[at]
        return found

    def _seconds_of_tick(self) -> float:
        """By two readings of both clocks."""
        region = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64)(
            self._library.address("graphc_par")
        )
        readings = []
        for _ in range(2):
            region(None, None, 0)
            readings.append((time.perf_counter(), self._log[self._used.value - 1]))
            time.sleep(0.1)
        self._used.value = 0
        (begin, first), (end, last) = readings
        return (end - begin) / (last - first)


def fastest(times: list[Regions]) -> Regions:
    """Of calls that did the same: each chunk when nothing was in its way."""
    shapes = [[len(region) for region in regions] for regions in times]
    alike = [regions for regions, shape in zip(times, shapes, strict=True) if shape == shapes[-1]]
    return [list(map(min, *chunks)) if len(alike) > 1 else chunks[0]
            for chunks in zip(*alike, strict=True)]


def span(chunks: list[float], threads: int) -> float:
    """Seconds of a region on so many equal threads, each of which claims the next chunk when it is
    free."""
    free = [0.0] * threads
    for chunk in chunks:
        heapq.heapreplace(free, free[0] + chunk)
    return max(free)
