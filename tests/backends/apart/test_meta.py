"""Every parity record on "meta": shapes, dtypes and strides as on the CPU. What needs values is an
error, and some results are on the CPU, where that is so in PyTorch."""

from __future__ import annotations

import warnings
from typing import Any

import pytest

import graphc as torch
from tests.parity.cases import CASES
from tests.parity.records import Case, gradients, leaves, to_tensors


def run(t: Any, case: Case, dtype: str, device: str) -> tuple[list[Any], list[Any]]:
    """Results, gradients."""
    t.manual_seed(0)
    inputs = [
        x.detach().to(device).requires_grad_(x.requires_grad)
        for x in to_tensors(t, case.arrays(dtype), dtype, case.grad)
    ]
    with t.device(device):
        results = leaves(case.run(t, *inputs))
        return results, gradients(t, inputs, results) if case.grad else []


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_shapes(case: Case) -> None:
    dtype = case.dtypes[0]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        wanted = run(torch, case, dtype, "cpu")
        try:
            found = run(torch, case, dtype, "meta")
        except (NotImplementedError, RuntimeError, TypeError, ValueError):
            reference = pytest.importorskip("torch")
            with pytest.raises((NotImplementedError, RuntimeError, TypeError, ValueError)):
                run(reference, case, dtype, "meta")
            return
        where = [x.device.type for x in found[0]]
        if set(where) != {"meta"} and where:
            reference = pytest.importorskip("torch")
            assert where == [x.device.type for x in run(reference, case, dtype, "meta")[0]]
    for have, want in zip(found[0], wanted[0], strict=True):
        assert (have.dtype, have.shape, have.stride()) == (want.dtype, want.shape, want.stride())
    for have, want in zip(found[1], wanted[1], strict=True):
        assert (have is None) == (want is None)
        assert want is None or have.shape == want.shape
