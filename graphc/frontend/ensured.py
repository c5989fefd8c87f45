"""A condition on values that a recording cannot look at: its graph checks it at each call.

What is checked is an index, which is 0 where the condition holds, and else outside of what it looks
up; so every backend, an exported program too, refuses the call before it has written anything.
"""

from __future__ import annotations

import numpy as np

from graphc.ir import dtypes, ops

from . import promote
from .context import local
from .dispatch import apply
from .tensor import Tensor


def ensured(x: Tensor, holds: Tensor, message: str) -> Tensor:
    """`x`, a recorded tensor, of which no graph computes anything where `holds` is False at any
    place. `message`: what is raised then, behind its class ("RuntimeError: ...")."""
    trace = local.trace
    assert trace is not None
    if holds.ndim:
        holds = apply(ops.all, holds, dims=tuple(range(holds.ndim)), keepdim=False)
    broken = promote.cast(apply(ops.logical_not, holds), dtypes.i64)
    one = trace.constant(np.ones(1, x.dtype.numpy))
    kept = apply(ops.index, one, broken, dim=0, subject=message)
    result: Tensor = apply(ops.mul, x, kept)
    return result
