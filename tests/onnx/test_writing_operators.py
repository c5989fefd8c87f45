"""Every operator as ONNX: its record's samples, computed by onnxruntime, against NumPy's table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from graphc.backends.numpy import TABLE
from graphc.ir import dtypes
from graphc.ir.dtypes import DType, from_numpy
from graphc.ir.op import REGISTRY
from graphc.ir.types import TensorType
from graphc.onnx.errors import UnsupportedOperatorError
from graphc.onnx.writing.rules import RULES
from tests.onnx import writing
from tests.opinfo import OPINFOS, OpInfo, Sample, as_tuple, assert_close, samples

# what cannot be written, by family or name: an operator that leaves this list gets a rule, one that
# is new here gets a reason
REFUSED = frozenset("""
    erfc erfinv lgamma digamma conv_weight_grad winograd_input winograd_filter
    winograd_output box_argmax unwind
""".split())
# how many times the dtype's usual error is allowed, where ONNX's operators are put together
TOLERANCE = {"gelu": 4, "pow": 4, "log_softmax": 4, "exp2": 8, "window_sum": 4, "cumprod": 4}
# operators whose result ONNX leaves open where there is a NaN
OF_NAN = frozenset("amax amin argmax argmin max_pool".split())
# of which some samples cannot be said before opset 18
OF_NEWER = frozenset("""
    bitwise_and bitwise_or bitwise_xor bitwise_not scatter index_put max_pool_grad box_pool_grad
    relu reshape box_pool
""".split())
# what onnxruntime has no code for, and the reference implementation gets wrong or refuses: it
# computes these in float32, or of their samples some
UNKNOWN = {
    "f64": frozenset("erf gelu conv_input_grad".split()),
    "bf16": frozenset("conv_input_grad cummax cummin cumprod gather log_softmax max_pool".split()),
}


def _exported(name: str) -> bool:
    op = REGISTRY[name]
    return (
        name in RULES or op.decompose is not None
    ) and name not in REFUSED and op.family not in ("structure", "control")


NAMES = sorted(name for name in OPINFOS if _exported(name))


def _compare(info: OpInfo, sample: Sample, dtype: DType, opset: int) -> str:
    """Write, run and compare one sample; who ran it."""
    if info.name in UNKNOWN.get(dtype.name, ()):
        return "nobody"
    if info.name in OF_NAN and any(np.isnan(a.astype(np.float64)).any() for a in sample.arrays):
        return "nobody"
    with np.errstate(all="ignore"):
        want = as_tuple(TABLE[info.name](*sample.arrays, **sample.attrs))
    types = [TensorType(from_numpy(a.dtype), a.shape) for a in sample.arrays]
    try:
        program = writing.written(writing.graph_of(info.name, types, sample.attrs), opset)
    except UnsupportedOperatorError as error:
        assert opset < 18 and info.name in OF_NEWER and f"at opset {opset}" in str(error)
        return "nobody"
    found, who = writing.run(program, sample.arrays)
    assert len(found) == len(want)
    defined: Any = _defined(info.name, sample, want[0].dtype)
    for ours, theirs in zip(found, want, strict=True):
        what = f"{info.name} {sample} by {who} at opset {opset}"
        assert ours.dtype == theirs.dtype, what
        tolerance = info.tolerance * TOLERANCE.get(info.name, 2)
        assert_close(ours[defined], theirs[defined], from_numpy(theirs.dtype), tolerance, what)
    return who


def _defined(name: str, sample: Sample, to: np.dtype[Any]) -> Any:
    """Where ONNX says what comes out: a float that an integer dtype does not hold has any."""
    if name != "cast" or to.kind not in "iu":
        return ...
    x, limits = sample.arrays[0].astype(np.float64), np.iinfo(to)
    return (np.trunc(x) >= limits.min) & (np.trunc(x) <= limits.max)


def _first(info: OpInfo, kinds: Sequence[DType]) -> DType | None:
    return next((dtype for dtype in kinds if dtype in info.dtypes), None)


@pytest.mark.parametrize("name", NAMES)
def test_an_operator(name: str) -> None:
    info = OPINFOS[name]
    float_, integer = _first(info, (dtypes.f32,)), _first(info, (dtypes.i64, dtypes.bool_))
    for dtype in (float_, integer):
        if dtype is not None:
            for sample in samples(info, dtype)[:1]:
                _compare(info, sample, dtype, 20)


@pytest.mark.slow
@pytest.mark.parametrize("opset", [13, 16, 18, 20, 23])
@pytest.mark.parametrize("name", NAMES)
def test_all_of_an_operator(name: str, opset: int) -> None:
    info = OPINFOS[name]
    for dtype in info.dtypes:
        if not dtype.is_complex:
            for sample in samples(info, dtype):
                _compare(info, sample, dtype, opset)


def test_each_operator_is_written_or_refused() -> None:
    left = {
        name for name, op in REGISTRY.items()
        if name not in RULES and op.decompose is None
        and op.family not in ("structure", "random", "routine")
    }
    assert left - REFUSED - {"sparse_product"} == {"view_as_real", "view_as_complex"}
    assert left | {"unwind", "box_argmax"} >= REFUSED


@pytest.mark.parametrize("name", sorted(REFUSED & OPINFOS.keys()))
def test_what_is_refused_names_the_operator(name: str) -> None:
    info = OPINFOS[name]
    sample = samples(info, dtypes.f32)[0]
    types = [TensorType(from_numpy(a.dtype), a.shape) for a in sample.arrays]
    with pytest.raises(UnsupportedOperatorError, match=rf"operator {name} (.|\n)*Cure: "):
        writing.written(writing.graph_of(name, types, sample.attrs))
