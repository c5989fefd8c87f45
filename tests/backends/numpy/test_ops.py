"""Every NumPy operator against torch, in every dtype it takes; result types against the records."""

from typing import Any

import numpy as np
import pytest

from graphc.backends.numpy import run
from graphc.ir import dtypes
from graphc.ir.dim import DimEnv
from graphc.ir.op import REGISTRY, get
from graphc.ir.types import TensorType, TupleType
from tests import opinfo
from tests.opinfo import OPINFOS

CASES = [(name, dtype.name) for name, info in sorted(OPINFOS.items()) for dtype in info.dtypes]


def type_of(array: np.ndarray) -> TensorType:
    return TensorType(dtypes.from_numpy(array.dtype), array.shape)


def result_types(name: str, sample: Any) -> tuple[TensorType, ...]:
    """What the record's type rule says."""
    types = tuple(type_of(a) for a in sample.arrays)
    result = get(name).infer(types, sample.attrs, DimEnv())
    return result.elements if isinstance(result, TupleType) else (result,)


@pytest.mark.parametrize(("name", "dtype"), CASES)
def test_matches_torch(name: str, dtype: str) -> None:
    info = OPINFOS[name]
    for sample in opinfo.samples(info, dtypes.by_name(dtype)):
        results = opinfo.as_tuple(run(get(name), sample.arrays, sample.attrs))
        types = result_types(name, sample)
        assert tuple(type_of(r) for r in results) == types, f"{name}{sample}"
        for array, want in zip(results, opinfo.expected(info, sample), strict=True):
            if want is not None:
                kind = dtypes.from_numpy(array.dtype)
                exact = name.startswith("rng_")
                opinfo.assert_close(
                    array, want, kind, 0.0 if exact else info.tolerance, f"{name}{sample}"
                )


def test_every_operator_has_a_record() -> None:
    assert set(OPINFOS) | set(opinfo.WITHOUT_RECORD) == set(REGISTRY)


def strided(array: np.ndarray, mode: str) -> np.ndarray:
    """The same values in memory that is not contiguous, or in column-major order."""
    if array.ndim == 0:
        return array
    if mode == "columns":
        return np.asfortranarray(array)
    wide = np.zeros((*array.shape[:-1], array.shape[-1] * 2), array.dtype)
    wide[..., ::2] = array
    return wide[..., ::2]


@pytest.mark.parametrize("dtype", ["f32", "bf16", "i64", "bool"])
@pytest.mark.parametrize("name", sorted(OPINFOS))
def test_memory_layout_does_not_matter(name: str, dtype: str) -> None:
    info = OPINFOS[name]
    kind = dtypes.by_name(dtype)
    if kind not in info.dtypes:
        return
    for sample in opinfo.samples(info, kind):
        plain = opinfo.as_tuple(run(get(name), sample.arrays, sample.attrs))
        for mode in ("columns", "gaps"):
            arrays = [strided(a, mode) for a in sample.arrays]
            copies = [a.copy() for a in arrays]
            results = opinfo.as_tuple(run(get(name), arrays, sample.attrs))
            for a, b in zip(results, plain, strict=True):
                assert a.shape == b.shape
                opinfo.assert_close(a, b, dtypes.from_numpy(a.dtype), 64.0, f"{name}{sample}")
            for array, copy in zip(arrays, copies, strict=True):
                assert array.tobytes() == copy.tobytes(), f"{name} wrote to its input"
