"""torch.cuda.graphs: what captures streams into graphs, which graphc does not: what it compiles is
launched as one graph without that."""

from __future__ import annotations

from typing import Any

from .. import unsupported
from .available import needs_gpu
from .streams import _NeedsGpu

_CURE = (
    "torch.compile(function): what it compiles is launched as one CUDA graph, with inputs that may "
    "lie anywhere"
)


class _Refused(_NeedsGpu):
    """Raises RuntimeError where there is no GPU, NotImplementedError where there is one."""

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        super().__new__(cls)
        unsupported.refuse(f"torch.cuda.{cls.__name__}", _CURE)


class CUDAGraph(_Refused):
    """torch.cuda.CUDAGraph."""


class graph(_Refused):
    """torch.cuda.graph."""


class MemPool(_Refused):
    """torch.cuda.MemPool."""


def is_current_stream_capturing() -> bool:
    """False."""
    return False


@needs_gpu
def graph_pool_handle() -> Any:
    """Raises NotImplementedError."""
    unsupported.refuse("torch.cuda.graph_pool_handle()", _CURE)


@needs_gpu
def make_graphed_callables(*args: Any, **kwargs: Any) -> Any:
    """Raises NotImplementedError."""
    unsupported.refuse("torch.cuda.make_graphed_callables()", _CURE)
