"""The generator against torch's, bit for bit, over sequences of draws that share its state."""

from typing import Any

import numpy as np
import pytest

from graphc.backends.numpy import TABLE
from graphc.backends.numpy.random import _fma, seed_state
from graphc.ir import dtypes

torch: Any = pytest.importorskip("torch")


@pytest.mark.parametrize("seed", [0, 1, 42, 2**32 - 1, 2**40 + 7, -1, -12345])
def test_seeds(seed: int) -> None:
    words, _ = TABLE["rng_randint"](
        seed_state(seed), shape=(2000,), low=0, high=2**28 - 1, dtype=dtypes.i64
    )
    generator = torch.Generator().manual_seed(seed)
    assert words.tolist() == torch.randint(0, 2**28 - 1, (2000,), generator=generator).tolist()


@pytest.mark.parametrize("dtype", ["f32", "f64", "f16", "bf16"])
def test_a_sequence_of_draws(dtype: str) -> None:
    kind = dtypes.by_name(dtype)
    theirs = getattr(torch, kind.torch_name)
    state, generator = seed_state(5), torch.Generator().manual_seed(5)

    def compare(name: str, fill: Any, count: int, **attrs: Any) -> None:
        nonlocal state
        values, state = TABLE[name](state, shape=(count,), dtype=kind, **attrs)
        want = fill(torch.empty(count, dtype=theirs)).double().numpy()
        np.testing.assert_array_equal(values.astype(np.float64), want, err_msg=f"{name} {count}")

    for count in (3, 4, 15, 16, 17, 1, 32, 50, 5, 1000, 1):
        compare("rng_normal", lambda t: t.normal_(generator=generator), count)
        compare("rng_uniform", lambda t: t.uniform_(generator=generator), 3)
        compare("rng_bernoulli", lambda t: t.bernoulli_(0.3, generator=generator), 5, p=0.3)
        compare("rng_exponential", lambda t: t.exponential_(generator=generator), 4)


@pytest.mark.parametrize("span", [10, 2**28 - 1, 2**28, 2**31 + 5, 2**32, 2**33, 2**63 - 1])
def test_integer_ranges(span: int) -> None:
    values, _ = TABLE["rng_randint"](
        seed_state(9), shape=(100,), low=-5, high=span - 5, dtype=dtypes.i64
    )
    generator = torch.Generator().manual_seed(9)
    assert values.tolist() == torch.randint(-5, span - 5, (100,), generator=generator).tolist()


def test_permutations_continue_the_stream() -> None:
    state, generator = seed_state(3), torch.Generator().manual_seed(3)
    for n in (1, 2, 10, 700):
        values, state = TABLE["rng_permutation"](state, n=n)
        assert values.tolist() == torch.randperm(n, generator=generator).tolist()


def test_the_state_given_is_not_changed() -> None:
    state = seed_state(1)
    copy = state.copy()
    TABLE["rng_uniform"](state, shape=(1000,), dtype=dtypes.f32)
    np.testing.assert_array_equal(state, copy)


def test_fused_multiply_add_rounds_once() -> None:
    from fractions import Fraction

    rng = np.random.default_rng(0)
    a, b, c = (rng.standard_normal(2000).astype(np.float32).astype(np.float64) for _ in range(3))
    # sums that lie halfway between two float32 numbers but for a part below float64
    a[:4], b[:4] = 1.0 + 2.0**-12, 1.0 + 2.0**-12
    c[:4] = np.array([2.0**-60, -(2.0**-60), 1.0, -1.0])
    got = _fma(a, b, c)
    for x, y, z, r in zip(a, b, c, got, strict=True):
        exact = Fraction(x) * Fraction(y) + Fraction(z)
        below, above = np.nextafter(np.float32(r), [np.float32(-np.inf), np.float32(np.inf)])
        error = abs(Fraction(float(r)) - exact)
        assert error <= abs(Fraction(float(below)) - exact)
        assert error <= abs(Fraction(float(above)) - exact)
