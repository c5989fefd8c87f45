"""uniform_, normal_, bernoulli_, ...: tensors filled with random numbers, bit-equal with torch's.

torch fills a tensor that is not contiguous in the order of its memory, and draws its normal
numbers in pairs then; `_in_memory_order` and `normals(pairs=True)` do the same.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, TypeVar, cast

import numpy as np

from graphc.ir import dtypes, ops
from graphc.ir.dtypes import DType

from .. import plain, promote
from ..context import local
from ..dispatch import apply, inplace
from ..drawn_in_place import LEAST, draw_into, draw_normals_into, drawn_again
from ..ensured import ensured
from ..errors import located
from ..placement import beside
from ..promote import get_default_dtype
from ..random_state import Generator, default_generator, draw
from ..tensor import Tensor, from_array
from ..values import Eager
from ..wrapped import wraps
from . import pointwise as P
from .arguments import check_dtype, shape
from .dtype_names import iinfo
from .joining import cat

F = TypeVar("F", bound=Callable[..., Any])
_FEW = 16  # fewer normal numbers than this are drawn in pairs


def float_dtype(dtype: Any, name: str) -> Any:
    """A float dtype, the default one for None. Raises NotImplementedError for others."""
    found = check_dtype(dtype) or get_default_dtype()
    if not found.is_float:
        raise NotImplementedError(located(
            f'"{name}_cpu" not implemented for \'{promote._name(found)}\''
        ))
    return found


def _in_memory_order(self: Tensor, make: Callable[[Any], Tensor]) -> Tensor:
    """What make(shape) draws, written to `self` in the order of its memory."""
    if self.is_contiguous():
        return inplace(self, make(shape(self)), overwrite=True)
    strides, sizes = self.stride(), shape(self)
    order = sorted(range(self.ndim), key=lambda dim: -strides[dim])
    drawn = make(tuple(sizes[dim] for dim in order))
    back = drawn.permute([order.index(dim) for dim in range(self.ndim)])
    return inplace(self, back, overwrite=True)


def _both_parts(x: Tensor) -> Tensor:
    parts: Tensor = apply(ops.view_as_real, x)
    return parts


def _plain(value: Any) -> bool:
    return type(value) is float or type(value) is int


def _as_float32(value: Any) -> Any:
    return float(np.float32(value)) if _plain(value) else value


# --- a * b + c in one rounding -----------------------------------------------------------------

_SPLITTER = 134217729.0  # 2**27 + 1 cuts a float64 into two halves (Dekker 1971)


def fused(a: Tensor, b: Any, c: Any) -> Tensor:
    """a * b + c of floats with (nearly always) one rounding, as the processor's fma."""
    if a.dtype is dtypes.f32:
        wide = promote.cast(a, dtypes.f64)
        total = P.add(P.mul(wide, _as_float32(b)), _as_float32(c))
        return promote.cast(total, dtypes.f32)
    if a.dtype is not dtypes.f64 or not (_plain(b) and _plain(c)) or not abs(b) < 2.0**900:
        return P.add(P.mul(a, b), c)
    b, c = float(b), float(c)
    high_b = _SPLITTER * b - (_SPLITTER * b - b)
    low_b = b - high_b
    scaled = P.mul(a, _SPLITTER)
    high_a = P.sub(scaled, P.sub(scaled, a))
    low_a = P.sub(a, high_a)
    product = P.mul(a, b)
    error = P.sub(P.mul(high_a, high_b), product)
    error = P.add(P.add(error, P.mul(high_a, low_b)), P.mul(low_a, high_b))
    error = P.add(error, P.mul(low_a, low_b))
    total = P.add(product, c)
    back = P.sub(total, product)
    lost = P.add(P.sub(product, P.sub(total, back)), P.sub(c, back))
    return P.add(total, P.add(lost, error))


def _scaled(z: Tensor, mean: Any, std: Any) -> Tensor:
    if _plain(std) and std == 1 and _plain(mean) and mean == 0:
        return z
    if _plain(mean) and mean == 0:
        z = P.mul(z, std)
        return P.add(z, 0.0) if _plain(std) and std < LEAST else z
    return fused(z, std, mean)


# --- uniform and normal ------------------------------------------------------------------------


def _as_before(first: float, second: float) -> Callable[[F], F]:
    """uniform_() or normal_() of plain numbers, whose defaults these are: as it was done before."""

    def decorate(function: F) -> F:
        name = function.__name__

        @wraps(function)
        def direct(self: Any, *args: Any, **kwargs: Any) -> Any:
            if len(args) < 3 and (not kwargs or kwargs.keys() == _GENERATOR):
                a = args[0] if args else first
                b = args[1] if len(args) > 1 else second
                if type(a) in _NUMBERS and type(b) in _NUMBERS and drawn_again(
                    name, self, kwargs["generator"] if kwargs else None, a, b
                ):
                    return self
            return function(self, *args, **kwargs)

        return cast(F, direct)

    return decorate


_GENERATOR, _NUMBERS = {"generator"}, frozenset({int, float})


@_as_before(0.0, 1.0)
@beside
def uniform_(
    self: Tensor, a: Any = 0.0, b: Any = 1.0, *, generator: Generator | None = None, **kw: Any
) -> Tensor:
    """Fill with numbers uniform on [from, to)."""
    if not kw and _plain(a) and _plain(b) and a == 0 and b == 1 and (
        draw_into("uniform_", self, generator, a, b, "rng_uniform")
    ):
        return self
    a, b = kw.pop("from", a), kw.pop("to", b)
    if kw:
        raise TypeError(located(
            f"uniform_() got an unexpected keyword argument {next(iter(kw))!r}"
        ))
    if not a <= b:
        raise RuntimeError(located(
            f"uniform_ expects to return a [from, to) range, but found from={a} > to={b}"
        ))
    if self.dtype.is_complex:
        uniform_(_both_parts(self), a, b, generator=generator)
        return self
    kind = float_dtype(self.dtype, "uniform")
    if (a, b) == (0.0, 1.0):
        return _in_memory_order(
            self, lambda sizes: draw("uniform", generator, shape=sizes, dtype=kind)
        )
    if kind is dtypes.f32 and _plain(a) and _plain(b):
        low, high = _as_float32(a), _as_float32(b)
        if draw_into(
            "uniform_", self, generator, a, b, "uniforms_between",
            width=_as_float32(high - low), low=low,
        ) or _filled(self, a, b, generator):
            return self
    return _in_memory_order(self, lambda sizes: _uniforms(sizes, kind, a, b, generator))


def _filled(self: Tensor, a: Any, b: Any, generator: Generator | None) -> bool:
    """What _uniforms does, in the tensor's own memory; False where that cannot be."""
    chosen = generator or default_generator
    if chosen.device.type != "cpu" or (local.making and local.making[0] is not None):
        return False
    if local.trace is not None:
        return _filled_in_turn(self, a, b, chosen)
    with chosen.turn:
        return _filled_in_turn(self, a, b, chosen)


def _filled_in_turn(self: Tensor, a: Any, b: Any, chosen: Generator) -> bool:
    arrays = plain.arrays_of([self])
    state = None if arrays is None else plain.arrays_of([chosen.state], "l")
    if arrays is None or state is None:
        return False
    native = Eager.between(state[0], arrays[0].size)
    if native is None:
        return False
    low, high = _as_float32(a), _as_float32(b)
    plain.begin(self)
    after = native(state[0], arrays[0].reshape(-1), _as_float32(high - low), low)
    inplace(chosen.state, from_array(after))
    return True


def _uniforms(sizes: Any, kind: DType, a: Any, b: Any, generator: Generator | None) -> Tensor:
    wide = dtypes.f64 if kind is dtypes.f64 else dtypes.f32
    width = b - a
    if wide is dtypes.f32 and _plain(a) and _plain(b):
        a, b = _as_float32(a), _as_float32(b)
        width = _as_float32(b - a)
    u = draw("uniform", generator, shape=sizes, dtype=wide)
    value = promote.cast(fused(u, width, a), kind)
    # half precision rounds some up to the upper bound: they become the lower one
    return P.where(P.eq(value, b), a, value) if kind.bits == 16 else value


@_as_before(0.0, 1.0)
@beside
def normal_(
    self: Tensor, mean: Any = 0.0, std: Any = 1.0, *, generator: Generator | None = None
) -> Tensor:
    """Fill with normal numbers."""
    if std < 0:
        raise RuntimeError(located(f"normal expects std >= 0.0, but found std {std}"))
    if _plain(mean) and _plain(std) and draw_normals_into(self, generator, mean, std):
        return self
    if self.dtype.is_complex:  # the mean for both parts, as torch has it
        normal_(_both_parts(self), mean, std / math.sqrt(2), generator=generator)
        return self
    kind = float_dtype(self.dtype, "normal")
    pairs = not self.is_contiguous()
    return _in_memory_order(
        self, lambda sizes: normals(sizes, kind, mean, std, generator, pairs)
    )


def normals(
    sizes: Any, kind: DType, mean: Any, std: Any, generator: Generator | None,
    pairs: bool = False,
) -> Tensor:
    """Normal numbers. Pairs, and fewer than 16, are drawn and scaled in float64, as in torch."""
    known = all(type(size) is int for size in sizes)
    unscaled = kind.bits != 16 and _plain(std) and std == 1 and _plain(mean) and mean == 0
    if pairs or (known and math.prod(sizes) < _FEW and not unscaled):
        z = draw("normal_pairs", generator, shape=sizes)
        return promote.cast(_scaled(z, mean, std), kind)
    if kind.bits == 16 and known and not (_plain(std) and std == 1 and mean == 0):
        return promote.cast(_scaled(_wide_normals(sizes, generator), mean, std), kind)
    return _scaled(draw("normal", generator, shape=sizes, dtype=kind), mean, std)


def _wide_normals(sizes: Any, generator: Generator | None) -> Tensor:
    """float32 values of half precision's normals: blocks of 16, the last 16 drawn anew."""
    count = math.prod(sizes)
    z = draw("normal", generator, shape=(count - count % _FEW,), dtype=dtypes.f32)
    if count % _FEW:
        last = draw("normal", generator, shape=(_FEW,), dtype=dtypes.f32)
        z = cat([z[: count - _FEW], last])
    shaped: Tensor = z.reshape(sizes)
    return shaped


# --- by inversion ------------------------------------------------------------------------------


@beside
def exponential_(
    self: Tensor, lambd: float = 1.0, *, generator: Generator | None = None
) -> Tensor:
    """Fill with exponential numbers of rate `lambd`."""
    if lambd <= 0:
        raise RuntimeError(located(
            f"exponential_ expects lambda > 0.0, but found lambda={lambd}"
        ))
    kind = float_dtype(self.dtype, "exponential")

    def make(sizes: Any) -> Tensor:
        wide = kind if lambd == 1 else dtypes.f64
        drawn = draw("exponential", generator, shape=sizes, dtype=wide)
        return drawn if lambd == 1 else promote.cast(P.mul(drawn, 1.0 / lambd), kind)

    return _in_memory_order(self, make)


@beside
def cauchy_(
    self: Tensor, median: float = 0, sigma: float = 1, *, generator: Generator | None = None
) -> Tensor:
    """Fill with Cauchy numbers."""
    if sigma <= 0:
        raise RuntimeError(located(f"cauchy_ expects sigma > 0.0, but found sigma={sigma}"))
    kind = float_dtype(self.dtype, "cauchy")

    def make(sizes: Any) -> Tensor:
        u = draw("uniform", generator, shape=sizes, dtype=dtypes.f64)
        value = fused(P.tan(P.mul(P.sub(u, 0.5), math.pi)), sigma, median)
        return promote.cast(value, kind)

    return _in_memory_order(self, make)


@beside
def log_normal_(
    self: Tensor, mean: float = 1, std: float = 2, *, generator: Generator | None = None
) -> Tensor:
    """Fill with exp of normal numbers."""
    if std <= 0:
        raise RuntimeError(located(f"log_normal_ expects std > 0.0, but found std={std}"))
    kind = float_dtype(self.dtype, "log_normal")

    def make(sizes: Any) -> Tensor:
        z = normals(sizes, dtypes.f64, mean, std, generator, pairs=True)
        return promote.cast(P.exp(z), kind)

    return _in_memory_order(self, make)


@beside
def geometric_(self: Tensor, p: float, *, generator: Generator | None = None) -> Tensor:
    """Fill with numbers of trials until the first success."""
    if not 0 < p < 1:
        raise RuntimeError(located(f"geometric_ expects p to be in (0, 1), but got p={p}"))
    if self.dtype is dtypes.bool_:
        raise NotImplementedError(located("\"geometric_cpu\" not implemented for 'Bool'"))

    def make(sizes: Any) -> Tensor:
        u = draw("uniform", generator, shape=sizes, dtype=dtypes.f64)
        value = P.ceil(P.div(P.log(u), math.log1p(-p)))
        return promote.cast(value, self.dtype)

    return _in_memory_order(self, make)


# --- bernoulli and integers --------------------------------------------------------------------


def check_probability(p: float) -> None:
    """Raises RuntimeError outside [0, 1]."""
    if not 0 <= p <= 1:
        raise RuntimeError(located(f"bernoulli_ expects p to be in [0, 1], but got p={p}"))


def checked_probabilities(p: Tensor) -> Tensor:
    """The same without a history; raises RuntimeError for a probability outside [0, 1] or NaN, if
    the host has it, and so does a graph."""
    p = p.detach()
    if local.trace is not None:
        inside = P.logical_and(P.ge(p, 0), P.le(p, 1))
        return ensured(
            p, inside, "RuntimeError: Expected p_in >= 0 && p_in <= 1 to be true, but got false."
        )
    array = p._graphc_array
    if type(array) is not np.ndarray:
        return p
    fit = (array >= 0) & (array <= 1)
    if not fit.all():
        worst = float(array[~fit].reshape(-1)[0])
        raise RuntimeError(located(
            f"Expected p_in >= 0 && p_in <= 1 to be true, but got p={worst}"
        ))
    return p


@beside
def bernoulli_(
    self: Tensor, p: Any = 0.5, *, generator: Generator | None = None
) -> Tensor:
    """Fill with 1 with probability p (a number or a tensor), else 0."""
    if isinstance(p, Tensor):
        if not p.dtype.is_float:
            raise RuntimeError(located(
                f"expected probabilities tensor to have floating type, got {p.dtype}"
            ))
        p = checked_probabilities(p)
        kind = dtypes.f64 if p.dtype is dtypes.f64 else dtypes.f32
        u = draw("uniform", generator, shape=shape(self), dtype=kind)
        drawn = P.lt(u, promote.cast(p, kind))
        return inplace(self, promote.cast(drawn, self.dtype), overwrite=True)
    check_probability(p)
    if draw_into("bernoulli_", self, generator, p, 0.0, "rng_bernoulli", p=float(p)):
        return self
    return _in_memory_order(
        self,
        lambda sizes: draw("bernoulli", generator, shape=sizes, p=float(p), dtype=self.dtype),
    )


@beside
def random_(
    self: Tensor, *bounds: int | None, generator: Generator | None = None, **kw: int | None
) -> Tensor:
    """Fill with integers on [from, to); without bounds, all that the dtype holds exactly."""
    low, high = kw.pop("from", None), kw.pop("to", None)
    if len(bounds) == 2:
        low, high = bounds
    elif len(bounds) == 1:
        low, high = (bounds[0], high) if high is not None else (low, bounds[0])
    if low is None and high is None and self.dtype is dtypes.i32:
        # one word each; a range of 2**31 given by its bounds takes two
        return _in_memory_order(
            self, lambda sizes: promote.cast(draw("words", generator, shape=sizes), dtypes.i32)
        )
    top = _top(self.dtype) if high is None else int(high)
    bottom = 0 if low is None else int(low)
    if bottom >= top:
        raise RuntimeError(located(
            f"random_ expects 'from' to be less than 'to', but got from={bottom} >= to={top}"
        ))
    kind = self.dtype if self.dtype.is_integer else dtypes.i64
    return _in_memory_order(
        self,
        lambda sizes: promote.cast(
            draw("randint", generator, shape=sizes, low=bottom, high=top, dtype=kind), self.dtype
        ),
    )


def _top(dtype: DType) -> int:
    """One more than the largest integer that random_() draws for a dtype."""
    if dtype.is_float:
        digits = {dtypes.f16: 11, dtypes.bf16: 8, dtypes.f32: 24, dtypes.f64: 53}
        return int(2 ** digits[dtype] + 1)
    return 2 if dtype is dtypes.bool_ else int(iinfo(dtype).max) + 1
