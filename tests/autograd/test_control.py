"""cond, while_loop, scan and associative_scan: values and gradients, eager, compiled, batched."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")

import torch

import graphc
from graphc._higher_order_ops import associative_scan, cond, scan, while_loop
from graphc._higher_order_ops import map as map_over

torch.set_num_threads(1)
X = np.random.default_rng(0).standard_normal((4, 3))
MODES = ("eager", "compiled", "numpy", "whole step")


def gradients(function: Callable[..., Any], arrays: list[np.ndarray], mode: str) -> list[Any]:
    """The value of a scalar function and its gradients."""
    given = [graphc.tensor(a, requires_grad=a.dtype.kind == "f") for a in arrays]
    wanted = [g for g in given if g.requires_grad]
    if mode == "whole step":
        def step(*values: Any) -> Any:
            out = function(*values)
            inner = [v for v in values if v.requires_grad]
            return out, graphc.autograd.grad(out, inner, materialize_grads=True)
        out, found = graphc.compile(step)(*given)
        return [out.detach().numpy(), *(g.numpy() for g in found)]
    if mode != "eager":
        function = graphc.compile(function, backend="numpy" if mode == "numpy" else "llvm")
    out = function(*given)
    out.backward()
    return [
        out.detach().numpy(),
        *(np.zeros(g.shape) if g.grad is None else g.grad.numpy() for g in wanted),
    ]


def reference(function: Callable[..., Any], arrays: list[np.ndarray]) -> list[Any]:
    """The same by torch's Python control flow."""
    given = [torch.tensor(a, requires_grad=a.dtype.kind == "f") for a in arrays]
    out = function(*given)
    wanted = [g for g in given if g.requires_grad]
    found = torch.autograd.grad(out, wanted, allow_unused=True)
    return [out.detach().numpy(), *(
        np.zeros(w.shape) if g is None else g.numpy() for g, w in zip(found, wanted, strict=True)
    )]


def same(have: list[Any], want: list[Any]) -> None:
    for a, b in zip(have, want, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_cond(mode: str, sign: float) -> None:
    def ours(p: Any, a: Any, w: Any) -> Any:
        found = cond(p.sum() > 0, lambda x: ((x * w).sin(), x), lambda x: (x.exp(), x * 2), (a,))
        return (found[0] ** 2).sum() + found[1].sum()

    def theirs(p: Any, a: Any, w: Any) -> Any:
        one, two = ((a * w).sin(), a) if p.sum() > 0 else (a.exp(), a * 2)
        return (one**2).sum() + two.sum()

    arrays = [np.array([sign]), X[0], X[1]]
    same(gradients(ours, arrays, mode), reference(theirs, arrays))


@pytest.mark.parametrize("mode", MODES)
def test_scan(mode: str) -> None:
    def ours(w: Any, x: Any) -> Any:
        def step(carry: Any, row: Any) -> Any:
            new = (carry["h"] * w + row).tanh()
            return {"h": new, "n": carry["n"] + 1}, (new * new, new.sum())

        start = {"h": graphc.zeros(3, dtype=graphc.float64), "n": graphc.tensor(0)}
        last, (ys, sums) = scan(step, start, x, reverse=True)
        return last["h"].sum() * 2 + (ys * x).sum() + sums.prod() + last["n"]

    def theirs(w: Any, x: Any) -> Any:
        h, ys, sums = torch.zeros(3, dtype=torch.float64), [], []
        for row in x.flip(0):
            h = (h * w + row).tanh()
            ys.append(h * h)
            sums.append(h.sum())
        stacked = torch.stack(ys).flip(0)
        return h.sum() * 2 + (stacked * x).sum() + torch.stack(sums).prod() + len(ys)

    same(gradients(ours, [X[0], X], mode), reference(theirs, [X[0], X]))


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("dim", [1, -1, -2])
def test_what_a_scan_stacks_lies_along_its_dim(mode: str, dim: int) -> None:
    def ours(x: Any) -> Any:
        begin = graphc.zeros(x.shape[1 - dim % 2], dtype=x.dtype)
        last, (ys, sums) = scan(lambda c, row: (c + row, (c * row, c.sum())), begin, x, dim=dim)
        assert ys.shape == x.shape and sums.shape == (x.shape[dim],)
        return (ys * x.cos()).sum() + last.prod() + sums.square().sum()

    def theirs(x: Any) -> Any:
        c, ys, sums = torch.zeros(x.shape[1 - dim % 2], dtype=x.dtype), [], []
        for row in x.unbind(dim):
            ys.append(c * row)
            sums.append(c.sum())
            c = c + row
        return (torch.stack(ys, dim) * x.cos()).sum() + c.prod() + torch.stack(sums).square().sum()

    same(gradients(ours, [X], mode), reference(theirs, [X]))


@pytest.mark.parametrize("mode", MODES)
def test_while_loop(mode: str) -> None:
    def ours(n: Any, a: Any, w: Any) -> Any:
        def body(i: Any, x: Any) -> Any:
            return i + 1, (x * w).sin()

        return while_loop(lambda i, x: i < n, body, (graphc.tensor(0), a))[1].sum()

    def theirs(n: Any, a: Any, w: Any) -> Any:
        for _ in range(int(n)):
            a = (a * w).sin()
        return a.sum()

    for steps in (4, 0):
        arrays = [np.array(steps), X[0], X[1]]
        same(gradients(ours, arrays, mode), reference(theirs, arrays))


def test_gradients_of_gradients() -> None:
    def penalty(w: Any, x: Any) -> Any:
        def step(c: Any, row: Any) -> Any:
            new = (c * w + row).tanh()
            return new, cond(new.sum() > 0, lambda a: a * a, lambda a: a.exp(), (new,))

        _, ys = scan(step, graphc.zeros(3, dtype=graphc.float64), x)
        (g,) = graphc.autograd.grad(ys.sum(), w, create_graph=True)
        return (g**2).sum()

    same(gradients(penalty, [X[0], X], "whole step"), gradients(penalty, [X[0], X], "eager"))


@pytest.mark.parametrize("mode", ["eager", "compiled"])
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("dim", [0, 1])
def test_associative_scan(mode: str, reverse: bool, dim: int) -> None:
    def function(x: Any) -> Any:
        return associative_scan(lambda a, b: a * b, x, dim, reverse=reverse)

    want = np.flip(np.cumprod(np.flip(X, dim), dim), dim) if reverse else np.cumprod(X, dim)
    run = function if mode == "eager" else graphc.compile(function)
    np.testing.assert_allclose(run(graphc.tensor(X)).numpy(), want)
    assert graphc.autograd.gradcheck(function, (graphc.tensor(X, requires_grad=True),))


def test_map_and_batches() -> None:
    x, w = graphc.tensor(X), graphc.tensor(X[0])
    np.testing.assert_allclose(map_over(lambda r, s: r * s, x, w).numpy(), X * X[0])
    np.testing.assert_allclose(
        graphc.compile(lambda a, b: map_over(lambda r, s: r * s, a, b))(x, w).numpy(), X * X[0])
    chosen = graphc.vmap(lambda a: cond(a[0] > 0, lambda r: r.sin(), lambda r: r.exp(), (a,)))(x)
    np.testing.assert_allclose(chosen.numpy(), np.where(X[:, :1] > 0, np.sin(X), np.exp(X)))
    limits = graphc.tensor([0, 1, 2, 3])
    doubled = graphc.vmap(lambda n, a: while_loop(
        lambda i, r: i < n, lambda i, r: (i + 1, r * 2), (graphc.tensor(0), a))[1])(limits, x)
    np.testing.assert_allclose(doubled.numpy(), X * 2.0 ** np.arange(4)[:, None])
    zero = graphc.zeros((), dtype=graphc.float64)
    sums = graphc.vmap(lambda a: scan(lambda c, v: (c + v, c + v), zero, a)[1])(x)
    np.testing.assert_allclose(sums.numpy(), np.cumsum(X, 1))


def test_random_branches_and_names_in_explain() -> None:
    def noisy(p: Any, x: Any) -> Any:
        return cond(p > 0, lambda a: a + graphc.rand(3), lambda a: a, (x,))

    x = graphc.zeros(3)
    results = []
    for run in (noisy, graphc.compile(noisy)):
        graphc.manual_seed(0)
        results.append((run(graphc.tensor(1.0), x).numpy(), graphc.rand(2).numpy()))
    for a, b in zip(*results, strict=True):
        np.testing.assert_array_equal(a, b)
    assert "cond" in str(graphc.explain(noisy, graphc.tensor(1.0), x))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda x: cond("yes", lambda a: a, lambda a: a, (x,)), "bool or tensor"),
        (lambda x: cond(x, lambda a: a, lambda a: a, (x,)), "single-element"),
        (lambda x: cond(True, lambda a: a, lambda a: a, (1,)), "tensor leaves"),
        (lambda x: cond(True, 1, lambda a: a, (x,)), "callable"),
        (lambda x: while_loop(lambda a: a.sum() < 3, lambda a: (a.sum(),), (x,)), "types"),
        (lambda x: scan(lambda c, a: c, x[0], x), "next_carry"),
    ],
)
def test_errors(call: Any, message: str) -> None:
    with pytest.raises(RuntimeError, match=message):
        call(graphc.zeros(3, 2))


def test_branches_must_agree_under_compile() -> None:
    function = graphc.compile(
        lambda x: cond(x.sum() > 0, lambda a: a, lambda a: a.sum(), (x,)))
    with pytest.raises((RuntimeError, TypeError), match="false branch"):
        function(graphc.ones(3))


@pytest.mark.parametrize("compiled", [False, True])
def test_numerical_gradients(compiled: bool) -> None:
    def loops(w: Any, x: Any) -> Any:
        def step(c: Any, row: Any) -> Any:
            new = cond(row.sum() > 0, lambda a: (a * w).tanh(), lambda a: a - w, (c + row,))
            return new, new * row

        last, ys = scan(step, w * 2, x)
        rest = while_loop(lambda i, a: i < 3, lambda i, a: (i + 1, (a * w).sin()),
                          (graphc.tensor(0), last))
        return rest[1].sum() + ys.prod(0).sum()

    function = graphc.compile(loops) if compiled else loops
    inputs = tuple(graphc.tensor(a, requires_grad=True) for a in (X[0], X))
    assert graphc.autograd.gradcheck(function, inputs)


@pytest.mark.parametrize("mode", MODES)
def test_a_gradient_that_reads_no_sequence(mode: str) -> None:
    def doubled(x: Any, rows: Any) -> Any:
        return scan(lambda c, row: (c * 2.0, row), x, rows)[0].sum()

    def want(x: Any, rows: Any) -> Any:
        return (x * 2.0 ** len(rows)).sum() + rows.sum() * 0

    same(gradients(doubled, [X[0], X], mode), reference(want, [X[0], X]))


def test_a_scan_under_checkpoint() -> None:
    """What a body computes is no business of hooks on saved values: the scan's values are."""
    from graphc.utils.checkpoint import checkpoint

    def total(x: Any, start: Any) -> Any:
        last, ys = scan(lambda h, row: ((h * row).sin(), h + row), start, x)
        return last.sum() + ys.square().sum()

    def step(x: Any, start: Any) -> Any:
        loss = checkpoint(total, x, start, use_reentrant=False)
        return loss, *graphc.autograd.grad(loss, [x, start])

    given = [graphc.tensor(a, requires_grad=True) for a in (X, X[0])]
    compiled = graphc.compile(step, fullgraph=True)
    for want, have in zip(step(*given), compiled(*given), strict=True):
        np.testing.assert_allclose(have.detach().numpy(), want.detach().numpy(), rtol=1e-12)
