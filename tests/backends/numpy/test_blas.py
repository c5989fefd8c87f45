"""NumPy's matrix products use as many threads as graphc is told to."""

import pytest

import graphc as torch
from graphc.backends.numpy import blas


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
