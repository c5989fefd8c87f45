"""What the CPU's backend needs of the machine: llvmlite, a CPU that code is made for, a cache."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from graphc.backends.host.finding import Finding
from graphc.backends.llvm.cache import ObjectCache
from graphc.backends.llvm.direct import llvm_version
from graphc.backends.llvm.target import Target, host_target

# What kernels are faster with, of what LLVM calls features.
_TOLD = (
    "avx2", "fma", "f16c", "avx512f", "avx512vl", "avx512bw", "avx512dq", "avx512bf16",
    "avx512vnni", "amx-bf16", "neon", "sve", "bf16",
)


def findings(cache: Path | None) -> Sequence[Finding]:
    """See Backend; `cache`: where compiled kernels are kept."""
    try:
        compiler = Finding("llvmlite", llvm_version(), needed=True)
    except ImportError as error:
        cure = f"pip install 'llvmlite>=0.50,<0.51' ({error})"
        return (Finding("llvmlite", None, cure, needed=True), _cache(cache))
    return (compiler, _cpu(host_target()), _cache(cache))


def _cpu(target: Target) -> Finding:
    features = set(target.features.split(","))
    told = " ".join(name for name in _TOLD if f"+{name}" in features)
    if "amx-bf16" in features and not target.matrix:
        told += " (AMX is not used: this process may not, or it computes wrong)"
    said = f"{target.cpu or target.arch}: vectors of {target.vector_bytes} bytes; {told}"
    return Finding("CPU", said.rstrip("; "), needed=True)


def _cache(directory: Path | None) -> Finding:
    if directory is None:
        return Finding("kernel cache", "in memory alone, by GRAPHC_CACHE_DIR")
    if ObjectCache(directory).directory is None:
        cure = "a folder that only you can write: GRAPHC_CACHE_DIR, or chmod 700"
        return Finding("kernel cache", f"in memory alone: {directory} is not safe", cure)
    return Finding("kernel cache", str(directory))
