"""Products of half precision in eager mode: compiled code for all sizes, however operands lie."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import graphc
from graphc.engine.eager_form import is_large
from graphc.engine.eager_kernels import Operator
from graphc.ir import dtypes, ops
from graphc.ir.types import TensorType

RNG = np.random.default_rng(5)


def _halves(dtype: str, *shape: int) -> Any:
    x = RNG.standard_normal(shape).astype(np.float32)
    return graphc.from_numpy(x).to(getattr(graphc, dtype))


# shapes of both operands, and a product of them
PRODUCTS: dict[str, tuple[tuple[int, ...], tuple[int, ...], Callable[[Any, Any], Any]]] = {
    "rows": ((70, 80), (80, 90), lambda a, b: a @ b),
    "a layer": ((70, 80), (90, 80), graphc.nn.functional.linear),
    "right turned": ((70, 80), (90, 80), lambda a, b: a @ b.t()),
    "left turned": ((80, 70), (80, 90), lambda a, b: a.t() @ b),
    "both turned": ((80, 70), (90, 80), lambda a, b: a.t() @ b.t()),
    "one row": ((1, 700), (700, 701), lambda a, b: a @ b),
    "a vector": ((700,), (700, 701), lambda a, b: a @ b),
    "by a vector": ((701, 700), (700,), lambda a, b: a @ b),
    "one column": ((900, 700), (700, 1), lambda a, b: a @ b),
    "many rows": ((7, 10, 80), (80, 90), lambda a, b: a @ b),
    "batches": ((5, 40, 50), (5, 50, 60), graphc.bmm),
    "turned batches": ((5, 40, 50), (5, 60, 50), lambda a, b: a @ b.transpose(1, 2)),
    "batches apart": ((40, 5, 50), (5, 50, 60), lambda a, b: a.transpose(0, 1) @ b),
    "one for all": ((5, 40, 50), (1, 50, 60), lambda a, b: a @ b),
    "heads": ((2, 40, 4, 50), (2, 60, 4, 50),
              lambda a, b: a.transpose(1, 2) @ b.permute(0, 2, 3, 1)),
    "with gaps": ((70, 160), (160, 90), lambda a, b: a[:, ::2] @ b[::2]),
    "rows in another order": ((9, 6, 7, 80), (80, 90), lambda a, b: a.permute(0, 2, 1, 3) @ b),
    "a layer of such rows": ((9, 6, 7, 80), (90, 80), lambda a, b: graphc.nn.functional.linear(
        a.transpose(1, 2), b)),
    "columns in another order": ((70, 80), (80, 9, 10), lambda a, b: graphc.tensordot(
        a, b.transpose(1, 2), dims=1)),
    "last dims of both": ((8, 10, 80), (8, 10, 90), lambda a, b: graphc.tensordot(
        a, b, dims=([0, 1], [0, 1]))),
}


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize("name", PRODUCTS)
def test_products_and_their_gradients(name: str, dtype: str) -> None:
    left, right, product = PRODUCTS[name]
    given = [_halves(dtype, *shape).requires_grad_() for shape in (left, right)]
    wide = [x.detach().float().requires_grad_() for x in given]
    for _ in range(3):  # watched, and as it is known
        found, wanted = product(*given), product(*wide)
        slope = _halves(dtype, *found.shape)
        gradients = graphc.autograd.grad(found, given, slope)
        wanted_gradients = graphc.autograd.grad(wanted, wide, slope.float())
    step = 2.0**-7 if dtype == "bfloat16" else 2.0**-10
    for got, want in zip((found, *gradients), (wanted, *wanted_gradients), strict=True):
        assert got.dtype is given[0].dtype and got.shape == want.shape
        difference = (got.float() - want).abs().max().item()
        assert difference <= step * want.abs().max().item()


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize("rows", [(64,), (6, 11), (1,), ()])
def test_a_layer_rounds_once(dtype: str, rows: tuple[int, ...]) -> None:
    x, w = _halves(dtype, *rows, 600), _halves(dtype, 500, 600)
    b = _halves(dtype, 500)
    given = [y.requires_grad_() for y in (x, w, b)]
    wide = [y.detach().float().requires_grad_() for y in given]
    for _ in range(3):
        found = graphc.nn.functional.linear(*given)
        wanted = graphc.nn.functional.linear(*wide)
        slope = _halves(dtype, *found.shape)
        gradients = graphc.autograd.grad(found, given, slope)
        wanted_gradients = graphc.autograd.grad(wanted, wide, slope.float())
        with graphc.no_grad():
            assert (graphc.nn.functional.linear(*given) == found).all()
    assert type(found.grad_fn).__name__ == "AddmmBackward0" if len(rows) == 1 else True
    # of what is summed in another order, now and then one rounds the other way
    assert (found != wanted.to(found.dtype)).float().mean().item() < 0.01
    for got, want in zip(gradients, wanted_gradients, strict=True):
        assert (got != want.to(got.dtype)).float().mean().item() < 0.01


def test_which_products_are_compiled() -> None:
    def made(dtype: dtypes.DType, *sizes: int) -> bool:
        m, k, n = sizes
        types = TensorType(dtype, (m, k)), TensorType(dtype, (k, n))
        attrs = {"batch_a": (), "batch_b": (), "contract_a": (1,), "contract_b": (0,)}
        return Operator.of(ops.dot_general, types, attrs, [TensorType(dtype, (m, n))]) is not None

    assert made(dtypes.bf16, 70, 80, 90) and made(dtypes.f16, 1, 700, 701)
    assert not made(dtypes.bf16, 7, 8, 9)  # NumPy's, at once
    assert not made(dtypes.f32, 700, 800, 900)  # BLAS's


def test_fewer_halves_than_floats_are_many() -> None:
    """NumPy takes five times as long for a half as for a float, or fifty."""

    def made(given: dtypes.DType, count: int, name: str = "add", **attrs: Any) -> bool:
        op = getattr(ops, name)
        types = [TensorType(given, (count,))] * (op.arity or 1)
        return is_large(op, types, attrs)

    assert made(dtypes.f16, 1 << 11) and made(dtypes.bf16, 1 << 12)
    assert not made(dtypes.f16, 1 << 10) and not made(dtypes.f32, 1 << 15)
    assert made(dtypes.f32, 1 << 12, "cast", dtype=dtypes.bf16)
    assert not made(dtypes.bf16, 1 << 15, "cast", dtype=dtypes.f32)  # NumPy moves bits
    assert not made(dtypes.bf16, 1 << 15, "flip", dims=(0,))
