"""Every parity record in eager mode: values, dtypes, shapes and gradients as PyTorch's."""

from __future__ import annotations

import warnings

import pytest

import graphc
from tests.parity.cases import CASES
from tests.parity.records import Case, assert_same, gradients, leaves, to_tensors

torch = pytest.importorskip("torch")

PAIRS = [
    pytest.param(case, dtype, id=f"{case.name}-{dtype}") for case in CASES for dtype in case.dtypes
]


@pytest.mark.parametrize(("case", "dtype"), PAIRS)
def test_eager(case: Case, dtype: str) -> None:
    arrays = case.arrays(dtype)
    results, inputs = [], []
    for t in (torch, graphc):
        tensors = to_tensors(t, arrays, dtype, case.grad)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            results.append(case.run(t, *tensors))
        inputs.append(tensors)
    assert_same(*results)
    for i, (want, have) in enumerate(zip(leaves(results[0]), leaves(results[1]), strict=True)):
        assert have.requires_grad == want.requires_grad, f"requires_grad of result {i}"
        if want.is_contiguous():  # where torch can view(), so must we
            assert have.is_contiguous(), f"strides of result {i}: {have.stride()}"
        if case.strides:
            for size, h, w in zip(want.shape, have.stride(), want.stride(), strict=True):
                assert size == 1 or h == w, f"strides {have.stride()}, not {want.stride()}"
            if have.numel():
                assert have.storage_offset() == want.storage_offset(), f"offset of result {i}"
    for i, (want, have) in enumerate(zip(inputs[0], inputs[1], strict=True)):
        assert_same(want.detach(), have.detach(), f"input {i} after the call")
    if case.grad:
        wanted = gradients(torch, inputs[0], leaves(results[0]))
        found = gradients(graphc, inputs[1], leaves(results[1]))
        for i, (want, have) in enumerate(zip(wanted, found, strict=True)):
            assert (want is None) == (have is None), f"gradient {i}: {have}, not {want}"
            if want is not None:
                assert_same(want, have, f"gradient of input {i}", scale=10.0)
