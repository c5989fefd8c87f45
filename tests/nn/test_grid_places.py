"""grid_sample at positions that are none: NaN and infinities, as PyTorch takes them."""

from __future__ import annotations

import itertools
import math
from typing import Any

import pytest

import graphc
from tests.reference import torch

NAN, INF = math.nan, math.inf
PLANE = list(itertools.product((NAN, INF, -INF, 0.0, 0.3, -2.0), (NAN, INF, -INF, 0.1, 1.7)))
SOLID = list(itertools.product((NAN, INF, -INF, 0.2), (NAN, -INF, 0.1), (NAN, INF, 0.4)))


def sampled(library: Any, dim: int, compile: Any, *how: Any) -> list[float]:
    """What lies there."""
    places, sizes = (PLANE, (1, 1, 4, 4)) if dim == 2 else (SOLID, (1, 1, 3, 4, 4))
    x = (library.arange(math.prod(sizes)) + 1.0).reshape(sizes)
    grid = library.tensor(places).reshape((1, len(places), *(1,) * (dim - 1), dim))
    found = compile(lambda x, g: library.nn.functional.grid_sample(x, g, *how))(x, grid)
    return found.flatten().tolist()


@pytest.mark.parametrize("align", [True, False])
@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
@pytest.mark.parametrize("mode", ["bilinear", "nearest"])
@pytest.mark.parametrize("dim", [2, 3])
def test_places_that_are_none(dim: int, mode: str, padding: str, align: bool) -> None:
    expected = sampled(torch, dim, lambda f: f, mode, padding, align)
    for compile in (lambda f: f, graphc.compile):
        found = sampled(graphc, dim, compile, mode, padding, align)
        assert found == pytest.approx(expected, rel=1e-5, abs=1e-5, nan_ok=True)


@pytest.mark.parametrize("mode", ["bilinear", "nearest", "bicubic"])
@pytest.mark.parametrize("far", [100.0, 1e7, 1e10, 1e20])
def test_places_far_away_are_reflected_as_torch_rounds(far: float, mode: str) -> None:
    def function(t: Any, run: Any) -> list[Any]:
        numbers = [math.sin(3 * i) * far for i in range(60)]
        x = (t.arange(30.0) + 1).reshape(1, 1, 5, 6).requires_grad_()
        grid = t.tensor(numbers).reshape(1, 30, 1, 2).requires_grad_()
        found = run(lambda x, g: t.nn.functional.grid_sample(x, g, mode, "reflection", True))(
            x, grid
        )
        found.sum().backward()
        return [found.flatten().tolist(), x.grad.flatten().tolist(), grid.grad.flatten().tolist()]

    expected = function(torch, lambda f: f)
    for run in (lambda f: f, graphc.compile):
        for ours, theirs in zip(function(graphc, run), expected, strict=True):
            assert ours == pytest.approx(theirs, rel=1e-3, abs=1e-3)


def test_index_select_of_a_scalar_refuses_several_positions() -> None:
    for run in (lambda f: f, graphc.compile):
        for library in (torch, graphc):
            select = run(lambda x, i, t=library: t.index_select(x, 0, i)) if library is graphc \
                else lambda x, i: torch.index_select(x, 0, i)
            with pytest.raises(RuntimeError, match="can have only 1 value, got 2"):
                select(library.ones(()), library.tensor([0, 0]))
            assert select(library.ones(()), library.tensor([0])).tolist() == 1.0


def test_index_select_out_of_range_is_an_error_of_either_class() -> None:
    for kind, shape in ((RuntimeError, (2, 3)), (IndexError, (3,))):
        for library in (torch, graphc):
            with pytest.raises(kind):
                library.ones(shape).index_select(len(shape) - 1, library.tensor([0, 3]))
