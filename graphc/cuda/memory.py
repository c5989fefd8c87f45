"""torch.cuda.memory: what the allocator of a GPU's memory has counted, and its cache.
pytorch.org/docs/stable/cuda.html#memory-management"""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

from . import absent
from .available import gpu, is_available, needs_gpu
from .available import gpus as _gpus


def _statistics(device: Any) -> Any:
    """None where there is no GPU, as nothing is counted then."""
    return gpu(device).allocator.statistics if is_available() else None


def memory_allocated(device: Any = None) -> int:
    """Bytes of tensors."""
    found = _statistics(device)
    return 0 if found is None else int(found.allocated_bytes.current)


def max_memory_allocated(device: Any = None) -> int:
    """The most bytes of tensors since reset_peak_memory_stats()."""
    found = _statistics(device)
    return 0 if found is None else int(found.allocated_bytes.peak[0])


def memory_reserved(device: Any = None) -> int:
    """Bytes that the driver has given: of tensors, and cached."""
    found = _statistics(device)
    return 0 if found is None else int(found.reserved_bytes.current)


def max_memory_reserved(device: Any = None) -> int:
    """The most bytes reserved since reset_peak_memory_stats()."""
    found = _statistics(device)
    return 0 if found is None else int(found.reserved_bytes.peak[0])


memory_cached, max_memory_cached = memory_reserved, max_memory_reserved


def reset_peak_memory_stats(device: Any = None) -> None:
    """Peaks are counted from now on."""
    found = _statistics(device)
    if found is not None:
        found.reset_peaks()


reset_max_memory_allocated = reset_max_memory_cached = reset_peak_memory_stats


def reset_accumulated_memory_stats(device: Any = None) -> None:
    """Totals are counted from now on."""
    found = _statistics(device)
    if found is not None:
        found.reset_totals()


def memory_stats(device: Any = None) -> OrderedDict[str, Any]:
    """All counters, by torch's names; empty where there is no GPU."""
    found = _statistics(device)
    return OrderedDict() if found is None else found.named()


def memory_stats_as_nested_dict(device: Any = None) -> dict[str, Any]:
    """All counters, a dict for each part of their names."""
    nested: dict[str, Any] = {}
    for name, value in memory_stats(device).items():
        *parts, last = name.split(".")
        inner = nested
        for part in parts:
            inner = inner.setdefault(part, {})
        inner[last] = value
    return nested


def get_allocator_backend() -> str:
    """"native": memory is cut from the driver's pieces here."""
    return "native"


def _set_allocator_settings(env: str) -> None:
    """Nothing: torch's settings ("expandable_segments:True") are not of this allocator, as those
    of PYTORCH_CUDA_ALLOC_CONF."""


def memory_summary(device: Any = None, abbreviated: bool = False) -> str:
    """The counters as a table."""
    if not is_available():
        return "torch.cuda memory summary: no GPU, so no CUDA memory is allocated or reserved"
    stats = memory_stats(device)
    rows = [
        ("Allocated memory", "allocated_bytes"), ("Active memory", "active_bytes"),
        ("Requested memory", "requested_bytes"), ("GPU reserved memory", "reserved_bytes"),
        ("Allocations", "allocation"), ("Active allocs", "active"),
        ("GPU reserved segments", "segment"),
    ]
    width = 75
    head = [
        "=" * width,
        f"| torch.cuda memory summary, device ID {gpu(device).index}".ljust(width) + "|",
        f"| CUDA OOMs: {stats['num_ooms']:<12} | cudaMalloc retries: "
        f"{stats['num_alloc_retries']}".ljust(width) + "|",
        "=" * width,
        "| Metric                | Cur Usage   | Peak Usage  | Tot Alloc   | Tot Freed   |",
    ]
    lines = []
    for title, name in rows:
        for pool in ("all",) if abbreviated else ("all", "large_pool", "small_pool"):
            what = title if pool == "all" else f"  from {pool.replace('_', ' ')}"
            numbers = [
                _shown(stats[f"{name}.{pool}.{kind}"], "bytes" in name)
                for kind in ("current", "peak", "allocated", "freed")
            ]
            lines.append("| " + " | ".join([f"{what:21}", *(f"{n:>11}" for n in numbers)]) + " |")
    return "\n".join([*head, *lines, "=" * width])


def _shown(number: int, in_bytes: bool) -> str:
    if not in_bytes:
        return str(number)
    for unit, name in ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")):
        if number >= 10 * unit:
            return f"{number // unit} {name}"
    return f"{number} B"


def empty_cache() -> None:
    """Give memory of which nothing is used back to the driver: of all GPUs, and pinned memory."""
    if is_available() and _gpus().begun:
        for found in _gpus().devices:
            if found.begun:
                found.allocator.empty_cache()
        _gpus().pinned.empty_cache()


@needs_gpu
def set_per_process_memory_fraction(fraction: float, device: Any = None) -> None:
    """Tensors get at most this part of a GPU's memory. Raises ValueError outside 0 to 1."""
    if not 0 <= fraction <= 1:
        raise ValueError(f"Invalid fraction value: {fraction}. Allowed range: 0~1")
    found = gpu(device)
    found.allocator.limit = None if fraction == 1 else int(found.total_memory * fraction)


@needs_gpu
def get_per_process_memory_fraction(device: Any = None) -> float:
    """The part that set_per_process_memory_fraction() has set."""
    found = gpu(device)
    limit = found.allocator.limit
    return 1.0 if limit is None else float(limit / found.total_memory)


def __getattr__(name: str) -> Any:
    if name in absent.MEMORY:
        return absent.MEMORY[name]
    raise AttributeError(f"module 'graphc.cuda.memory' has no attribute {name!r}")
