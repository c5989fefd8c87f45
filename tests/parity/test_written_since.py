"""What is written to between a forward and a backward pass, where PyTorch did not save it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import graphc

torch = pytest.importorskip("torch")


def _losses(name: str) -> Callable[[Any, Any, Any], Any]:
    return lambda t, x, y: getattr(t.nn.functional, name)(x, y)


def _classes(t: Any, x: Any, y: Any) -> Any:
    return t.nn.functional.cross_entropy(x, (y[:, 0] * 2).long())


def _attended(t: Any, x: Any, y: Any) -> Any:
    x, y = x[None, :4], y[None, :4]
    return t.nn.functional.scaled_dot_product_attention(x, y, y)


CASES: dict[str, Callable[[Any, Any, Any], Any]] = {
    **{name: _losses(name) for name in ("l1_loss", "hinge_embedding_loss", "poisson_nll_loss")},
    "cross_entropy": _classes,
    "root": lambda t, x, y: x**0.5,
    "root below": lambda t, x, y: x**-0.5,
    "erfinv": lambda t, x, y: x.erfinv(),
    "attention": _attended,
}


def slope(t: Any, name: str, rows: int, which: str, compiled: bool) -> list[Any]:
    """The gradient after the operand, or the result, was written to; at each of four calls."""
    function: Any = lambda x, y: CASES[name](t, x, y)  # noqa: E731
    if compiled:
        function = t.compile(function)
    found = []
    for _ in range(4):
        leaf = t.linspace(0.1, 0.9, 2 * rows).reshape(rows, 2).requires_grad_()
        x, y = leaf * 1, t.linspace(0.9, 0.1, 2 * rows).reshape(rows, 2)
        z = function(x, y)
        with t.no_grad():
            {"x": x, "z": z}[which].mul_(0.5)
        (z * t.arange(1.0, z.numel() + 1).reshape(z.shape) / z.numel()).sum().backward()
        found.append(leaf.grad.numpy().copy())
    return found


SAVED = ("root", "root below", "erfinv")  # their operands are saved by PyTorch, too


@pytest.mark.parametrize(("rows", "compiled"), [(4, False), (4, True), (40_000, False)])
@pytest.mark.parametrize(
    ("name", "which"), [(n, w) for n in CASES for w in "xz" if w == "z" or n not in SAVED]
)
def test_a_gradient_of_what_was_there(name: str, rows: int, which: str, compiled: bool) -> None:
    (expected, *_) = slope(torch, name, rows, which, False)
    for found in slope(graphc, name, rows, which, compiled):
        assert found == pytest.approx(expected, rel=1e-4, abs=1e-6)


def test_in_place_behind_a_root_within_one_graph() -> None:
    def step(x: Any) -> Any:
        y = (x * 1) ** 0.5
        y.add_(1e-3)
        z = x * 2
        loss = graphc.nn.functional.cross_entropy(z.view(2, 2), graphc.tensor([1, 0]))
        z.mul_(2)
        (y.sum() + loss + z.sum()).backward()

    slopes = []
    for function in (step, graphc.compile(step, fullgraph=True)):
        x = graphc.tensor([0.2, 0.4, 0.6, 0.8], requires_grad=True)
        function(x)
        slopes.append(x.grad.tolist())
    assert slopes[0] == pytest.approx(slopes[1], rel=1e-5)
