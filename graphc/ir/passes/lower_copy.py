"""Copies between buffers, one kernel per dtype for all lengths."""

from __future__ import annotations

from functools import cache

from ..dim import Dim, minimum, unwrap
from ..dtypes import DType
from ..kernel import Kernel, Let, Load, Loop, Param, Store, Var

_BLOCK = 32768


@cache
def copy_kernel(dtype: DType) -> Kernel:
    """o0[i] = a0[i] for n elements."""
    n, p, v = Dim.var("n"), Dim.var("p"), Dim.var("v")
    index = p * _BLOCK + v
    body = (Let("t0", Load("a0", index, dtype)), Store("o0", index, Var("t0", dtype)))
    vector = Loop("vector", "v", minimum(_BLOCK, unwrap(n - p * _BLOCK)), body)
    parallel = Loop("parallel", "p", (n + (_BLOCK - 1)) // _BLOCK, (vector,))
    params = (Param("a0", dtype, n, "in"), Param("o0", dtype, n, "out"))
    return Kernel("copy", params, ("n",), ((parallel,),))
