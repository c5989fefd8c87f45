"""Every parity record on the device: values, dtypes, gradients, writes as on the CPU."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest

import graphc as torch
from tests.parity.cases import CASES
from tests.parity.records import Case, gradients, leaves, to_tensors

HERE = "apart"

ABSENT = ("float64", "complex64", "complex128")  # dtypes that the device, or this test, leaves out
# what NumPy reads, and what is on the CPU wherever new tensors are made: as PyTorch has it
READ = ("numpy", "numpy calls", "functions of NumPy on no dimensions", "dlpack")
ON_CPU = ("from_numpy", "numbers alone")
KNOWN = (*READ, *ON_CPU)
TOLERANCE = {torch.float16: 4e-3, torch.bfloat16: 3e-2}


def same(have: Any, want: Any, what: str, scale: float = 1.0) -> None:
    assert have.device.type == HERE, f"{what} on {have.device}"
    assert have.dtype is want.dtype and have.shape == want.shape
    tolerance = TOLERANCE.get(want.dtype, 2e-5) * scale
    np.testing.assert_allclose(
        have.detach().cpu().float().numpy(), want.detach().float().numpy(), rtol=tolerance,
        atol=tolerance / 10, err_msg=what,
    )


def run(case: Case, dtype: str, device: str) -> tuple[list[Any], list[Any], list[Any]]:
    """Results, inputs after the call, gradients."""
    torch.manual_seed(0)
    inputs = [
        x.detach().to(device).requires_grad_(x.requires_grad)
        for x in to_tensors(torch, case.arrays(dtype), dtype, case.grad)
    ]
    with torch.device(device):
        results = leaves(case.run(torch, *inputs))
        return results, inputs, gradients(torch, inputs, results) if case.grad else []


def of_torch(case: Case, device: str) -> list[Any]:
    reference = pytest.importorskip("torch")
    given = to_tensors(reference, case.arrays(case.dtypes[0]), case.dtypes[0], case.grad)
    inputs = [x.detach().to(device).requires_grad_(x.requires_grad) for x in given]
    with reference.device(device):
        return leaves(case.run(reference, *inputs))


@pytest.mark.parametrize("name", KNOWN)
def test_what_is_known_is_so_in_pytorch(name: str) -> None:
    (case,) = (case for case in CASES if case.name == name)
    if name in READ:
        with pytest.raises((TypeError, ValueError)):
            of_torch(case, "meta")
    else:
        assert "cpu" in {x.device.type for x in of_torch(case, "meta")}


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_function(case: Case) -> None:
    tried = 0
    for dtype in case.dtypes:
        if dtype in ABSENT or any(array.dtype.char in "dD" for array in case.arrays(dtype)):
            continue
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            wanted = run(case, dtype, "cpu")
            if any(x.dtype in (torch.float64, torch.complex128) for x in wanted[0]):
                continue
            tried += 1
            if case.name in KNOWN:
                with pytest.raises((AssertionError, TypeError, BufferError, RuntimeError)):
                    for have, want in zip(run(case, dtype, HERE)[0], wanted[0], strict=True):
                        same(have, want, "result")
                continue
            found = run(case, dtype, HERE)
        for i, (have, want) in enumerate(zip(found[0], wanted[0], strict=True)):
            same(have, want, f"result {i}")
        for i, (have, want) in enumerate(zip(found[1], wanted[1], strict=True)):
            same(have, want, f"input {i} after the call")
        for i, (have, want) in enumerate(zip(found[2], wanted[2], strict=True)):
            assert (have is None) == (want is None), f"gradient {i}"
            if want is not None:
                same(have, want, f"gradient of input {i}", scale=20.0)
    assert tried or case.name not in KNOWN, "no dtype of it is tried"
