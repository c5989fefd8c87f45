"""The matrices of Winograd's convolutions are exact, and the bound of their errors is one."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from graphc.ir.cook_toom import error_bound, growth, has_transforms, transforms

SIZES = [(2, 3), (4, 3), (2, 5), (4, 5)]


@pytest.mark.parametrize(("tile", "window"), SIZES)
def test_they_are_a_correlation_to_the_last_bit(tile: int, window: int) -> None:
    a, g, b = transforms(tile, window)
    size = tile + window - 1
    assert (len(a), len(g), len(b)) == (tile, size, size)
    for result in range(tile):
        for tap in range(window):
            for place in range(size):
                terms = (a[result][i] * g[i][tap] * b[i][place] for i in range(size))
                assert sum(terms) == (place == result + tap)


@pytest.mark.parametrize(("tile", "window"), SIZES)
def test_those_of_images_and_results_are_floats(tile: int, window: int) -> None:
    found = transforms(tile, window)
    for matrix in (found.input, found.output):
        assert all(Fraction(float(np.float32(float(n)))) == n for row in matrix for n in row)


def test_there_are_others_for_no_other_size() -> None:
    assert [has_transforms(tile, 3) for tile in (1, 2, 3, 4, 5, 6)] == [
        False, True, False, True, False, True
    ]
    assert not has_transforms(4, 1)


def _growth(tile: int, window: int) -> float:
    """The largest sum of magnitudes that one tap of a two-dimensional filter can lead to."""
    a, g, b = (np.abs(np.array(matrix, float)) for matrix in transforms(tile, window))
    places = np.einsum("i,j->ij", b.sum(1), b.sum(1))
    whole = np.einsum("pi,qj,is,jt,ij->pqst", a, a, g, g, places)
    return float(whole.max())


@pytest.mark.parametrize(("tile", "window"), SIZES)
def test_growth_is_that_of_the_magnitudes(tile: int, window: int) -> None:
    assert float(growth(tile, window)) == pytest.approx(_growth(tile, window))
    assert growth(tile, window) > 1


def test_larger_tiles_and_more_channels_lose_more() -> None:
    unit = 2.0**-24
    small = error_bound(2, 3, 64, unit)
    assert 0 < small < error_bound(4, 3, 64, unit) < error_bound(4, 5, 64, unit)
    assert small < error_bound(2, 3, 512, unit)
    assert error_bound(2, 3, 1 << 25, unit) == np.inf  # more sums than a float has digits


def _off(tile: int, window: int, x: np.ndarray, w: np.ndarray) -> tuple[float, float]:
    """How far a tile in float32 is from its value in float64, and what the bound is relative to.
    x [channels, size, size], w [channels, window, window]."""

    def results(dtype: type[np.floating]) -> np.ndarray:
        a, g, b = (np.array([[float(n) for n in row] for row in m], dtype)
                   for m in transforms(tile, window))
        products = (g @ w.astype(dtype) @ g.T) * (b @ x.astype(dtype) @ b.T)
        total = np.zeros_like(products[0])
        for product in products:
            total = total + product
        return np.asarray(a @ total @ a.T)

    error = np.abs(results(np.float32) - results(np.float64)).max()
    return float(error), float(np.abs(x).max() * np.abs(w).sum())


@pytest.mark.parametrize(("tile", "window"), SIZES)
def test_nothing_is_off_by_more(tile: int, window: int) -> None:
    rng, size = np.random.default_rng(tile * window), tile + window - 1
    bound = error_bound(tile, window, 48, 2.0**-24)
    b = np.array(transforms(tile, window).input, float)
    g = np.array(transforms(tile, window).filter, float)
    shape, taps = (48, size, size), (48, window, window)
    signs = [np.sign(np.outer(b[i], b[j])) for i in range(size) for j in range(size)]
    filters = [np.sign(np.outer(g[i], g[j])) for i in range(size) for j in range(size)]
    worst = 0.0
    for n in range(60):
        x, w = rng.standard_normal(shape), rng.standard_normal(taps)
        if n % 2:  # what makes one place of the tile as large as it can be
            at = int(rng.integers(size * size))
            x, w = np.abs(x) * signs[at], np.abs(w) * filters[at]
        if n % 3 == 0:  # ... and what cancels in the results
            x, w = x * rng.choice((-1.0, 1.0), (48, 1, 1)), np.round(w, 1) * 1e3
        error, scale = _off(tile, window, x.astype(np.float32), w.astype(np.float32))
        worst = max(worst, error / scale)
    assert 1e-9 < worst < bound
