"""Running sums and products of many f32 are as exact as an f64 carried along makes them."""

import numpy as np
import pytest

import graphc


@pytest.mark.parametrize(("shape", "dim"), [((3000,), 0), ((9, 3000), 1), ((3000, 5), 0)])
@pytest.mark.parametrize("compiled", [False, True])
def test_roundings_do_not_add_up(shape, dim, compiled):
    values = np.random.default_rng(0).random(shape, np.float32)

    def both(x):
        return graphc.cumsum(x, dim), graphc.cumprod(x * 0.01 + 0.995, dim)

    run = graphc.compile(both) if compiled else both
    sums, products = run(graphc.from_numpy(values))
    exact = np.cumsum(values, axis=dim, dtype=np.float64).astype(np.float32)
    np.testing.assert_allclose(sums.numpy(), exact, rtol=2e-7)
    factors = values * np.float32(0.01) + np.float32(0.995)
    exact = np.cumprod(factors, axis=dim, dtype=np.float64).astype(np.float32)
    np.testing.assert_allclose(products.numpy(), exact, rtol=1e-4)


@pytest.mark.parametrize("compiled", [False, True])
def test_beyond_the_range_and_back(compiled):
    values = graphc.tensor([[3e38, 3e38, -3e38]] * 9)
    run = graphc.compile(lambda x: x.cumsum(1)) if compiled else lambda x: x.cumsum(1)
    assert run(values)[0].tolist() == graphc.tensor([3e38, float("inf"), 3e38]).tolist()


def test_complex():
    values = np.random.default_rng(0).random(6000, np.float32).view(np.complex64)
    exact = np.cumsum(values, dtype=np.complex128).astype(np.complex64)
    np.testing.assert_allclose(graphc.from_numpy(values).cumsum(0).numpy(), exact, rtol=2e-7)
