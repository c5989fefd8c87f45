"""The three large workloads at full size: graphc, and where its time goes, beside PyTorch eager and
its compiler."""

from __future__ import annotations

import gc
import time
from typing import Any

import graphc
from benchmarks import large
from graphc.profiler import ProfilerActivity, profile

from ..bed import Bed
from ..results import Record, tried
from ..timing import Timed, peers

# what runs it, whether it is compiled, and how; graphc answers for all before the others begin
WAYS: tuple[tuple[str, bool, str | None], ...] = (
    ("graphc", True, None), ("torch.compile", False, None), ("torch.compile", True, None),
)
_CALLS, _KERNELS = 3, 15  # that are profiled; of which a line tells


def run(bed: Bed, record: Record) -> None:
    """A line for each workload and way: the first call, a call, memory at most; and for graphc
    what it was compiled to, and the kernels that take longest."""
    with bed.device():
        for package, compiled, mode in WAYS:
            for work in large.WORKS.values():
                if package in peers(bed):
                    with tried(record, f"{work.name} {package}"):
                        _measure(bed, work, package, compiled, mode, record)


def _measure(
    bed: Bed, work: large.Work, package: str, compiled: bool, mode: str | None, record: Record
) -> None:
    torch = peers(bed)[package]
    torch.manual_seed(0)
    torch.cuda.reset_peak_memory_stats()
    function, inputs = work.make(large.load(torch.__name__), "cuda", not bed.large)
    torch.cuda.synchronize()
    call = torch.compile(function, mode=mode) if compiled else function
    began = time.perf_counter()
    result = float(call(*inputs).detach().float().mean())
    first = time.perf_counter() - began
    ms = Timed(bed, package).median(call, inputs, compiled=False)
    record(
        f"{work.name} {package if compiled else 'torch eager'}", result=result,
        first_call_s=first, ms=ms, peak_bytes=torch.cuda.max_memory_allocated(),
        **{"TFLOP/s": work.flops / ms / 1e9 if bed.large and ms else 0.0},
    )
    if torch is graphc:
        _explained(work.name, call, inputs, record)
    del function, inputs, call
    gc.collect()
    torch.cuda.empty_cache()


def _explained(name: str, call: Any, inputs: tuple[Any, ...], record: Record) -> None:
    """Seconds of compiling; launches, graphs, registers; and the kernels by their times."""
    found = graphc.explain(call, *inputs)
    record(f"{name} seconds", **{stage: round(s, 3) for stage, s in found.times.items()})
    for part in found.parts:
        for line in part.built.executable.stats.remarks:
            record(f"{name} explain", said=line)
    with profile(activities=[ProfilerActivity.CUDA]) as profiler:
        for _ in range(_CALLS):
            call(*inputs)
    kernels = [event for event in profiler.key_averages() if event.work is not None]
    kernels.sort(key=lambda event: -event.work.seconds)
    for event in kernels[:_KERNELS]:
        seconds = event.work.seconds
        record(
            f"{name} {event.key}", ms=seconds * 1e3 / _CALLS, launches=event.count / _CALLS,
            what=event.work.what, bytes=event.bytes / _CALLS, flop=event.flops / _CALLS,
            **{
                "TB/s": event.bytes / seconds / 1e12 if seconds else 0.0,
                "TFLOP/s": event.flops / seconds / 1e12 if seconds else 0.0,
            },
        )
    total = sum(event.device_total for event in profiler.events())
    record(f"{name} kernels", ms=total * 1e3 / _CALLS, distinct=len(kernels))
