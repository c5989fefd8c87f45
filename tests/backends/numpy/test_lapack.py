"""Triangular systems and LU by the library that NumPy brings along, and without it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import graphc
from graphc.backends.numpy import lapack, matrices

KINDS = ["f4", "f8", "c8", "c16"]
TOLERANCE = {"f4": 1e-4, "c8": 1e-4, "f8": 1e-11, "c16": 1e-11}


def _random(kind: str, *shape: int) -> Any:
    rng = np.random.default_rng(0)
    found = rng.standard_normal(shape) + 1j * rng.standard_normal(shape)
    return (found if kind[0] == "c" else found.real).astype(kind)


@pytest.fixture(params=[True, False], ids=["library", "plain"])
def library(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if not request.param:
        monkeypatch.setattr(lapack, "_trsm", lambda kind: None)
        monkeypatch.setattr(lapack, "_getrf", lambda kind: None)
        monkeypatch.setattr(lapack, "_potrf", lambda kind: None)


@pytest.mark.usefixtures("library")
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("upper", [True, False])
@pytest.mark.parametrize("unit", [True, False])
@pytest.mark.parametrize("sizes", [(1, 1), (7, 3), (40, 40), (65, 2), (5, 0), (0, 3)], ids=str)
def test_triangular(kind: str, upper: bool, unit: bool, sizes: tuple[int, int]) -> None:
    n, columns = sizes
    a = _random(kind, 2, 1, n, n) / max(n, 1) + 2 * np.eye(n).astype(kind)
    b = _random(kind, 3, n, columns)
    x = matrices._solve_triangular(a, b, upper=upper, unit=unit)
    used = np.triu(a) if upper else np.tril(a)
    if unit:
        used[..., np.arange(n), np.arange(n)] = 1
    assert x.shape == (2, 3, n, columns) and x.dtype == a.dtype
    np.testing.assert_allclose(used @ x, b + np.zeros_like(x), atol=TOLERANCE[kind])


@pytest.mark.usefixtures("library")
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("shape", [(1, 1), (6, 6), (9, 4), (4, 9), (70, 70)], ids=str)
def test_lu(kind: str, shape: tuple[int, int]) -> None:
    a = _random(kind, 2, *shape)
    lu, pivots, info = matrices._lu(a, pivot=True, check="")
    k = min(shape)
    for i in range(2):
        low = np.tril(lu[i][:, :k], -1) + np.eye(shape[0], k)
        rows = a[i].copy()
        for j, other in enumerate(pivots[i] - 1):
            rows[[j, other]] = rows[[other, j]]
        np.testing.assert_allclose(low @ np.triu(lu[i][:k]), rows, atol=TOLERANCE[kind])
    assert info.tolist() == [0, 0] and pivots.dtype == np.int32


@pytest.mark.usefixtures("library")
def test_pivots_that_are_nothing() -> None:
    a = np.array([[1, 2, 3], [2, 4, 7], [3, 6, 2]], np.float64)
    assert matrices._lu(a[None], pivot=True, check="")[2].tolist() == [2]
    tiny = np.array([[1e-40, 0], [1, 1]], np.float32)
    with np.errstate(all="ignore"):
        x = matrices._solve_triangular(tiny, np.ones((2, 1), np.float32) / 16, upper=False,
                                       unit=False)
        none = matrices._solve_triangular(tiny * 0, np.ones((2, 1), np.float32), upper=False,
                                          unit=False)
    assert np.isinf(none[0, 0]) and np.isinf(x[0, 0])


@pytest.mark.usefixtures("library")
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("n", [1, 31, 32, 33, 70])
def test_cholesky(kind: str, n: int) -> None:
    a = _random(kind, 2, 3, n, n)
    a = a @ np.conj(np.swapaxes(a, -1, -2)) + n * np.eye(n).astype(kind)
    beyond = a.copy()
    beyond[..., np.triu(np.ones((n, n), bool), 1)] = np.nan  # nobody looks there
    low, info = matrices._cholesky(beyond, check=True)
    assert low.dtype == a.dtype and not info.any() and not np.triu(low, 1).any()
    back = low @ np.conj(np.swapaxes(low, -1, -2))
    np.testing.assert_allclose(back / n, a / n, atol=TOLERANCE[kind])


@pytest.mark.usefixtures("library")
def test_a_matrix_that_has_no_factor() -> None:
    a = np.stack([np.eye(40), np.eye(40)])
    a[1, 17, 17] = -1
    assert matrices._cholesky(a, check=False)[1].tolist() == [0, 18]
    with pytest.raises(RuntimeError, match="leading minor of order 18"):
        matrices._cholesky(a, check=True)


def test_a_small_pivot_is_divided_by() -> None:
    tiny = np.array([[1e-40]], np.float32)
    x = matrices._solve_triangular(tiny, np.array([[2e-40]], np.float32), upper=True, unit=False)
    np.testing.assert_allclose(x, 2, rtol=1e-4)


def test_what_is_given_stays() -> None:
    a, b = graphc.randn(4, 4).tril() + 4 * graphc.eye(4), graphc.randn(4, 2)
    before = a.clone(), b.clone()
    x = graphc.linalg.solve_triangular(a, b, upper=False)
    assert (a == before[0]).all() and (b == before[1]).all()
    np.testing.assert_allclose((a @ x).numpy(), b.numpy(), atol=1e-5)
