"""Every parity record traced with every size symbolic, the graph run by NumPy."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest

import graphc
from graphc.backends.numpy import TABLE
from graphc.frontend.captured import TensorInput
from graphc.frontend.errors import TraceError
from graphc.frontend.trace import Trace
from graphc.ir import interpret
from tests.parity.cases import CASES
from tests.parity.records import Case, array_of, gradients, leaves, to_tensors

torch = pytest.importorskip("torch")

RECORDS = [case for case in CASES if not case.segments and case.inputs]
IN_SEGMENTS = [case for case in CASES if case.segments]


def _outputs(case: Case, arrays: list[np.ndarray]) -> list[Any]:
    """The results and gradients of a trace whose arguments have symbolic sizes."""
    inputs = to_tensors(graphc, arrays, "float32", case.grad)
    trace = Trace(case.name)
    with trace:
        for i, x in enumerate(inputs):
            trace.add_argument(x, i, {d: f"n{i}_{d}" for d, n in enumerate(x.shape) if n > 1})
        found = leaves(case.run(graphc, *inputs))
        grads = gradients(graphc, inputs, found) if case.grad else []
        kept = [x.detach().clone() for x in [*found, *(g for g in grads if g is not None)]]
        traced = trace.finish(kept)
    given = []
    for source in traced.inputs:
        assert isinstance(source, TensorInput)
        tensor = inputs[source.index] if source.index >= 0 else source.tensor
        assert tensor is not None
        given.append(
            tensor._graphc_storage.flat() if source.kind == "storage" else tensor._graphc_array
        )
    values = interpret.evaluate(traced.graph, given, TABLE)
    results = []
    for output in traced.result:
        value = values[output.index]
        results.append(value if output.order is None else value.transpose(output.order))
    return results


@pytest.mark.parametrize("case", RECORDS, ids=[case.name for case in RECORDS])
def test_symbolic(case: Case) -> None:
    arrays = case.arrays("float32")
    inputs = to_tensors(torch, arrays, "float32", case.grad)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        want = leaves(case.run(torch, *inputs))
        have = _outputs(case, arrays)
    grads = gradients(torch, inputs, want) if case.grad else []
    want += [g for g in grads if g is not None]
    assert len(have) == len(want)
    for i, (w, h) in enumerate(zip(want, have, strict=True)):
        assert tuple(h.shape) == tuple(w.shape), f"result {i}"
        np.testing.assert_allclose(
            h.astype(np.float64), array_of(w).astype(np.float64), rtol=2e-4, atol=2e-5,
            err_msg=f"result {i}",
        )


@pytest.mark.parametrize("case", IN_SEGMENTS, ids=[case.name for case in IN_SEGMENTS])
def test_what_is_listed_as_segments_is_not_one_graph(case: Case) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with pytest.raises(TraceError):
            _outputs(case, case.arrays(case.dtypes[0]))
