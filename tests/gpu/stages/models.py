"""The three large workloads at full size: graphc beside PyTorch eager and its compiler."""

from __future__ import annotations

import gc
import time
from typing import Any

from benchmarks import large

from ..bed import Bed
from ..results import Record
from ..timing import Timed, peers

# what runs it, whether it is compiled, and how
WAYS: tuple[tuple[str, bool, str | None], ...] = (
    ("graphc", True, None), ("torch.compile", False, None), ("torch.compile", True, None),
)


def run(bed: Bed, record: Record) -> None:
    """A line for each workload and way: the first call, a call, memory at most."""
    with bed.device():
        for work in large.WORKS.values():
            for package, compiled, mode in WAYS:
                if package in peers(bed):
                    name = package if compiled else "torch eager"
                    record(f"{work.name} {name}", **_measured(bed, work, package, compiled, mode))


def _measured(
    bed: Bed, work: large.Work, package: str, compiled: bool, mode: str | None
) -> dict[str, Any]:
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
    fields = {
        "result": result, "first_call_s": first, "ms": ms,
        "TFLOP/s": work.flops / ms / 1e9 if bed.large and ms else 0.0,
        "peak_bytes": torch.cuda.max_memory_allocated(),
    }
    del function, inputs, call
    gc.collect()
    torch.cuda.empty_cache()
    return fields
