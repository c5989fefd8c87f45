"""Compiled functions of a tensor and a view of it: what writes give the tensor's history, the
view's is, whichever of the two the function met first."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import graphc


def _filled(y: Any, z: Any, v: Any) -> Any:
    z[...] = 0.5
    y.add_(1)
    return y


def _zeroed(y: Any, z: Any, v: Any) -> Any:
    z.zero_()
    y.mul_(3)
    return y


def _met_before(y: Any, z: Any, v: Any) -> Any:
    before = y * 2
    z.mul_(v)
    return y * 3 + before


def _met_after(y: Any, z: Any, v: Any) -> Any:
    z.mul_(v)
    return y * 3


def _in_turn(y: Any, z: Any, v: Any) -> Any:
    z.mul_(2)
    y.mul_(3)
    z.add_(v)
    return y * 2


OVERWRITING = [_filled, _zeroed]  # no gradient goes back but by what was there
WEIGHTED = [_met_before, _met_after, _in_turn]
CASES = [*((f, True) for f in [*OVERWRITING, *WEIGHTED]), *((f, False) for f in WEIGHTED)]
VIEWS: dict[str, Callable[[Any], Any]] = {
    "view": lambda z: z.view(2, 3), "part": lambda z: z[1:4], "turned": lambda z: z.view(2, 3).t(),
}


def _called(package: Any, function: Any, view: str, learns: bool) -> Any:
    w = package.arange(6.0).requires_grad_(learns)
    v = package.linspace(1.0, 2.0, 6).requires_grad_()
    z = w * 2
    y = VIEWS[view](z)
    result = function(y, z, v)
    result.sum().backward()
    return [
        None if x is None else x.tolist() for x in (result, y, z, w.grad, v.grad)
    ], y.requires_grad, z.requires_grad


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize(("function", "learns"), CASES)
@pytest.mark.filterwarnings("ignore::graphc.PerformanceWarning")
def test_views_follow(function: Any, learns: bool, view: str) -> None:
    wanted = _called(torch, function, view, learns)
    assert _called(graphc, graphc.compile(function), view, learns) == wanted
    assert _called(graphc, function, view, learns) == wanted
