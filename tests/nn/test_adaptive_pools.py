"""Adaptive mean pools whose sizes do not divide: to more places, to fewer, to a multiple."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")

import torch

import graphc
from tests.nn.both import SPACES

SIZES = [([7], [3]), ([7], [14]), ([7], [17]), ([6, 5], [4, 15]), ([1, 9], [3, 9]),
         ([5, 8], [7, 0]), ([3, 4, 5], [2, 8, 7]), ([64, 3], [200, 3])]


def pooled(space: Any, outputs: list[int]) -> Any:
    function = getattr(space.F, f"adaptive_avg_pool{len(outputs)}d")
    return lambda x: function(x, outputs)


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize(("sizes", "outputs"), SIZES, ids=str)
def test_windows_that_overlap(sizes: list[int], outputs: list[int], compiled: bool) -> None:
    values = np.random.default_rng(0).standard_normal((2, 3, *sizes))
    values[(0,) * values.ndim] = np.nan  # stays in its windows
    theirs = torch.tensor(values, requires_grad=True)
    want = pooled(SPACES[0], outputs)(theirs)
    ours = graphc.tensor(values, requires_grad=True)
    function = pooled(SPACES[1], outputs)
    got = (graphc.compile(function) if compiled else function)(ours)
    assert got.shape == want.shape and got.stride() == want.stride()
    np.testing.assert_allclose(got.detach().numpy(), want.detach().numpy(), rtol=1e-13)
    if want.numel():
        weights = np.random.default_rng(1).standard_normal(want.shape)
        want.backward(torch.tensor(weights))
        got.backward(graphc.tensor(weights))
        assert ours.grad is not None and theirs.grad is not None
        np.testing.assert_allclose(ours.grad.numpy(), theirs.grad.numpy(), rtol=1e-12, atol=1e-14)


def test_the_graph_is_no_longer_for_more_places() -> None:
    """A window each would take minutes to compile, and as many comparisons an element to run."""
    x = graphc.ones(1, 1, 64)
    function = graphc.compile(lambda x: graphc.nn.functional.adaptive_avg_pool1d(x, 201))
    assert function(x).shape == (1, 1, 201)
    assert str(graphc.explain(function)).count("slice") == 0


def test_integers_are_refused() -> None:
    with pytest.raises(NotImplementedError, match="not implemented for 'Long'"):
        graphc.nn.functional.adaptive_avg_pool1d(graphc.arange(7)[None], 3)
