"""Test records of creation and random operators."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from graphc.backends.numpy.random import seed_state
from graphc.ir import dtypes
from graphc.ir.dtypes import DType
from graphc.ir.graph import Constant
from tests.opinfo_core import (
    ANY,
    FLOATS,
    INTS,
    NUMBERS,
    RNG,
    TORCH,
    Sample,
    draw,
    record,
    to_torch,
    torch,
)

Shape = tuple[int, ...]

# --- creation --------------------------------------------------------------------------------


def full_samples(dtype: DType, rng: RNG) -> Iterator[Sample]:
    value: Any = 1.5 if dtype.is_float else (True if dtype.kind == "bool" else 3)
    for shape in ((), (2, 3), (0,)):
        yield Sample((), {"shape": shape, "value": value, "dtype": dtype})


def iota_samples(dtype: DType, rng: RNG) -> Iterator[Sample]:
    for shape, dim in (((5,), 0), ((2, 3), 0), ((2, 3, 4), 1), ((0, 2), 1)):
        yield Sample((), {"shape": shape, "dim": dim, "dtype": dtype})


def _iota(*, shape: Shape, dim: int, dtype: DType) -> Any:
    line = torch.arange(shape[dim]).to(TORCH[dtype.name])
    return line.reshape([-1 if d == dim else 1 for d in range(len(shape))]).expand(shape)


def const_samples(dtype: DType, rng: RNG) -> Iterator[Sample]:
    for shape in ((), (2, 3)):
        yield Sample((), {"value": Constant(draw(rng, dtype, shape))})


record(
    "full",
    full_samples,
    lambda shape, value, dtype: torch.full(shape, value, dtype=TORCH[dtype.name]),
    ANY,
    gradient="no inputs",
)
record("iota", iota_samples, _iota, NUMBERS, gradient="no inputs")
record("const", const_samples, lambda value: to_torch(value.array), ANY, gradient="no inputs")

# --- random: bit for bit torch's stream --------------------------------------------------------

_SEED = 1234


def _random(**attrs: Any) -> Any:
    def samples(dtype: DType, rng: RNG) -> Iterator[Sample]:
        for shape in ((), (3,), (16,), (5, 7), (1000,), (0,)):
            yield Sample((seed_state(_SEED),), {"shape": shape, **attrs, "dtype": dtype})

    return samples


def _drawn(fill: Any) -> Any:
    def reference(state: Any, *, shape: Shape, dtype: DType, **attrs: Any) -> Any:
        generator = torch.Generator().manual_seed(_SEED)
        return fill(torch.empty(shape, dtype=TORCH[dtype.name]), generator, **attrs), None

    return reference


def permutation_samples(dtype: DType, rng: RNG) -> Iterator[Sample]:
    for n in (0, 1, 2, 100):
        yield Sample((seed_state(_SEED),), {"n": n})


_NO_GRADIENT = "a random draw"
record(
    "rng_uniform",
    _random(),
    _drawn(lambda t, g: t.uniform_(generator=g)),
    FLOATS,
    gradient=_NO_GRADIENT,
)
record(
    "rng_normal",
    _random(),
    _drawn(lambda t, g: t.normal_(generator=g)),
    FLOATS,
    gradient=_NO_GRADIENT,
)
record(
    "rng_exponential",
    _random(),
    _drawn(lambda t, g: t.exponential_(generator=g)),
    FLOATS,
    gradient=_NO_GRADIENT,
)
record(
    "rng_bernoulli",
    _random(p=0.3),
    _drawn(lambda t, g, p: t.bernoulli_(p, generator=g)),
    ANY,
    gradient=_NO_GRADIENT,
)
record(
    "rng_randint",
    _random(low=2, high=90),
    _drawn(lambda t, g, low, high: t.random_(low, high, generator=g)),
    (*INTS, *FLOATS),
    gradient=_NO_GRADIENT,
)
record(
    "rng_permutation",
    permutation_samples,
    lambda state, n: (torch.randperm(n, generator=torch.Generator().manual_seed(_SEED)), None),
    (dtypes.i64,),
    gradient=_NO_GRADIENT,
)


def _sampled(*parameters: float) -> Any:
    def samples(dtype: DType, rng: RNG) -> Iterator[Sample]:
        for shape in ((), (5,), (3, 7), (0,)):
            arrays = [np.full(shape, value).astype(dtype.numpy) for value in parameters]
            yield Sample((seed_state(_SEED), *arrays), {})

    return samples


def _sampler(sample: Any) -> Any:
    def reference(state: Any, *parameters: Any) -> Any:
        return sample(*parameters, torch.Generator().manual_seed(_SEED)), None

    return reference


def shape_samples(dtype: DType, rng: RNG) -> Iterator[Sample]:
    for shape in ((), (3,), (16,), (5, 7), (0,)):
        yield Sample((seed_state(_SEED),), {"shape": shape})


def _pairs(state: Any, *, shape: Shape) -> Any:
    """A tensor that is not contiguous is filled by pairs."""
    generator = torch.Generator().manual_seed(_SEED)
    every_other = torch.empty((*shape, 2), dtype=torch.float64)[..., 0]
    return every_other.normal_(generator=generator), None


def _words(state: Any, *, shape: Shape) -> Any:
    drawn = torch.empty(shape, dtype=torch.int32)
    return drawn.random_(generator=torch.Generator().manual_seed(_SEED)).long(), None


def _masks(dtype: DType, rng: RNG) -> Iterator[Sample]:
    for shape in ((), (9,), (4, 7), (0,)):
        yield Sample((seed_state(_SEED), rng.random(shape) < 0.6), {})


def _where(state: Any, mask: Any) -> Any:
    generator = torch.Generator().manual_seed(_SEED)
    found = torch.zeros(mask.shape, dtype=torch.float64)
    found[mask] = torch.rand(int(mask.sum()), generator=generator, dtype=torch.float64)
    return found, None


WIDE = (dtypes.f32, dtypes.f64)
record(
    "rng_poisson", _sampled(3.5), _sampler(torch.poisson), FLOATS, gradient=_NO_GRADIENT
)
record(
    "rng_binomial", _sampled(12.0, 0.25), _sampler(torch.binomial), WIDE, gradient=_NO_GRADIENT
)
record("rng_gamma", _sampled(0.75), _sampler(torch._standard_gamma), WIDE, gradient=_NO_GRADIENT)
record("rng_uniform_where", _masks, _where, (dtypes.bool_,), gradient=_NO_GRADIENT)
record("rng_normal_pairs", shape_samples, _pairs, (dtypes.f64,), gradient=_NO_GRADIENT)
record("rng_words", shape_samples, _words, (dtypes.i64,), gradient=_NO_GRADIENT)
