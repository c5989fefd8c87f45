"""Memory that is written between a compiled forward and its backward: what autograd does not see
(`.data`) changes the gradients that read it, as in PyTorch, and nothing that came of it before."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import graphc
from graphc.frontend.storage import readers
from tests.graphc.scenario import compare, identity, run
from tests.reference import torch

FORWARDS: dict[str, Callable[[Any, Any], Any]] = {
    "square": lambda torch, x: x * x,
    "exp": lambda torch, x: (x * 2).exp(),
    "tanh": lambda torch, x: torch.tanh(x * 3),
    "sin of sin": lambda torch, x: torch.sin(torch.sin(x * 2) * x),
}


def by_data(torch: Any, x: Any, k: Any) -> None:
    x.data.mul_(k)


def without_grad(torch: Any, x: Any, k: Any) -> None:
    with torch.no_grad():
        x.mul_(k)


@pytest.mark.parametrize("written_by_graph", [False, True])
@pytest.mark.parametrize("write", [by_data, without_grad])
@pytest.mark.parametrize("name", FORWARDS)
def test_between_calls(name: str, write: Callable[..., None], written_by_graph: bool) -> None:
    forward = FORWARDS[name]

    def script(torch: Any, nn: Any, F: Any, compile: Any) -> Any:
        first = compile(lambda x: forward(torch, x))

        def second(x, k):
            write(torch, x, k)

        change = compile(second) if written_by_graph else second
        found = []
        for _ in range(3):
            x = torch.full((3,), 0.5, requires_grad=True)
            y = first(x)
            change(x, torch.tensor(2.0))
            try:
                y.sum().backward()
            except RuntimeError as error:
                found.append(str(error).split(":")[0].split(" after")[0][:60])
            found += [y, x, x.grad]
        return found

    expected = run(script, torch, identity)
    for how in (identity, graphc.compile):
        compare(expected, run(script, graphc, how), 1e-5)


def after_a_cut(torch: Any, x: Any, w: Any) -> Any:
    y = (x * w).square()
    y.sum().item()
    w.data.add_(1)
    y.sum().backward()
    return y


def a_part_after_each_cut(torch: Any, x: Any, w: Any) -> Any:
    y = x * w * w
    y.sum().item()
    part = w.data
    part[0] = 5
    z = y * w
    z.sum().item()
    part[1] = 7
    z.sum().backward()
    return z


def of_what_was_computed(torch: Any, x: Any, w: Any) -> Any:
    h = x * w
    y = h * h
    y.sum().item()
    h.data.mul_(2)
    y.sum().backward()
    return y


def by_detach(torch: Any, x: Any, w: Any) -> Any:
    y = w * w * x
    y.sum().item()
    w.detach().mul_(2)  # autograd sees it
    try:
        y.sum().backward()
    except RuntimeError as error:
        assert "modified by an inplace operation" in str(error)
    return y


@pytest.mark.parametrize(
    "step", [after_a_cut, a_part_after_each_cut, of_what_was_computed, by_detach]
)
def test_in_segments(step: Callable[..., Any]) -> None:
    def script(torch: Any, nn: Any, F: Any, compile: Any) -> Any:
        w = torch.arange(3.0).add(1).requires_grad_()
        compiled = compile(lambda x: step(torch, x, w))
        found = []
        for k in range(4):
            y = compiled(torch.full((3,), k + 0.5)).detach()
            found += [y, w.detach().clone(), None if w.grad is None else w.grad.clone()]
        return found

    expected = run(script, torch, identity)
    for how in (identity, graphc.compile):
        compare(expected, run(script, graphc, how), 1e-5)


def test_what_has_run_or_died_is_not_told_of_writes() -> None:
    before = len(readers)
    compiled = graphc.compile(lambda x: (x * x).sum())
    x = graphc.ones(3, requires_grad=True)
    y = compiled(x)
    assert len(readers) == before + 1
    y.backward()
    assert len(readers) == before
    compiled(x)
    assert len(readers) == before


def _products(torch: Any, x: Any, w: Any) -> tuple[Any, ...]:
    return (x * w).sum(), (x.sin() * w).sum(), (w * 3).sum()


def _halves(torch: Any, x: Any, w: Any) -> tuple[Any, ...]:
    return (x[:1] * w[:1]).sum(), (x[1:].exp() * w[1:]).sum()


def _layers(torch: Any, x: Any, w: Any) -> tuple[Any, ...]:
    hidden = torch.tanh(w * 2)
    return (hidden * x).sum(), hidden.sum()


def _kept_by_itself(torch: Any, x: Any, w: Any) -> tuple[Any, ...]:
    class Scale(torch.autograd.Function):
        @staticmethod
        def forward(ctx, w, x):
            ctx.factor = x
            return w * x

        @staticmethod
        def backward(ctx, g):
            return g * ctx.factor, None

    return (Scale.apply(w, x).sum(),)


def _own_result(torch: Any, x: Any, w: Any) -> tuple[Any, ...]:
    class Exp(torch.autograd.Function):
        @staticmethod
        def forward(ctx, w):
            ctx.result = w.exp()
            return ctx.result

        @staticmethod
        def backward(ctx, g):
            return g * ctx.result

    result = Exp.apply(w)
    return (result * x).sum(), (result * 2).sum()


@pytest.mark.parametrize("part", [None, 1])
@pytest.mark.parametrize("forward", [
    _products, _halves, _layers, _kept_by_itself, _own_result,
])
def test_a_write_that_autograd_sees_concerns_what_reads_it_alone(
    forward: Callable[..., tuple[Any, ...]], part: int | None
) -> None:
    def script(torch: Any, nn: Any, F: Any, compile: Any) -> Any:
        f = compile(lambda x, w: forward(torch, x, w))
        found: list[Any] = []
        for turn in range(4):  # the results one after the other, beginning with each
            x, w = torch.tensor([0.5, 0.7]), torch.ones(2, requires_grad=True)
            results = f(x, w)
            with torch.no_grad():
                (x if part is None else x[part]).add_(1)
            for k in range(len(results)):
                try:
                    results[(turn + k) % len(results)].backward(retain_graph=True)
                except RuntimeError as error:
                    found.append(str(error).split(":")[0])
                found.append(None if w.grad is None else w.grad.clone())
        return found

    expected = run(script, torch, identity)
    for how in (identity, graphc.compile):
        compare(expected, run(script, graphc, how), 1e-5)


def test_a_result_that_a_function_keeps_by_itself_is_read_as_it_is() -> None:
    def script(torch: Any, nn: Any, F: Any, compile: Any) -> Any:
        class Exp(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                ctx.result = x.exp()
                return ctx.result

            @staticmethod
            def backward(ctx, g):
                return g * ctx.result

        f = compile(lambda x: Exp.apply(x * 2))
        found: list[Any] = []
        for i in range(3):
            x = torch.zeros(2, requires_grad=True)
            y = f(x)
            with torch.no_grad():
                y.mul_(i + 2)
            y.sum().backward()
            found += [y, x.grad]
        return found

    expected = run(script, torch, identity)
    for how in (identity, graphc.compile):
        compare(expected, run(script, graphc, how), 1e-5)
