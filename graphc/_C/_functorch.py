"""torch._C._functorch: what packages ask of tensors inside vmap()."""

from __future__ import annotations

from typing import Any

from ..frontend.subtrace import SubTrace

__all__ = ["is_batchedtensor"]


def is_batchedtensor(tensor: Any) -> bool:
    """Whether a tensor is one sample of those that vmap() maps over."""
    trace = tensor._graphc_trace
    return isinstance(trace, SubTrace) and trace.name.startswith("vmap(")
