"""lgamma of floats is vector code in double precision, within 1.5 units of the last place."""

from __future__ import annotations

import math

import numpy as np

import graphc


def _exact(x: float) -> float:
    if math.isnan(x):
        return x
    return math.inf if math.isinf(x) or (x <= 0 and x == math.floor(x)) else math.lgamma(x)


def test_lgamma_of_floats() -> None:
    rng = np.random.default_rng(0)
    x = np.concatenate([
        rng.uniform(-20, 20, 20000), 10 ** rng.uniform(-38, 38, 5000),
        -(10 ** rng.uniform(-38, 6, 5000)), 1 + rng.normal(0, 1e-4, 3000),
        2 + rng.normal(0, 1e-4, 3000), np.arange(-40, 41), [8.0, np.nextafter(np.float32(8), 0)],
        [-0.0, math.inf, -math.inf, math.nan, 1e-45, -1e-45, 3.4e38, -3.4e38, -1e20],
    ]).astype(np.float32)
    compiled = graphc.compile(lambda x: graphc.lgamma(x))
    got = compiled(graphc.tensor(x)).numpy()
    with np.errstate(over="ignore"):
        want = np.array([_exact(float(v)) for v in x])
        rounded = want.astype(np.float32)
    finite = np.isfinite(rounded)
    np.testing.assert_array_equal(got[~finite], rounded[~finite])
    off = np.abs(got[finite].astype(np.float64) - want[finite])
    assert (off <= 1.5 * np.spacing(np.abs(rounded[finite])).astype(np.float64)).all()
    assert compiled(graphc.tensor([1.0, 2.0])).tolist() == [0, 0]


def test_each_lane_gives_what_it_gives_alone() -> None:
    x = graphc.linspace(-9.3, 21.7, 37)
    compiled = graphc.compile(lambda x: graphc.lgamma(x))
    whole = compiled(x).numpy()
    alone = [compiled(x[i : i + 3]).numpy() for i in range(0, 37, 3)]
    np.testing.assert_array_equal(np.concatenate(alone), whole)
