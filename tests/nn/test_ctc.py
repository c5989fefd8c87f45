"""CTC loss where lengths are data: none, too many labels for the inputs, wrong ones."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")

import torch

import graphc
from graphc.inspect.explain import explain
from tests.nn.both import close

STEPS, BATCH, CLASSES = 6, 3, 5
LABELS = np.array([[1, 1, 2], [3, 2, 4], [2, 4, 4]])
# (lengths of inputs, lengths of targets)
LENGTHS = (
    ([6, 5, 4], [3, 2, 1]), ([0, 5, 6], [1, 0, 3]), ([0, 1, 3], [0, 1, 3]), ([3, 2, 6], [3, 3, 3]),
)


def gradients_of(package: Any, **options: Any) -> Any:
    """A step that gives the loss, and the gradient of the scores."""

    def step(x: Any, targets: Any, given: Any, lengths: Any) -> Any:
        x = x.detach().requires_grad_()
        F = package.nn.functional
        loss = F.ctc_loss(F.log_softmax(x, -1), targets, given, lengths, **options)
        loss.sum().backward()
        return loss, x.grad

    return step


def arguments(package: Any, in_rows: bool, given: list[int], lengths: list[int]) -> Any:
    """Scores, targets and lengths as tensors."""
    x = np.random.default_rng(0).standard_normal((STEPS, BATCH, CLASSES))
    rows = [row[:n] for row, n in zip(LABELS, lengths, strict=True)]
    labels = LABELS if in_rows else np.concatenate(rows)
    return [package.from_numpy(array) for array in (x, labels.copy())] + [
        package.tensor(numbers) for numbers in (given, lengths)
    ]


@pytest.mark.parametrize("in_rows", [True, False], ids=["rows", "concatenated"])
@pytest.mark.parametrize("zero_infinity", [False, True])
@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
def test_lengths_that_change(reduction: str, zero_infinity: bool, in_rows: bool) -> None:
    """Impossible alignments are inf with gradients of nan, as PyTorch's."""
    options: Any = {"reduction": reduction, "zero_infinity": zero_infinity}
    step = gradients_of(graphc, **options)
    compiled = graphc.compile(step, fullgraph=True)
    for given, lengths in LENGTHS:
        want = gradients_of(torch, **options)(
            *arguments(torch, in_rows, given, lengths)
        )
        for run in (step, compiled):
            have = run(*arguments(graphc, in_rows, given, lengths))
            close(have, want, 1e-9, f"{given}, {lengths}")
    # concatenated targets have other sizes
    assert compiled.compile_count == 1 if in_rows else compiled.compile_count <= 3
    explanation = explain(compiled, *arguments(graphc, in_rows, *LENGTHS[0]))
    assert not explanation.callbacks


@pytest.mark.parametrize(("in_rows", "given", "lengths"), [
    (True, [7, 6, 6], [1, 1, 1]), (True, [6, -1, 6], [1, 1, 1]), (True, [6, 6, 6], [4, 1, 1]),
    (True, [6, 6, 6], [-1, 1, 1]), (False, [6, 6, 6], [3, 3, 3]),
])
def test_lengths_that_do_not_fit(in_rows: bool, given: list[int], lengths: list[int]) -> None:
    good = arguments(graphc, in_rows, [6, 6, 6], [2, 1, 3])
    compiled = graphc.compile(gradients_of(graphc))
    for run in (gradients_of(graphc), compiled):
        for _ in range(2):
            loss = run(*good)[0]
            bad = [*good[:2], graphc.tensor(given), graphc.tensor(lengths)]
            with pytest.raises(RuntimeError) as found:
                run(*bad)
            with pytest.raises(RuntimeError) as wanted:
                gradients_of(torch)(*[torch.from_numpy(t.numpy()) for t in bad])
            first = str(found.value).splitlines()[0]
            assert first.split(" (while")[0] in str(wanted.value)
            close(run(*good)[0].item(), loss.item(), 0)
