"""gelu, silu and softplus: elementwise, with gradients that do not overflow.

16-bit floats are computed in float32 and rounded once.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from ..dim import DimEnv
from ..op import FUNCTION, LONG, Attrs, Op, TypeRule, register
from ..rounding import CANCELLING, ROUNDED, Rounding, RoundingRule
from ..types import Type
from ._rules import accumulation_dtype, cast, ops, select
from ._types import FLOATS, Types, fail, require_dtype

_SQRT_HALF = math.sqrt(0.5)
_PDF_SCALE = 1.0 / math.sqrt(2.0 * math.pi)
_TANH_SCALE = math.sqrt(2.0 / math.pi)
_TANH_CUBE = 0.044715


def _float_rule(name: str) -> TypeRule:
    def infer(types: Types, attrs: Attrs, env: DimEnv) -> Type:
        require_dtype(name, types[0].dtype, FLOATS)
        if attrs.get("approximate", "none") not in ("none", "tanh"):
            fail("approximate argument must be either none or tanh, got "
                 f"{attrs['approximate']!r}")
        return types[0]

    return infer


def _register(
    name: str, cost: int, rounding: Rounding | RoundingRule, value: Callable[..., Any],
    slope: Callable[..., Any], attrs: tuple[str, ...], doc: str,
) -> None:
    """Register an activation from its value(x) and its derivative slope(x)."""

    def decompose(x: Any, **options: Any) -> Any:
        dtype = x.type.dtype
        return cast(value(cast(x, accumulation_dtype(dtype)), **options), dtype)

    def vjp(grads: Any, inputs: Any, outs: Any, needs: Any, **options: Any) -> Any:
        dtype = inputs[0].type.dtype
        wide = accumulation_dtype(dtype)
        return (cast(cast(grads[0], wide) * slope(cast(inputs[0], wide), **options), dtype),)

    register(
        Op(
            name, "composite", _float_rule(name), vjp, decompose, arity=1, attrs=attrs, doc=doc,
            cost=cost, rounding=rounding, takes_complex=False,
        )
    )


def _tanh_inner(x: Any) -> Any:
    return (x + x * x * x * _TANH_CUBE) * _TANH_SCALE


def _gelu(x: Any, *, approximate: str) -> Any:
    if approximate == "tanh":
        return x * 0.5 * (ops.tanh(_tanh_inner(x)) + 1.0)
    return x * 0.5 * (ops.erf(x * _SQRT_HALF) + 1.0)


def _gelu_slope(x: Any, *, approximate: str) -> Any:
    if approximate == "tanh":
        t = ops.tanh(_tanh_inner(x))
        inner_slope = (x * x * (3.0 * _TANH_CUBE) + 1.0) * _TANH_SCALE
        return (t + 1.0) * 0.5 + x * 0.5 * (1.0 - t * t) * inner_slope
    cdf = (ops.erf(x * _SQRT_HALF) + 1.0) * 0.5
    return cdf + x * (ops.exp(x * x * -0.5) * _PDF_SCALE)


def _silu(x: Any) -> Any:
    return x * ops.sigmoid(x)


def _silu_slope(x: Any) -> Any:
    s = ops.sigmoid(x)
    return s * (x * (1.0 - s) + 1.0)


def _softplus(x: Any, *, beta: float, threshold: float) -> Any:
    z = x * beta
    return ops.where(ops.gt(z, threshold), x, ops.log1p(ops.exp(z)) / beta)


def _softplus_slope(x: Any, *, beta: float, threshold: float) -> Any:
    z = x * beta
    s = ops.sigmoid(z)
    return select(ops.gt(z, threshold), 1.0, s)


def _gelu_rounding(attrs: Mapping[str, Any], sources: Any, results: Any) -> Rounding:
    return CANCELLING if attrs["approximate"] == "tanh" else ROUNDED  # 1 + tanh, for negative x


_register(
    "gelu", LONG, _gelu_rounding, _gelu, _gelu_slope, ("approximate",),
    "x times the normal distribution function of x, exact (none) or by tanh.",
)
_register("silu", FUNCTION, ROUNDED, _silu, _silu_slope, (), "x * sigmoid(x).")
_register(
    "softplus", LONG, ROUNDED, _softplus, _softplus_slope, ("beta", "threshold"),
    "log(1 + exp(beta * x)) / beta; x itself where beta * x > threshold.",
)
