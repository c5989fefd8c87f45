"""Copies between buffers, one kernel per dtype for all lengths."""

from __future__ import annotations

from functools import cache

from ...dim import Dim, minimum, unwrap
from ...dtypes import DType
from ...kernel import Kernel, Let, Load, Loop, Param, Store, Var


@cache
def copy_kernel(dtype: DType, block: int) -> Kernel:
    """o0[i] = a0[i] for n elements, `block` of them in one parallel iteration."""
    n, p, v = Dim.var("n"), Dim.var("p"), Dim.var("v")
    index = p * block + v
    body = (Let("t0", Load("a0", index, dtype)), Store("o0", index, Var("t0", dtype)))
    vector = Loop("vector", "v", minimum(block, unwrap(n - p * block)), body)
    parallel = Loop("parallel", "p", (n + (block - 1)) // block, (vector,))
    params = (Param("a0", dtype, n, "in"), Param("o0", dtype, n, "out"))
    return Kernel("copy", params, ("n",), ((parallel,),))
