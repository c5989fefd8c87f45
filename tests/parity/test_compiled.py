"""Every parity record traced and compiled, values and gradients as PyTorch's."""

from __future__ import annotations

import os
import warnings
from typing import Any

import pytest

import graphc
from tests.parity.cases import CASES
from tests.parity.records import Case, assert_same, gradients, leaves, to_tensors

torch = pytest.importorskip("torch")

PAIRS = [
    pytest.param(case, dtype, id=f"{case.name}-{dtype}")
    for case in CASES
    for dtype in case.dtypes[:1]
]
BACKEND = os.environ.get("PARITY_BACKEND", "llvm")


def _step(t: Any, case: Case) -> Any:
    """The call and its gradients, as one function of the inputs."""

    def step(*tensors: Any) -> Any:
        results = case.run(t, *tensors)
        grads = gradients(t, list(tensors), leaves(results)) if case.grad else []
        return results, grads

    return step


@pytest.mark.parametrize(("case", "dtype"), PAIRS)
def test_compiled(case: Case, dtype: str) -> None:
    arrays = case.arrays(dtype)
    results = []
    for t in (torch, graphc):
        step = _step(t, case)
        if t is graphc:
            step = graphc.compile(step, backend=BACKEND)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            results.append(step(*to_tensors(t, arrays, dtype, case.grad)))
    (want, wanted), (have, found) = results
    assert_same(want, have)
    for i, (w, h) in enumerate(zip(wanted, found, strict=True)):
        assert (w is None) == (h is None), f"gradient {i}: {h}, not {w}"
        if w is not None:
            assert_same(w, h, f"gradient of input {i}", scale=10.0)
