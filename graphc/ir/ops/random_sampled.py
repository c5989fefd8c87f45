"""Random operators whose number of draws depends on what is drawn, or on parameters by element."""

from __future__ import annotations

from .. import dtypes
from ..dim import DimEnv
from ..op import Attrs, Op, register
from ..rounding import EXACT
from ..types import TensorType, TupleType, Type
from ._types import BOOL, FLOATS, Types, fail, require_dtype
from .create import require_shape
from .random import STATE, _require_state

_REASON = "a random draw depends on no input but the generator's state"


def _drawn(name: str, dtype: dtypes.DType, doc: str) -> None:
    def infer(types: Types, attrs: Attrs, env: DimEnv) -> Type:
        _require_state(name, types)
        require_shape(name, attrs["shape"])
        return TupleType((TensorType(dtype, attrs["shape"]), STATE))

    register(
        Op(
            name, "random", infer, arity=1, results=2, attrs=("shape",),
            nondifferentiable=_REASON, cost=None, rounding=EXACT, takes_complex=False, doc=doc,
        )
    )


def _sampled(name: str, parameters: int, doc: str) -> None:
    def infer(types: Types, attrs: Attrs, env: DimEnv) -> Type:
        _require_state(name, types)
        first = types[1]
        require_dtype(name, first.dtype, FLOATS)
        if any(t != first for t in types[2:]):
            fail(f"{name}: parameters of one shape and dtype expected, got {types[1:]}")
        return TupleType((first, STATE))

    register(
        Op(
            name, "random", infer, arity=1 + parameters, results=2, nondifferentiable=_REASON,
            cost=None, rounding=EXACT, takes_complex=False, doc=doc,
        )
    )


_drawn("rng_words", dtypes.i64, "The low 31 bits of the generator's words.")
_drawn("rng_normal_pairs", dtypes.f64, "Normal numbers drawn in pairs, however many there are.")
_sampled("rng_poisson", 1, "Poisson numbers of given rates.")
_sampled("rng_binomial", 2, "Successes among `count` trials of probability `prob`.")
_sampled("rng_gamma", 1, "Gamma numbers of given shape parameters and scale 1.")


def _where_type(types: Types, attrs: Attrs, env: DimEnv) -> Type:
    _require_state("rng_uniform_where", types)
    require_dtype("rng_uniform_where", types[1].dtype, BOOL)
    return TupleType((TensorType(dtypes.f64, types[1].shape), STATE))


register(
    Op(
        "rng_uniform_where", "random", _where_type, arity=2, results=2, nondifferentiable=_REASON,
        cost=None, rounding=EXACT, takes_complex=False,
        doc="Numbers of [0, 1) drawn for the elements that are True alone, 0 elsewhere.",
    )
)
