"""What a compiled function does to an argument itself, it does to each call's own argument."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import graphc
from tests.reference import torch


def _both(first: Any, then: Any) -> Any:
    return then


EFFECTS: dict[str, Callable[[Any, Any], Any]] = {
    "backward": lambda m, x: _both((x * x).sum().backward(), x * 2),
    "backward twice": lambda m, x: _both(
        (x * x).sum().backward(), _both(x.sum().backward(), x.detach())
    ),
    "grad": lambda m, x: _both(setattr(x, "grad", x.detach() * 3), x * 2),
    "grad to None": lambda m, x: _both(setattr(x, "grad", None), x * 2),
    "data": lambda m, x: _both(setattr(x, "data", x.detach() * 3), x * 2),
    "requires_grad": lambda m, x: _both(x.requires_grad_(False), x * 2),
    "detach_": lambda m, x: _both(x.detach_(), x * 2),
}


@pytest.mark.parametrize("graph", ["leaf", "leaf with .grad", "result"])
@pytest.mark.parametrize("name", list(EFFECTS))
@pytest.mark.filterwarnings("ignore:The .grad attribute")
def test_effect(name: str, graph: str) -> None:
    if graph == "result" and name in ("requires_grad", "backward twice"):
        pytest.skip("PyTorch refuses")
    found: list[list[Any]] = []
    for m in (torch, graphc):
        function: Any = lambda x, m=m: EFFECTS[name](m, x)  # noqa: E731
        call = graphc.compile(function) if m is graphc else function
        states = []
        for start in (1.0, 2.0, 3.0):
            leaf = x = m.tensor([start, 4.0], requires_grad=True)
            if graph == "leaf with .grad":
                x.grad = m.tensor([10.0, 20.0])
            if graph == "result":
                x = leaf * 1
            result = call(x)
            if result.requires_grad and name != "backward":
                result.sum().backward()
            states += [result, x, leaf.grad]
            states += [result.requires_grad, x.requires_grad, x.is_leaf]
        found.append([s.tolist() if hasattr(s, "tolist") else s for s in states])
    assert found[1] == found[0]


EXPANDED: dict[str, Callable[[Any], Any]] = {
    "add_": lambda e: e.add_(1),
    "mul_": lambda e: e.mul_(2),
    "copy_": lambda e: e.copy_(e * 2),
    "exp_": lambda e: e.exp_(),
    "of a slice": lambda e: e[:, 1:].add_(1),
    "fill_": lambda e: e.fill_(3.0),
    "zero_": lambda e: e.zero_(),
    "fill_ of a row": lambda e: e[0].fill_(3.0),
}


@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "compiled"])
@pytest.mark.parametrize("name", list(EXPANDED))
def test_write_to_an_expanded_argument(name: str, compiled: bool) -> None:
    found: list[Any] = []
    for m in (torch, graphc):
        call = EXPANDED[name]
        if m is graphc and compiled:
            call = graphc.compile(call)
        for _ in range(2):
            base = m.arange(3.0)
            given = base.expand(2, 3)
            try:
                result = call(given).tolist()
            except RuntimeError as error:
                result = str(error).split(". Please")[0]
            found.append((result, given.tolist(), base.tolist()))
    assert found[2:] == found[:2]


MODES: dict[str, Callable[[Any, Any], Any]] = {
    "off": lambda m, x: (m.set_grad_enabled(False), x * 2)[1],
    "off and on": lambda m, x: (m.set_grad_enabled(False), x * 2, m.set_grad_enabled(True), x * 3),
    "off at the end": lambda m, x: (x * 2, m.set_grad_enabled(False), x * 3),
    "enabled inside": lambda m, x: m.enable_grad()(lambda: x * 2)(),
    "context": lambda m, x: m.set_grad_enabled(False)(lambda: x * 2)() + x,
}


@pytest.mark.parametrize("before", [True, False])
@pytest.mark.parametrize("name", list(MODES))
def test_grad_mode(name: str, before: bool) -> None:
    """set_grad_enabled(...) as a call lasts beyond the compiled function, at every call."""
    found: list[Any] = []
    for m in (torch, graphc):
        function: Any = lambda x, m=m: MODES[name](m, x)  # noqa: E731
        call = graphc.compile(function) if m is graphc else function
        x = m.ones(2, requires_grad=True)
        for _ in range(3):
            m.set_grad_enabled(before)
            try:
                result = call(x)
                results = [t for t in (result if isinstance(result, tuple) else (result,))
                           if hasattr(t, "requires_grad")]
                flags = [t.requires_grad for t in results]
                found.append((flags, m.is_grad_enabled()))
            finally:
                m.set_grad_enabled(True)
            gradients = [m.autograd.grad(t.sum(), x)[0].tolist() for t in results
                         if t.requires_grad]
            found.append(gradients)
    assert found[6:] == found[:6]


def test_write_with_a_gradient_after_a_demand() -> None:
    """The value written reads what it overwrites, in an earlier segment's memory."""
    def function(x: Any, g: Any) -> Any:
        x.sum().item()
        x.mul_(g)
        return x * 2

    found = []
    for m, call in ((torch, function), (graphc, graphc.compile(function))):
        for _ in range(2):
            x, g = m.arange(3.0) + 1, m.tensor([1.0, 2.0, 3.0], requires_grad=True)
            call(x, g).sum().backward()
            found.append((x.tolist(), g.grad.tolist()))
    assert found[2:] == found[:2]
    np.testing.assert_array_equal(found[0][1], [2, 4, 6])
