"""L D L^T factors against PyTorch's (LAPACK's): the same pivots and numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import graphc
from tests.linalg.compare import torch


def _matrix(seed: int) -> tuple[np.ndarray[Any, Any], bool]:
    """Symmetric or Hermitian, some with a diagonal of zeros, some singular."""
    generator = np.random.default_rng(seed)
    size = int(generator.integers(1, 12))
    found = generator.standard_normal((size, size))
    if seed % 2:
        found = found + 1j * generator.standard_normal((size, size))
    if seed % 5 == 0:
        found = np.round(found * 1.2)
    hermitian = bool(seed % 3)
    found = found + (found.conj().T if hermitian else found.T)
    if seed % 4 == 0:
        np.fill_diagonal(found, 0)
    return found, hermitian


@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "compiled"])
def test_the_factors_are_lapacks(compiled: bool) -> None:
    for seed in range(6 if compiled else 120):
        matrix, hermitian = _matrix(seed)
        function: Any = lambda a, h=hermitian: graphc.linalg.ldl_factor_ex(a, hermitian=h)  # noqa: E731
        run = graphc.compile(function) if compiled else function
        want = torch.linalg.ldl_factor_ex(torch.tensor(matrix), hermitian=hermitian)
        have = run(graphc.tensor(matrix))
        np.testing.assert_array_equal(have.pivots.numpy(), want.pivots.numpy(), f"seed {seed}")
        assert int(have.info) == int(want.info)
        np.testing.assert_allclose(have.LD.numpy(), want.LD.numpy(), rtol=1e-7, atol=1e-9)
        if int(want.info):
            continue
        right = np.arange(2.0 * len(matrix)).reshape(-1, 2).astype(matrix.dtype)
        solved = graphc.linalg.ldl_solve(
            have.LD, have.pivots, graphc.tensor(right), hermitian=hermitian
        )
        np.testing.assert_allclose(matrix @ solved.numpy(), right, rtol=1e-6, atol=1e-6)


def test_batches_broadcast() -> None:
    factors = graphc.linalg.ldl_factor(graphc.tensor([[0.0, 2.0], [2.0, 0.0]]).expand(3, 2, 2))
    found = graphc.linalg.ldl_solve(factors.LD, factors.pivots, graphc.ones(1, 2, 1))
    np.testing.assert_allclose(found.numpy(), np.full((3, 2, 1), 0.5))


ERRORS: dict[str, Any] = {
    "square": lambda t: t.linalg.ldl_factor(t.ones(2, 3)),
    "dims": lambda t: t.linalg.ldl_factor(t.ones(2)),
    "sizes": lambda t: t.linalg.ldl_solve(t.eye(3), t.ones(3, dtype=t.int32), t.ones(2, 1)),
    "pivots": lambda t: t.linalg.ldl_solve(t.eye(3), t.ones(2, dtype=t.int32), t.ones(3, 1)),
    "dtypes": lambda t: t.linalg.ldl_solve(
        t.eye(3), t.ones(3, dtype=t.int32), t.ones(3, 1).double()),
}


@pytest.mark.parametrize("name", sorted(ERRORS))
def test_errors(name: str) -> None:
    with pytest.raises(RuntimeError) as theirs:
        ERRORS[name](torch)
    with pytest.raises(RuntimeError) as ours:
        ERRORS[name](graphc)
    assert str(theirs.value).splitlines()[0] in str(ours.value)


MATRIX_TOLERANCES: dict[str, Any] = {
    "rank, of each": lambda t, a: t.linalg.matrix_rank(a, atol=t.tensor([0.5, 3.0])),
    "rank, of several": lambda t, a: t.linalg.matrix_rank(
        a, atol=t.tensor([[0.1], [2.0], [9.0]]), rtol=t.tensor([0.1, 0.5])),
    "rank, old": lambda t, a: t.linalg.matrix_rank(a, t.tensor([0.5, 3.0])),
    "pinv, of each": lambda t, a: t.linalg.pinv(a, rtol=t.tensor([0.1, 0.5]).double()),
    "pinv, hermitian": lambda t, a: t.linalg.pinv(
        a + a.mT, atol=t.tensor([[0.5], [2.0]]).double(), hermitian=True),
    "power 0": lambda t, a: t.linalg.matrix_power(a, 0),
    "negative norms at 0": lambda t, a: t.stack([
        t.linalg.vector_norm(a * (a > 0), n, dim=1) for n in (-0.5, -1, -2)]),
    "vander of bytes": lambda t, a: t.linalg.vander(t.arange(5).to(t.uint8)),
    "norms of nothing": lambda t, a: t.stack(
        [t.linalg.matrix_norm(a[:, :0], n).sum() for n in (1, 2, float("inf"), "nuc")]),
}


@pytest.mark.filterwarnings("ignore:An output with one or more elements was resized")
@pytest.mark.parametrize("name", sorted(MATRIX_TOLERANCES))
def test_tolerances_and_edges(name: str) -> None:
    values = np.random.default_rng(2).standard_normal((2, 4, 4))
    results = []
    for t in (torch, graphc):
        a = t.tensor(values, requires_grad=True)
        found = MATRIX_TOLERANCES[name](t, a)
        grad = None
        if found.requires_grad:
            (found * 1.5).sum().backward()
            grad = a.grad.numpy()
        results.append((found.detach().numpy(), grad))
    np.testing.assert_allclose(results[1][0], results[0][0], rtol=1e-8, atol=1e-9)
    if results[0][1] is not None:
        np.testing.assert_allclose(results[1][1], results[0][1], rtol=1e-8, atol=1e-9)
