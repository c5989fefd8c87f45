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


TURNED: dict[str, Any] = {
    "the diagonal": lambda x: x.transpose(0, -1).diagonal().add_(1),
    "a diagonal beside it": lambda x: x.transpose(0, -1).diagonal(1, -1, 0).mul_(3),
    "a diagonal below": lambda x: x.movedim(0, 1).diagonal(-1, 0, 2).copy_(x.sum()),
    "windows": lambda x: x.transpose(0, 1).unfold(0, 2, 2).mul_(-2),
    "windows of the last dim": lambda x: x.transpose(0, 2).unfold(-1, 2, 3)[..., 1].add_(5),
    "windows of windows": lambda x: x.permute(2, 0, 1).unfold(1, 2, 2).unfold(2, 1, 2).add_(1),
    "a part's diagonal": lambda x: x.transpose(0, 2)[1:].diagonal(0, 1, 2).zero_(),
}


@pytest.mark.parametrize("name", TURNED)
def test_writes_to_windows_of_what_is_turned(name: str) -> None:
    """They reach the memory, whatever the sizes."""
    def write(x: Any) -> Any:
        y = x * 2
        seen = TURNED[name](y)
        return y * y, seen * 1, seen.stride()

    run = graphc.compile(write, dynamic=True)
    for sizes in ((2, 4, 4), (4, 4, 4), (3, 5, 4), (5, 3, 7), (6, 6, 2), (2, 4, 4)):
        values = np.arange(float(np.prod(sizes))).reshape(sizes)
        ours, wanted = (t.tensor(values, requires_grad=True) for t in (graphc, torch))
        found, right = run(ours), write(wanted)
        np.testing.assert_array_equal(found[0].detach().numpy(), right[0].detach().numpy())
        np.testing.assert_array_equal(found[1].detach().numpy(), right[1].detach().numpy())
        steps = (zip(seen[2], right[1].shape, strict=True) for seen in (found, right))
        ours_steps, right_steps = ([s for s, n in each if n > 1] for each in steps)
        assert ours_steps == right_steps
        found[0].sum().backward()
        right[0].sum().backward()
        np.testing.assert_allclose(ours.grad.numpy(), wanted.grad.numpy())
