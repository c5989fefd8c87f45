"""Random operators: each takes the generator's state and returns (values, new state).

The state is i64[626]: the 624 words of an mt19937, the position in them, and the spare normal.
The streams are torch's on the CPU, bit for bit. They are never merged, reordered or recomputed.
"""

from __future__ import annotations

from .. import dtypes
from ..dim import DimEnv
from ..op import Attrs, Op, register
from ..rounding import EXACT
from ..types import TensorType, TupleType, Type
from ._types import ANY, FLOATS, NUMBERS, Types, fail, require_dtype
from .create import require_shape

STATE = TensorType(dtypes.i64, (626,))


def _require_state(name: str, types: Types) -> None:
    if types[0] != STATE:
        fail(f"{name}: expected a generator state {STATE}, got {types[0]}")


def _random_type(name: str, allowed: frozenset[dtypes.DType]) -> None:
    """Register rng_`name`, whose result has the attributes `shape` and `dtype`."""
    full_name = f"rng_{name}"

    def infer(types: Types, attrs: Attrs, env: DimEnv) -> Type:
        _require_state(full_name, types)
        require_shape(full_name, attrs["shape"])
        require_dtype(full_name, attrs["dtype"], allowed)
        p = attrs.get("p")
        if p is not None and not 0.0 <= p <= 1.0:
            fail(f"bernoulli_ expects p to be in [0, 1], but got p={p}")
        if "low" in attrs and not attrs["low"] < attrs["high"]:
            fail("random_ expects 'from' to be less than 'to', but got "
                 f"from={attrs['low']} >= to={attrs['high']}")
        return TupleType((TensorType(attrs["dtype"], attrs["shape"]), STATE))

    attrs, doc = _FORMS[name]
    register(
        Op(
            full_name, "random", infer, arity=1, results=2, attrs=attrs,
            nondifferentiable="a random draw depends on no input but the generator's state",
            cost=None, rounding=EXACT, takes_complex=False, doc=doc,
        )
    )


def _permutation_type(types: Types, attrs: Attrs, env: DimEnv) -> Type:
    _require_state("rng_permutation", types)
    require_shape("rng_permutation", (attrs["n"],))
    return TupleType((TensorType(dtypes.i64, (attrs["n"],)), STATE))


_FORMS: dict[str, tuple[tuple[str, ...], str]] = {
    "uniform": (("shape", "dtype"), "Uniform on [0, 1)."),
    "normal": (("shape", "dtype"), "Normal of mean 0 and variance 1."),
    "exponential": (("shape", "dtype"), "Exponential of rate 1."),
    "bernoulli": (("shape", "p", "dtype"), "1 with probability p, else 0."),
    "randint": (("shape", "low", "high", "dtype"), "Integers, uniform on [low, high)."),
}
for _name in ("uniform", "normal", "exponential"):
    _random_type(_name, FLOATS)
_random_type("bernoulli", ANY)
_random_type("randint", NUMBERS)
register(
    Op(
        "rng_permutation", "random", _permutation_type, arity=1, results=2, attrs=("n",),
        nondifferentiable="integer result",
        cost=None, rounding=EXACT, takes_complex=False,
        doc="A random order of 0 .. n-1, i64.",
    )
)
