"""Recipes of special functions and of random draws with parameters; why the other routines have
none. A routine is one NumPy function that compiled graphs call back: it has no code of its own
that could be fused, planned or rounded differently, so only its place in a graph is at stake.
"""

from __future__ import annotations

from typing import Any

from graphc.doubt.case import Style
from graphc.ir import dtypes, ops
from graphc.ir.dtypes import FLOATS
from graphc.ir.graph import Expr
from graphc.ir.op import REGISTRY, Op
from tests.fuzz.maker import Maker, Refused
from tests.fuzz.recipes import OPTED_OUT, RECIPES, recipe

_SPECIAL = (
    "i0", "i0e", "i1", "i1e", "erfcx", "ndtri", "log_ndtr", "bessel_j0", "bessel_j1", "bessel_y0",
    "bessel_y1", "modified_bessel_k0", "modified_bessel_k1", "scaled_modified_bessel_k0",
    "scaled_modified_bessel_k1", "airy_ai",
)
_MOST = 60  # elements: these are loops in Python


def _small(m: Maker, x: Expr) -> Expr:
    if m.elements(x.shape) > 10 * _MOST:
        raise Refused
    return x


@recipe(*_SPECIAL)
def _special(m: Maker, name: str) -> Any:
    op = REGISTRY[name]
    return op(m.tame(_small(m, m.operand(FLOATS)), *op.domain))


@recipe("polygamma")
def _polygamma(m: Maker, name: str) -> Any:
    x = m.tame(_small(m, m.operand(FLOATS)), 0.5, 10.0)
    return ops.polygamma(x, order=m.rng.choice((1, 2, 3)))


@recipe("zeta", "gammainc", "gammaincc")
def _of_two(m: Maker, name: str) -> Any:
    if m.traits.gradient:  # none in the first operand
        raise Refused
    op = REGISTRY[name]
    x = _small(m, m.operand(FLOATS))
    return op(m.tame(x, *op.domain), m.shaped(x.dtype, x.shape, Style("uniform", *op.domain)))


@recipe("rng_words", "rng_normal_pairs")
def _drawn(m: Maker, name: str) -> Any:
    return REGISTRY[name](m.state(), shape=m.shape())


@recipe("rng_poisson", "rng_gamma", "rng_binomial")
def _sampled(m: Maker, name: str) -> Any:
    """How many words are drawn depends on the parameters' last bits: they are inputs."""
    dtype = m.dtype((dtypes.f32, dtypes.f64))
    shape = m.shape()
    if m.elements(shape) > _MOST:
        raise Refused
    first = Style("uniform", 0.5, 12.0)
    parameters = [m.fresh(dtype, shape, first, keep=False)]
    if name == "rng_binomial":
        counts = ops.floor(parameters[0])
        parameters = [counts, m.fresh(dtype, shape, Style("uniform", 0.1, 0.9), keep=False)]
    return REGISTRY[name](m.state(), *parameters)


@recipe("rng_uniform_where")
def _drawn_where(m: Maker, name: str) -> Any:
    """How many words are drawn depends on the mask: it is an input."""
    return REGISTRY[name](m.state(), m.fresh(dtypes.bool_, m.shape(), keep=False))


def _reason(op: Op) -> str:
    """Why an operator is drawn by no recipe; "" where it should be."""
    if op.name in ("view_as_real", "view_as_complex"):
        return "complex numbers, which no kernel computes; tests/fft and tests/linalg compare them"
    if op.family == "routine":
        return "a routine on matrices, spectra or complex numbers: see tests/linalg and tests/fft"
    return ""


OPTED_OUT.update(
    (name, reason) for name, op in REGISTRY.items()
    if name not in RECIPES and (reason := _reason(op))
)
