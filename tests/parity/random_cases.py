"""Random draws by name, each of a space (torch or graphc), a shape and a dtype's name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

SIZES: tuple[tuple[int, ...], ...] = (
    (), (0,), (1,), (5,), (15,), (16,), (17,), (8, 4), (1000,),
)
FLOATS = ("float32", "float64", "bfloat16", "float16")
INTEGERS = ("int64", "int32", "int16", "int8", "uint8")
ANY = (*FLOATS, *INTEGERS, "bool")

Draw = Callable[[Any, tuple[int, ...], Any], Any]


def _filled(name: str, *args: Any, **kwargs: Any) -> Draw:
    def draw(t: Any, size: tuple[int, ...], dtype: Any) -> Any:
        return getattr(t.zeros(size, dtype=dtype), name)(*args, **kwargs)

    return draw


def _strided(name: str, *args: Any) -> Draw:
    """Filling every other element of a transposed tensor: not contiguous."""

    def draw(t: Any, size: tuple[int, ...], dtype: Any) -> Any:
        whole = t.zeros((*size, 2, 3), dtype=dtype).transpose(-1, -2)
        getattr(whole[..., ::2, :], name)(*args)
        return whole

    return draw


# name -> (dtypes, draw)
CASES: dict[str, tuple[tuple[str, ...], Draw]] = {
    "rand": (FLOATS, lambda t, s, d: t.rand(s, dtype=d)),
    "randn": (FLOATS, lambda t, s, d: t.randn(s, dtype=d)),
    "rand out": (FLOATS, lambda t, s, d: t.rand(s, out=t.empty(s, dtype=d))),
    "randn out": (FLOATS, lambda t, s, d: t.randn(s, out=t.empty(s, dtype=d))),
    "rand_like": (FLOATS, lambda t, s, d: t.rand_like(t.empty(s, dtype=d))),
    "randn_like": (FLOATS, lambda t, s, d: t.randn_like(t.empty(s, dtype=d))),
    "randint": ((*INTEGERS, *FLOATS), lambda t, s, d: t.randint(3, 99, s, dtype=d)),
    "randint bool": (("bool",), lambda t, s, d: t.randint(0, 2, s, dtype=d)),
    "randint negative": (("int64", "float32"), lambda t, s, d: t.randint(-70, 5, s, dtype=d)),
    "randint wide": (("int64",), lambda t, s, d: t.randint(-(2**62), 2**62, s, dtype=d)),
    "randint 2**31": (("int64",), lambda t, s, d: t.randint(2**31, s, dtype=d)),
    "randint 2**32": (("int64",), lambda t, s, d: t.randint(2**32, s, dtype=d)),
    "randint 2**32 - 1": (("int64",), lambda t, s, d: t.randint(2**32 - 1, s, dtype=d)),
    "randint_like": ((*INTEGERS, *FLOATS), lambda t, s, d: t.randint_like(
        t.empty(s, dtype=d), 2, 50)),
    "randperm": (("int64", "int32", "float32"), lambda t, s, d: t.randperm(
        s[0] if s else 3, dtype=d)),
    "uniform_": (FLOATS, _filled("uniform_")),
    "uniform_ bounds": (FLOATS, _filled("uniform_", -0.3, 1.7)),
    "uniform_ narrow": (FLOATS, _filled("uniform_", 0.1, 0.2)),
    "uniform_ strided": (FLOATS, _strided("uniform_", -1, 1)),
    "normal_": (FLOATS, _filled("normal_")),
    "normal_ bounds": (FLOATS, _filled("normal_", 0.7, 0.3)),
    "normal_ scale": (FLOATS, _filled("normal_", 0.0, 0.02)),
    "normal_ shift": (FLOATS, _filled("normal_", 3.0, 1.0)),
    "normal_ strided": (FLOATS, _strided("normal_", -1, 2.5)),
    "normal sizes": (FLOATS, lambda t, s, d: t.normal(0.3, 1.1, s, dtype=d)),
    "normal tensors": (FLOATS, lambda t, s, d: t.normal(
        t.full(s, 0.3, dtype=d), t.full(s, 1.3, dtype=d))),
    "normal mean": (FLOATS, lambda t, s, d: t.normal(t.full(s, 0.3, dtype=d), 1.3)),
    "normal mean 1": (FLOATS, lambda t, s, d: t.normal(t.full(s, 0.3, dtype=d))),
    "normal std": (FLOATS, lambda t, s, d: t.normal(0.3, t.full(s, 1.3, dtype=d))),
    "bernoulli": (FLOATS, lambda t, s, d: t.bernoulli(t.full(s, 0.37, dtype=d))),
    "bernoulli p": (ANY, lambda t, s, d: t.bernoulli(t.zeros(s, dtype=d), 0.37)),
    "bernoulli_": (ANY, _filled("bernoulli_")),
    "bernoulli_ p": (ANY, _filled("bernoulli_", 0.2)),
    "bernoulli_ strided": (FLOATS, _strided("bernoulli_", 0.6)),
    "bernoulli_ tensor": (ANY, lambda t, s, d: t.zeros(s, dtype=d).bernoulli_(
        t.full(s, 0.3, dtype=t.float64))),
    "bernoulli_ tensor f32": (FLOATS, lambda t, s, d: t.zeros(s, dtype=d).bernoulli_(
        t.full(s, 0.3))),
    "exponential_": (FLOATS, _filled("exponential_")),
    "exponential_ rate": (FLOATS, _filled("exponential_", 2.7)),
    "exponential_ strided": (FLOATS, _strided("exponential_", 0.3)),
    "geometric_": ((*FLOATS, *INTEGERS), _filled("geometric_", 0.3)),
    "cauchy_": (FLOATS, _filled("cauchy_")),
    "cauchy_ scale": (FLOATS, _filled("cauchy_", 1.5, 0.7)),
    "log_normal_": (FLOATS, _filled("log_normal_")),
    "log_normal_ scale": (FLOATS, _filled("log_normal_", 0.5, 0.25)),
    "random_": ((*FLOATS, *INTEGERS, "bool"), _filled("random_")),
    "random_ to": ((*FLOATS, *INTEGERS), _filled("random_", 100)),
    "random_ from": ((*FLOATS, *INTEGERS), _filled("random_", 5, 100)),
    "random_ from None": (INTEGERS, _filled("random_", 5, None)),
    "poisson": (FLOATS, lambda t, s, d: t.poisson(t.full(s, 3.2, dtype=d))),
    "poisson big": (FLOATS, lambda t, s, d: t.poisson(t.full(s, 33.0, dtype=d))),
    "binomial": (("float32", "float64"), lambda t, s, d: t.binomial(
        t.full(s, 9.0, dtype=d), t.full(s, 0.3, dtype=d))),
    "binomial big": (("float32", "float64"), lambda t, s, d: t.binomial(
        t.full(s, 90.0, dtype=d), t.full(s, 0.6, dtype=d))),
    # half precision ties, and torch's top-k breaks ties in no particular order
    "multinomial": (("float32", "float64"), lambda t, s, d: t.multinomial(
        t.arange(1, 8).to(d).expand(*(s[:1] or (1,)), 7), 3)),
    "multinomial 1": (FLOATS, lambda t, s, d: t.multinomial(
        t.arange(1, 8).to(d).expand(*(s[:1] or (1,)), 7), 1)),
    "multinomial replaced": (("float32", "float64"), lambda t, s, d: t.multinomial(
        t.arange(1, 8).to(d).expand(*(s[:1] or (1,)), 7), 9, True)),
    "_standard_gamma": (("float32", "float64"), lambda t, s, d: t._standard_gamma(
        t.full(s, 1.7, dtype=d))),
    "_standard_gamma small": (("float32", "float64"), lambda t, s, d: t._standard_gamma(
        t.full(s, 0.4, dtype=d))),
    "_sample_dirichlet": (("float32", "float64"), lambda t, s, d: t._sample_dirichlet(
        t.full((*s, 3), 0.7, dtype=d))),
    "dropout": (FLOATS, lambda t, s, d: t.nn.functional.dropout(t.ones(s, dtype=d), 0.3)),
    "feature dropout": (("float32", "float64"), lambda t, s, d: t.nn.functional.dropout2d(
        t.ones((2, 5, 3, *(s or (2,))[:1]), dtype=d), 0.3)),
    "alpha_dropout": (("float32", "float64"), lambda t, s, d: t.nn.functional.alpha_dropout(
        t.ones(s, dtype=d), 0.3, training=True)),
    "gumbel_softmax": (("float32", "float64"), lambda t, s, d: t.nn.functional.gumbel_softmax(
        t.ones((*s, 4), dtype=d), hard=True)),
}
