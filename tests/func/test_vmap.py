"""torch.vmap: dims, nesting, randomness, mutation and errors against torch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")

import torch

import graphc
from tests.func.pairs import W, X, agree, check

CASES: dict[str, tuple[Any, tuple[np.ndarray, ...]]] = {
    "one dim": (lambda m: m.vmap(lambda x: (x * 2).sum()), (X,)),
    "in_dims": (lambda m: m.vmap(lambda x, w: x @ w, (1, None)), (X, np.ones((5, 2)))),
    "negative in_dim": (lambda m: m.vmap(lambda x: x.exp(), -1), (X,)),
    "out_dims": (lambda m: m.vmap(lambda x: x.outer(x), 0, 2), (X,)),
    "several out_dims": (
        lambda m: m.vmap(lambda x: (x.outer(x), x.sum()), 0, (-1, 0)), (X,)),
    "nested arguments": (
        lambda m: lambda x, w: m.vmap(lambda d, s: d["a"] * s, ({"a": 0}, None))(
            {"a": x}, w[0, 0]), (X, W)),
    "nested": (
        lambda m: m.vmap(m.vmap(lambda a, b: (a * b).sum(), (0, None)), (None, 1)),
        (X, X.T.copy())),
    "unmapped result": (lambda m: m.vmap(lambda x, w: w.exp(), (0, None)), (X, W)),
    "chunks": (lambda m: m.vmap(lambda x: x.sin(), chunk_size=2), (X,)),
    "chunks along 1": (lambda m: m.vmap(lambda x: x.outer(x), 0, 1, chunk_size=2), (X,)),
    "matmul": (lambda m: m.vmap(lambda a, b: a @ b), (np.ones((5, 2, 3)), np.ones((5, 3, 4)))),
    "indexing": (lambda m: m.vmap(lambda x: x[[2, 0]] + x[-1]), (X,)),
    "gather": (lambda m: m.vmap(lambda x: x.gather(0, x.argsort())), (X,)),
    "sort": (lambda m: m.vmap(lambda x: x.sort(descending=True)[0]), (X,)),
    "reductions": (
        lambda m: m.vmap(lambda x: (x.mean(), x.var(), x.amax(), x.argmin(), x.norm())), (X,)),
    "in place": (lambda m: m.vmap(lambda x: x.clone().mul_(2).add_(x)), (X,)),
    "write to a view": (lambda m: m.vmap(_write), (X,)),
    "cat and stack": (
        lambda m: m.vmap(lambda x: m.stack([m.cat([x, x * 2]), m.cat([x, x])])), (X,)),
    "layer norm": (lambda m: m.vmap(lambda x: m.nn.functional.layer_norm(x, (3,))), (X,)),
    "softmax": (lambda m: m.vmap(lambda x: m.log_softmax(x, 0)), (X,)),
    "where": (lambda m: m.vmap(lambda x: m.where(x > 0, x, x.exp())), (X,)),
    "attention": (
        lambda m: m.vmap(lambda q: m.nn.functional.scaled_dot_product_attention(q, q, q)),
        (np.random.default_rng(5).standard_normal((3, 2, 4, 4)),)),
}


def _write(x: Any) -> Any:
    y = x * 1.0
    y[1:] *= 3
    y[0] = 7
    return y


@pytest.mark.parametrize("mode", ["eager", "compiled"])
@pytest.mark.parametrize("name", CASES)
def test_like_torch(name: str, mode: str) -> None:
    build, arrays = CASES[name]
    check(build, *arrays, mode=mode)


@pytest.mark.parametrize("randomness", ["same", "different"])
def test_random_numbers_are_torch_s(randomness: str) -> None:
    def draws(m: Any) -> Any:
        m.manual_seed(0)
        x = m.tensor(X.astype("float32"))
        out = m.vmap(lambda r: r + m.rand(3), randomness=randomness)(x)
        dropped = m.vmap(lambda r: m.nn.functional.dropout(r, 0.5), randomness=randomness)(x)
        return out, dropped, m.rand(2)

    agree(draws(graphc), draws(torch), 1e-6)


def test_a_mapped_argument_can_be_written_to() -> None:
    x = graphc.tensor(X)
    graphc.vmap(lambda row: row.mul_(2))(x)
    np.testing.assert_allclose(x.numpy(), X * 2)
    total = graphc.zeros(3, dtype=graphc.float64)
    with pytest.raises(RuntimeError, match="not possible"):
        graphc.vmap(lambda row: total.add_(row))(x)


def test_gradients_of_the_tape_outside() -> None:
    results = []
    for m in (torch, graphc):
        x = m.tensor(X, requires_grad=True)
        y = (x.exp() * x).sum(1)
        rows = m.vmap(lambda v, x=x, y=y, m=m: m.autograd.grad(y, x, v, retain_graph=True)[0])(
            m.eye(5, dtype=m.float64))
        (batched,) = m.autograd.grad(y, x, m.eye(5, dtype=m.float64), is_grads_batched=True)
        results.append((rows, batched))
    agree(results[1], results[0])


def test_dynamic_batch_sizes_compile_once() -> None:
    function = graphc.compile(graphc.vmap(graphc.func.grad(lambda x: (x.sin() * x).sum())))
    for size in (3, 5, 7, 9):
        x = np.random.default_rng(size).standard_normal((size, 4))
        want = np.cos(x) * x + np.sin(x)
        np.testing.assert_allclose(function(graphc.tensor(x)).numpy(), want)
    assert function.compile_count == 2


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: graphc.vmap(lambda x: x)(), ValueError, "got no inputs"),
        (lambda: graphc.vmap(lambda x: x, randomness="no"), RuntimeError, "randomness"),
        (lambda: graphc.vmap(lambda x: x, chunk_size=0), ValueError, "chunk_size"),
        (lambda: graphc.vmap(lambda x: x, (0, 0))(graphc.ones(2)), ValueError, "not compatible"),
        (lambda: graphc.vmap(lambda x: x, "0")(graphc.ones(2)), ValueError, "in_dims"),
        (lambda: graphc.vmap(lambda x: x, 2)(graphc.ones(2)), ValueError, "dimensionality 1"),
        (lambda: graphc.vmap(lambda x: x)(1), ValueError, "non-Tensor"),
        (lambda: graphc.vmap(lambda x, y: x)(graphc.ones(2), graphc.ones(3)), ValueError,
         "same size"),
        (lambda: graphc.vmap(lambda x: 1)(graphc.ones(2)), ValueError, "only return Tensors"),
        (lambda: graphc.vmap(lambda x: x, 0, None)(graphc.ones(2)), ValueError, "BatchedTensor"),
        (lambda: graphc.vmap(lambda x: x.item())(graphc.ones(2)), RuntimeError, "item"),
        (lambda: graphc.vmap(lambda x: x + graphc.rand(1))(graphc.ones(2)), RuntimeError,
         "randomness error mode"),
        (lambda: graphc.vmap(lambda x: x.sum().backward())(
            graphc.ones(2, requires_grad=True)), RuntimeError,
         "inside vmap"),
    ],
)
def test_errors(call: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        call()


LIKES: dict[str, Any] = {
    "zeros_like": lambda m, x: m.zeros_like(x),
    "ones_like": lambda m, x: m.ones_like(x),
    "full_like": lambda m, x: m.full_like(x, 3),
    "new_zeros": lambda m, x: x.new_zeros(5),
    "new_full": lambda m, x: x.new_full((5,), 2),
    "computed": lambda m, x: m.ones_like(x[0]).cumsum(0),
    "like one that is like it": lambda m, x: m.full_like(m.zeros_like(x), 3),
}


@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "compiled"])
@pytest.mark.parametrize("name", LIKES)
def test_what_is_like_a_sample_has_memory_of_its_own(name: str, compiled: bool) -> None:
    def made(m: Any) -> Any:
        return lambda x: m.vmap(lambda each: LIKES[name](m, each))(x)

    want = made(torch)(torch.ones(3, 2, 4))
    call = graphc.compile(made(graphc)) if compiled else made(graphc)
    got = call(graphc.ones(3, 2, 4))
    assert got.stride() == want.stride()
    want[0], got[0] = 5, 5
    assert got.tolist() == want.tolist()


def test_a_product_with_mapped_weights_is_row_major() -> None:
    x, weights, biases = graphc.randn(5, 3), graphc.randn(4, 2, 3), graphc.randn(4, 2)
    mapped = graphc.vmap(lambda w, b: graphc.nn.functional.linear(x, w, b))
    for function in (mapped, graphc.compile(mapped)):
        found = function(weights, biases)
        assert found.stride() == (10, 2, 1)
        for each, w, b in zip(found, weights, biases, strict=True):
            assert graphc.allclose(each, x @ w.T + b, atol=1e-6)
    columns = graphc.vmap(lambda w: graphc.einsum("bij,bjk->bik", w, graphc.ones(2, 3, 6)))
    assert columns(graphc.randn(4, 2, 5, 3)).stride() == (60, 30, 6, 1)
