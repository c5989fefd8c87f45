"""Names of torch.cuda that exist here only to say, when they are used, what to use instead."""

from __future__ import annotations

from typing import Any

from .. import unsupported
from .available import needs_gpu

_SMI = unsupported.table(
    "torch.cuda", "nvidia-smi, or the package nvidia-ml-py",
    functions="clock_rate device_memory_used list_gpu_processes memory_usage power_draw "
    "temperature utilization",
)
_POOLS = unsupported.table(
    "torch.cuda",
    "graphc's own allocator, of which torch.cuda.memory_stats() and memory_summary() tell",
    functions="caching_allocator_alloc caching_allocator_delete caching_allocator_enable "
    "change_current_allocator memory_snapshot use_mem_pool",
    kinds="CUDAPluggableAllocator",
)
_HANDLES = unsupported.table(
    "torch.cuda", "the package nvmath-python, or CuPy, on torch.cuda.current_stream().cuda_stream",
    functions="current_blas_handle current_solver_handle",
)
# names of torch.cuda
NAMES: dict[str, Any] = {
    name: each if isinstance(each, type) else needs_gpu(each)
    for name, each in (_SMI | _POOLS | _HANDLES).items()
}
# names of torch.cuda.memory
MEMORY: dict[str, Any] = {name: NAMES[name] for name in _POOLS} | unsupported.table(
    "torch.cuda.memory",
    "torch.cuda.memory_summary() and max_memory_allocated(), or torch.profiler, whose events tell "
    "when which kernel ran",
    functions="_record_memory_history _dump_snapshot _snapshot",
)
