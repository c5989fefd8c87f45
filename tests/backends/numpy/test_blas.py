"""NumPy's matrix products use as many threads as graphc is told to."""

import numpy as np
import pytest

import graphc as torch
from graphc.backends.numpy import blas, bound
from graphc.backends.numpy.prepared import prepare
from graphc.ir import dtypes, ops
from graphc.ir.types import TensorType


@pytest.fixture
def kept():
    before, ours = blas.threads(), torch.get_num_threads()
    yield before
    torch.set_num_threads(ours)
    if before is not None:
        blas.use(before)


def test_set_num_threads_holds_for_matrix_products(kept):
    if kept is None:
        pytest.skip("NumPy was built with another library, or names its functions otherwise")
    for number in (1, 2, 1):
        torch.set_num_threads(number)
        assert blas.threads() == number


def test_without_openblas_nothing_happens(kept, monkeypatch):
    monkeypatch.setattr(blas, "_libraries", list)
    torch.set_num_threads(1)
    assert blas.threads() is None and torch.get_num_threads() == 1


@pytest.mark.parametrize("kind", [np.float32, np.float64])
@pytest.mark.parametrize("rows, inner, columns", [(2, 2, 2), (4, 4, 4), (3, 33, 17), (60, 5, 50)])
def test_products_of_matrices_are_asked_of_blas_at_once(kind, rows, inner, columns):
    """With the numbers, and the order in memory, that np.matmul gives. OpenBLAS may go another way,
    so that last bits differ (operands that lie otherwise, on an Emerald Rapids)."""
    numbers = np.random.default_rng(rows + inner).standard_normal((2, 200, 200)).astype(kind)
    for turned in (False, True):
        shapes = (rows, inner), (columns, inner) if turned else (inner, columns)
        attrs = {"batch_a": (), "batch_b": (), "contract_a": (1,), "contract_b": (int(turned),)}
        types = [TensorType(dtypes.from_numpy(np.dtype(kind)), shape) for shape in shapes]
        result = TensorType(types[0].dtype, (rows, columns))
        product = prepare(ops.dot_general, types, attrs, [result])
        assert bound.TABLE["dot_general"](types, **attrs) in bound.PRODUCTS
        for cut in (
            lambda x, n, m: x[:n, :m], lambda x, n, m: x[:n, :m].copy(),
            lambda x, n, m: x.T[:n, :m].copy("F"), lambda x, n, m: x[: 2 * n : 2, : 3 * m : 3],
            lambda x, n, m: x[n - 1 :: -1, :m],
        ):
            a, b = (cut(x, *shape) for x, shape in zip(numbers, shapes, strict=True))
            found, wanted = product(a, b), np.matmul(a, b.T if turned else b)
            near = 4 * inner * np.finfo(kind).eps
            np.testing.assert_allclose(found, wanted, rtol=near, atol=near)
            assert found.flags.c_contiguous
            assert found.dtype == kind and found.flags.owndata


def test_products_of_rows_or_of_nothing_are_not():
    for shapes in (((1, 4), (4, 4)), ((4, 4), (4, 1)), ((4, 1), (1, 4)), ((0, 4), (4, 4))):
        attrs = {"batch_a": (), "batch_b": (), "contract_a": (1,), "contract_b": (0,)}
        types = [TensorType(dtypes.f32, shape) for shape in shapes]
        assert bound.TABLE["dot_general"](types, **attrs) not in bound.PRODUCTS
