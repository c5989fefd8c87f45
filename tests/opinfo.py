"""One test record per operator: samples, torch's function, dtypes, reasons for what is left out.

Every test of "all operators" (NumPy, gradients, eager, compiled) reads `OPINFOS`; an operator
without a record fails tests/ir/test_autodiff.py::test_every_operator_has_a_record. To use it:

    for sample in info.samples(dtype, rng):
        ours = TABLE[info.name](*sample.arrays, **sample.attrs)
        theirs = info.reference(*map(to_torch, sample.arrays), **sample.attrs)
"""

from __future__ import annotations

import zlib
from typing import Any

import numpy as np

from graphc.ir import dtypes
from graphc.ir.dtypes import DType
from graphc.ir.op import REGISTRY
from tests import (  # noqa: F401  (they register)
    opinfo_boxes,
    opinfo_elementwise,
    opinfo_model,
    opinfo_random,
    opinfo_sparse,
    opinfo_tensor,
    opinfo_winograd,
)
from tests.opinfo_core import OPINFOS, OpInfo, Sample, as_tuple, from_torch, to_torch

# structure that has no meaning of its own
WITHOUT_RECORD = {
    "input": "a graph's input computes nothing",
    "get": "takes one of several results; every operator with several is tested through it",
    **dict.fromkeys(("view_as_real", "view_as_complex"), "complex: tests/linalg"),
    **{
        op.name: "compared with torch in tests/linalg, tests/fft and tests/special"
        for op in REGISTRY.values()
        if op.family == "routine" and op.name not in OPINFOS
    },
}

# relative error of one operation that is rounded once, with some room
EPSILON = {"f64": 2e-15, "f32": 1e-6, "f16": 1e-3, "bf16": 8e-3}


def samples(info: OpInfo, dtype: DType) -> list[Sample]:
    """The record's samples for a dtype, the same in every process."""
    rng = np.random.default_rng(zlib.crc32(f"{info.name} {dtype.name}".encode()))
    return list(info.samples(dtype, rng))


def wide(tensor: Any) -> Any:
    """Floats as float64: the reference should not be the one that rounds."""
    return tensor.double() if tensor.is_floating_point() else tensor


def expected(info: OpInfo, sample: Sample) -> tuple[Any, ...]:
    """torch's results as arrays (float64 for floats); None where not compared.

    Random draws and casts depend on the dtype itself: their floats stay as they are.
    """
    keep = info.name.startswith("rng_") or info.name == "cast"
    tensors = [to_torch(a) if keep else wide(to_torch(a)) for a in sample.arrays]
    with np.errstate(all="ignore"):
        results = as_tuple(info.reference(*tensors, **sample.attrs))
    return tuple(None if r is None else from_torch(r) for r in results)


def assert_close(
    actual: np.ndarray, want: np.ndarray, dtype: DType, tolerance: float, what: str
) -> None:
    """Equal for integers and bool; within `tolerance` times the dtype's error for floats."""
    assert actual.shape == want.shape, f"{what}: shape {actual.shape}, expected {want.shape}"
    if not dtype.is_float:
        np.testing.assert_array_equal(actual, want, err_msg=what)
        return
    epsilon = EPSILON[dtype.name] * tolerance
    scale = float(np.max(np.abs(_finite(want)), initial=0.0))
    with np.errstate(all="ignore"):
        np.testing.assert_allclose(
            actual.astype(np.float64),
            _rounded(want, dtype),
            rtol=epsilon,
            atol=epsilon * min(1.0, scale),
            equal_nan=True,
            err_msg=what,
        )


def _rounded(want: np.ndarray, dtype: DType) -> np.ndarray:
    """The reference with the dtype's overflow to infinity."""
    return want.astype(dtype.numpy).astype(np.float64)


def _finite(array: np.ndarray) -> np.ndarray:
    array = array.astype(np.float64)
    return array[np.isfinite(array)]


__all__ = [
    "OPINFOS",
    "WITHOUT_RECORD",
    "OpInfo",
    "Sample",
    "as_tuple",
    "assert_close",
    "dtypes",
    "expected",
    "from_torch",
    "samples",
    "to_torch",
    "wide",
]
