"""Results of a compiled call, and what they are views of, written to before its backward.

Eager mode saves tensors, so a write to their memory that autograd does not see changes the
gradients that read it, through whatever view, and nothing that was computed by itself before.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import graphc
from tests.reference import torch

VIEWS: dict[str, Callable[[Any], Any]] = {
    "itself": lambda a: a,
    "clone": lambda a: a.clone(),
    "view": lambda a: a.view(-1),
    "t": lambda a: a.t(),
    "slice": lambda a: a[1:],
    "expand": lambda a: a[None].expand(3, 2, 2),
    "a reshape that copies": lambda a: a.t().reshape(-1),
    "contiguous": lambda a: a.t().contiguous(),
    "diagonal": lambda a: a.diagonal(),
    "a view of a clone": lambda a: a.clone().view(-1),
    "a clone of a view": lambda a: a.view(-1).clone(),
}
READS: dict[str, Callable[[Any, Any], Any]] = {
    "square": lambda a, v: v * v,
    "exp": lambda a, v: v.exp() * v,
    "plus": lambda a, v: (v + 1) * (v + 1) * v,
    "both": lambda a, v: (a.cos() * a).sum() * v,
}
WRITES: dict[str, Callable[[Any], Any]] = {
    "data": lambda a: a.data.mul_(2),
    "detach": lambda a: a.detach().mul_(2),
}


def said(error: RuntimeError) -> str:
    text = str(error)
    assert "modified by an inplace operation" in text or "a single memory location" in text
    return text[:20]


def gradients(lib: Any, compile: Any, case: tuple[Any, Any, Any], inner: bool, cut: bool) -> Any:
    view, read, write = case

    def forward(x: Any) -> Any:
        a = x * 2
        y = read(a, view(a))
        if cut:
            float(y.detach().sum())
        if inner:
            write(a)
            y.sum().backward()
        return a, y

    compiled, found = compile(forward), []
    for _ in range(3):
        x = lib.tensor([[1.0, 0.5], [0.25, -1.0]], requires_grad=True)
        try:
            a, y = compiled(x)
            if not inner:
                write(a)
                y.sum().backward()
            found.append(np.array(x.grad.tolist()))
        except RuntimeError as error:
            found.append(said(error))
    return found


def same(left: Any, right: Any) -> bool:
    if isinstance(left, str) or isinstance(right, str):
        return type(left) is type(right)
    return all(np.allclose(a, b, rtol=2e-4, atol=1e-5) for a, b in zip(left, right, strict=True))


@pytest.mark.parametrize("cut", [False, True])
@pytest.mark.parametrize("inner", [False, True])
@pytest.mark.parametrize("write", WRITES)
@pytest.mark.parametrize("name", VIEWS)
def test_views_of_results(name: str, write: str, inner: bool, cut: bool) -> None:
    for read in READS.values():
        case = VIEWS[name], read, WRITES[write]
        expected = gradients(torch, lambda f: f, case, inner, cut)
        for how in (lambda f: f, graphc.compile):
            found = gradients(graphc, how, case, inner, cut)
            assert all(same(e, f) for e, f in zip(expected, found, strict=True))


# --- random programs --------------------------------------------------------------------------

OPERATIONS = (
    "{0} * {1}", "{0} + {1}", "{0}.exp()", "{0}.sin()", "{0}.t()", "{0}.reshape(-1).view(2, 2)",
    "{0}.clone()", "{0} * 1.5", "{0}[[1, 0]]", "{0}[:, :1].expand(2, 2)", "{0} @ {1}",
    "{0}.relu()", "{0}.t().contiguous()", "{0} @ w.t()", "{0} * w", "{0}.detach() * {1}",
    "Square.apply({0})", "{0}.softmax(-1)", "lib.nn.functional.linear({0}, w)",
)
BETWEEN = (
    "{0}.data.mul_(1.5)", "{0}.detach().mul_(1.5)", "{0}.data[0].add_(1)",
    "{0}.t().data.add_(.5)", "{0}.view(-1).data.sub_(.25)",
)


def drawn(seed: int) -> tuple[str, list[str]]:
    """A function's text, and the writes between its call and the backward of its last result."""
    rng = random.Random(seed)
    names, lines = ["x", "a"], ["a = x * 1.0"]
    for i in range(rng.randint(2, 6)):
        lines.append(f"a{i} = " + rng.choice(OPERATIONS).format(*rng.choices(names, k=2)))
        names.append(f"a{i}")
    if rng.random() < 0.4:
        lines.insert(rng.randint(1, len(lines)), "float(a.detach().sum())")
    kept = rng.sample(names[1:], rng.randint(1, min(3, len(names) - 1)))
    lines.append(f"return [{', '.join(kept)}], {names[-1]} * {rng.choice(names)}")
    targets = [*(f"kept[{i}]" for i in range(len(kept))), "x", "w"]
    writes = [rng.choice(BETWEEN).format(rng.choice(targets)) for _ in range(rng.randint(1, 2))]
    return "def f(x):\n" + "".join(f"    {line}\n" for line in lines), writes


def outcomes(lib: Any, compile: Any, text: str, writes: list[str]) -> list[Any]:
    class Square(lib.autograd.Function):  # type: ignore[misc, name-defined]
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            ctx.save_for_backward(x)
            return x * x

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            return g * 2 * ctx.saved_tensors[0]

    w = lib.tensor([[0.5, -1.0], [0.25, 0.75]], requires_grad=True)
    scope = {"lib": lib, "Square": Square, "w": w}
    exec(text, scope)
    function, start, found = compile(scope["f"]), w.detach().clone(), []
    for k in range(3):
        w.data.copy_(start)
        w.grad = None
        x = lib.tensor([[0.1, 0.2], [0.3 + k * 0.1, -0.4]], requires_grad=True)
        try:
            kept, y = function(x)
            for write in writes:
                exec(write, {"kept": kept, "x": x, "w": w})
            y.sum().backward()
            leaves = [x, *([] if w.grad is None else [w])]
            found.append([np.array(leaf.grad.tolist()) for leaf in leaves])
        except RuntimeError as error:
            found.append(said(error))
    return found


@pytest.mark.parametrize("first", range(0, 120, 20))
def test_random(first: int) -> None:
    for seed in range(first, first + 20):
        text, writes = drawn(seed)
        expected = outcomes(torch, lambda f: f, text, writes)
        for how in (lambda f: f, graphc.compile):
            found = outcomes(graphc, how, text, writes)
            assert all(
                same(e, f) for e, f in zip(expected, found, strict=True)
            ), (seed, text, writes)


@pytest.mark.parametrize("cut", [False, True])
@pytest.mark.parametrize("inner", [False, True])
def test_views_of_no_grad_mode_know_of_later_writes(inner: bool, cut: bool) -> None:
    def script(lib: Any, compile: Any) -> list[str]:
        def forward(x: Any) -> Any:
            h = x * 2 if inner else x
            with lib.no_grad():
                view = h.t()
            if cut:
                float(x.detach().sum())
            h.detach()[0].add_(1)
            return view, h * 1

        compiled, found = compile(forward), []
        for _ in range(3):
            view, _ = compiled(lib.ones(2, 3).requires_grad_())
            with pytest.raises(RuntimeError, match="no_grad mode") as caught:
                view.grad_fn  # noqa: B018 (reading it raises)
            found += [caught.typename, str(view.tolist())]
        return found

    expected = script(torch, lambda f: f)
    assert script(graphc, lambda f: f) == expected == script(graphc, graphc.compile)


@pytest.mark.parametrize("write", ["x.data.sub_(.25)", "x.view(-1).data.sub_(.25)"])
def test_a_segment_reads_its_inputs_memory_though_it_is_out_of_order(write: str) -> None:
    """Native code gets a copy in order of what a segment before made a view of."""
    text = """def f(x):
    a = x[:, :1].expand(2, 2)
    b = x.t()
    if float(a.detach().sum()) > 1e9:
        a = a * 2
    return [b], a * a + b * b
"""
    expected = outcomes(torch, lambda f: f, text, [write])

    def always(f: Any) -> Any:
        compiled = graphc.compile(f)
        compiled.always_compiled = True
        return compiled

    found = outcomes(graphc, always, text, [write])
    assert all(same(e, f) for e, f in zip(expected, found, strict=True))
