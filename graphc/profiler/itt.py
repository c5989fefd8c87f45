"""torch.profiler.itt: ranges for Intel's VTune. Nothing is marked; ranges may be nested."""

from __future__ import annotations

from ..cuda.nvtx import mark as mark
from ..cuda.nvtx import range as range
from ..cuda.nvtx import range_pop as range_pop
from ..cuda.nvtx import range_push as range_push

__all__ = ["is_available", "mark", "range", "range_pop", "range_push"]


def is_available() -> bool:
    """False: nobody listens."""
    return False
