"""Gradients through sparse tensors, and of them, beside PyTorch's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import graphc
from graphc.engine.eager_form import LARGE
from graphc.sparse.patterns import _in_order
from tests.sparse.compared import Function, compare, coo, csr, dense, hybrid

INDICES = [[0, 1, 1, 3], [2, 0, 4, 1]]


def made(t: Any) -> tuple[Any, Any]:
    """Values that require a gradient, and a matrix of them."""
    values = dense(t, 4).requires_grad_()
    return values, t.sparse_coo_tensor(t.tensor(INDICES), values, (4, 5))


def leaf(t: Any) -> Any:
    return coo(t).coalesce().requires_grad_()


def grads(loss: Any, *leaves: Any) -> list[Any]:
    loss.backward()
    return [x.grad for x in leaves]


def to_dense(t: Any) -> Any:
    values, x = made(t)
    return grads((x.to_dense() * dense(t, 4, 5)).sum(), values)


def products(t: Any) -> Any:
    values, x = made(t)
    w = dense(t, 5, 3).requires_grad_()
    return grads((t.sparse.mm(x, w) * dense(t, 4, 3)).sum(), values, w)


def vectors(t: Any) -> Any:
    w = dense(t, 5).requires_grad_()
    return grads((t.mv(coo(t), w) * dense(t, 4)).sum(), w)


def weights(t: Any) -> Any:
    w, bias = dense(t, 5, 3).requires_grad_(), dense(t, 4, 3).requires_grad_()
    return grads(t.addmm(bias, coo(t), w).square().sum(), w, bias)


def transposed(t: Any) -> Any:
    values, x = made(t)
    w = dense(t, 4, 3).requires_grad_()
    return grads((x.t() @ w).square().sum(), values, w)


def coalesced(t: Any) -> Any:
    values = dense(t, 5).requires_grad_()
    x = t.sparse_coo_tensor(t.tensor([[0, 1, 1, 3, 0], [2, 0, 0, 4, 1]]), values, (4, 5))
    return grads(x.coalesce().values().square().sum(), values)


def of_a_leaf(t: Any) -> Any:
    x = leaf(t)
    return grads((x.to_dense() * dense(t, 4, 5)).sum(), x)[0].coalesce()


def of_a_leaf_twice(t: Any) -> Any:
    x, w = leaf(t), dense(t, 5, 2).requires_grad_()
    (t.sparse.mm(x, w).sum() + t.sparse.mm(x * 2, w).square().sum()).backward()
    t.sparse.mm(x, w).sum().backward()
    return x.grad, w.grad


def from_dense(t: Any) -> Any:
    x = t.eye(3).requires_grad_()
    return grads((x.to_sparse().to_dense() * dense(t, 3, 3)).sum(), x)


def sums(t: Any) -> Any:
    values, x = made(t)
    y = dense(t, 4, 5).requires_grad_()
    return grads((y + x * 2).square().sum(), values, y)


def of_sums(t: Any) -> Any:
    x = leaf(t)
    return grads(t.sparse.sum(x * 3), x)[0].coalesce()


def softmax(t: Any) -> Any:
    values, x = made(t)
    y = t.sparse.softmax(x, 1)
    return grads((y.to_dense() * dense(t, 4, 5)).sum(), values)


def by_elements(t: Any) -> Any:
    values, x = made(t)
    return grads((x.coalesce() * dense(t, 4, 5)).to_dense().square().sum(), values)


def asked(t: Any) -> Any:
    x, w = leaf(t), dense(t, 5, 2).requires_grad_()
    return t.autograd.grad(t.sparse.mm(x, w).square().sum(), (x, w))


def compressed(t: Any) -> Any:
    w = dense(t, 4, 2).requires_grad_()
    return grads((csr(t) @ w).square().sum(), w)


def of_entries(t: Any) -> Any:
    values = dense(t, 5, 2).requires_grad_()
    x = t.sparse_coo_tensor(hybrid(t)._indices(), values, (4, 5, 2))
    return grads(x.to_dense().square().sum(), values)


CASES: dict[str, Function] = {
    f.__name__: f for f in (
        to_dense, products, vectors, weights, transposed, coalesced, of_a_leaf, of_a_leaf_twice,
        from_dense, sums, of_sums, softmax, by_elements, asked, compressed, of_entries,
    )
}


@pytest.mark.filterwarnings("ignore:(Sparse|torch.sparse):UserWarning")
@pytest.mark.parametrize("name", CASES)
def test_as_torch(name: str) -> None:
    compare(CASES[name])


def test_second_derivatives() -> None:
    """Of a product, with regard to its entries and to its dense factor."""
    def second(sparse: bool) -> list[Any]:
        values = dense(graphc, 4).double().requires_grad_()
        w = dense(graphc, 5, 3).double().requires_grad_()
        if sparse:
            x = graphc.sparse_coo_tensor(graphc.tensor(INDICES), values, (4, 5))
            y = x @ w
        else:
            whole = graphc.zeros(4, 5, dtype=graphc.float64)
            x = whole.index_put(tuple(graphc.tensor(INDICES)), values)
            y = x @ w
        first = graphc.autograd.grad((y**3).sum(), (values, w), create_graph=True)
        found = graphc.autograd.grad(sum((g**2).sum() for g in first), (values, w))
        return [g.numpy() for g in found]

    for ours, expected in zip(second(True), second(False), strict=True):
        np.testing.assert_allclose(ours, expected, rtol=1e-9)


def test_hooks_of_sparse_leaves_and_results() -> None:
    x, seen = leaf(graphc), []
    x.register_hook(lambda g: seen.append(g.is_sparse))
    y = x * 2
    y.retain_grad()
    y.to_dense().sum().backward()
    assert seen == [True] and y.grad.is_sparse and x.grad.is_sparse
    assert x.grad.to_dense().sum().item() == 2 * x._nnz()


def test_a_leaf_is_not_written_to() -> None:
    x = leaf(graphc)
    with pytest.raises(RuntimeError, match="a leaf Variable that requires grad"):
        x.mul_(2)
    with graphc.no_grad():
        x.mul_(2)
    assert x.to_dense().sum().item() == 2 * coo(graphc).to_dense().sum().item()


def test_what_was_written_to_is_noticed() -> None:
    x, w = coo(graphc), dense(graphc, 5, 2).requires_grad_()
    y = (x @ w).sum()
    x.mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace"):
        y.backward()


class SpecialProduct(graphc.autograd.Function):
    """As graph attention layers have it: the gradient of a product's entries."""

    @staticmethod
    def forward(ctx: Any, indices: Any, values: Any, shape: Any, b: Any) -> Any:
        a = graphc.sparse_coo_tensor(indices, values, shape)
        ctx.save_for_backward(a, b)
        ctx.N = shape[0]
        return graphc.matmul(a, b)

    @staticmethod
    def backward(ctx: Any, grad_output: Any) -> Any:
        a, b = ctx.saved_tensors
        grad_values = grad_b = None
        if ctx.needs_input_grad[1]:
            whole = grad_output.matmul(b.t())
            at = a._indices()[0, :] * ctx.N + a._indices()[1, :]
            grad_values = whole.view(-1)[at]
        if ctx.needs_input_grad[3]:
            grad_b = a.t().matmul(grad_output)
        return None, grad_values, None, grad_b


def test_a_function_that_saves_sparse_tensors() -> None:
    indices = graphc.tensor([[0, 1, 2, 2], [1, 0, 0, 2]])

    def run(product: Any) -> list[Any]:
        values, b = dense(graphc, 4).requires_grad_(), dense(graphc, 3, 2).requires_grad_()
        product(values, b).square().sum().backward()
        return [values.grad.numpy(), b.grad.numpy()]

    own = run(lambda v, b: SpecialProduct.apply(indices, v, (3, 3), b))
    ours = run(lambda v, b: graphc.sparse_coo_tensor(indices, v, (3, 3)) @ b)
    for a, b in zip(own, ours, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6)


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16", "int64", "int32",
                                   "complex64"])
@pytest.mark.parametrize("ordered", [True, False])
def test_products_large_and_small(dtype: str, ordered: bool) -> None:
    """By compiled code, from so many products on, and by NumPy."""
    rng = np.random.default_rng(3)
    n, width, kind = 60, 40, getattr(graphc, dtype)
    for count in (300, 1800):
        rows, columns = rng.integers(0, n, count), rng.integers(0, n, count)
        if ordered:
            rows = np.sort(rows)
        values = graphc.from_numpy(rng.integers(-3, 4, count)).to(kind)
        b = graphc.from_numpy(rng.integers(-3, 4, (n, width))).to(kind)
        assert (count * width >= LARGE) == (count == 1800)
        x = graphc.sparse_coo_tensor(graphc.from_numpy(np.stack([rows, columns])), values, (n, n))
        expected = np.zeros((n, n), np.complex128)
        np.add.at(expected, (rows, columns), values.to(graphc.complex128).numpy())
        expected = expected @ b.to(graphc.complex128).numpy()
        found = (x @ b).to(graphc.complex128).numpy()
        np.testing.assert_allclose(found, expected, rtol=1e-6 if "16" not in dtype else 1e-2)


def test_no_rows_no_columns_no_entries() -> None:
    for size, count, width in (((0, 5), 0, 2), ((3, 0), 0, 2), ((3, 5), 0, 2), ((3, 5), 4, 0)):
        places = np.zeros((2, count), np.int64)
        x = graphc.sparse_coo_tensor(places, np.ones(count, np.float32), size)
        found = x @ graphc.ones(size[1], width)
        assert tuple(found.shape) == (size[0], width) and not found.any()


@pytest.mark.parametrize("count", [1, 9, 1 << 16, (1 << 16) + 1, 1 << 20, (1 << 33) + 5])
def test_lines_are_walked_in_order(count: int) -> None:
    rng = np.random.default_rng(4)
    lines = rng.integers(0, count, 3000)
    for given in (lines, np.sort(lines), lines % 7):
        np.testing.assert_array_equal(_in_order(given, count), np.argsort(given, kind="stable"))


def test_a_product_and_its_gradients_are_the_dense_ones_on_many_numbers() -> None:
    rng = np.random.default_rng(5)
    places = rng.integers(0, 50, (2, 3000))
    values, b, slope = (rng.standard_normal(n) for n in (3000, (50, 30), (70, 30)))
    found = []
    for sparse in (True, False):
        v, d = (graphc.from_numpy(a.copy()).requires_grad_() for a in (values, b))
        if sparse:
            y = graphc.sparse_coo_tensor(places, v, (70, 50)) @ d
        else:
            at = tuple(graphc.from_numpy(places))
            y = graphc.zeros(70, 50, dtype=graphc.float64).index_put(at, v, accumulate=True) @ d
        grads = graphc.autograd.grad(y, (v, d), graphc.from_numpy(slope), create_graph=True)
        again = graphc.autograd.grad(sum((g * g).sum() for g in grads), (v, d))
        found.append([y, *grads, *again])
    for ours, theirs in zip(*found, strict=True):
        np.testing.assert_allclose(ours.detach().numpy(), theirs.detach().numpy(), rtol=1e-9,
                                   atol=1e-9)
