"""Random tensors from the default generator (or a given one), bit-equal with torch's on the CPU."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from graphc.ir import dtypes, ops
from graphc.ir.dtypes import DType

from .. import promote
from ..dispatch import apply, inplace
from ..errors import located
from ..promote import get_default_dtype
from ..random_state import Generator, draw
from ..tensor import Tensor
from . import pointwise as P
from .arguments import (
    broadcast_sizes,
    check_device,
    check_dtype,
    non_negative,
    shape,
    shape_of,
    write_out,
)
from .dtype_names import iinfo
from .sorting import searchsorted


def _float_dtype(dtype: Any, name: str) -> Any:
    found = check_dtype(dtype) or get_default_dtype()
    if not found.is_float:
        raise RuntimeError(located(
            f'"{name}_cpu" not implemented for \'{promote._name(found)}\''
        ))  # fmt: skip
    return found


def _done(result: Tensor, requires_grad: bool, out: Tensor | None = None) -> Tensor:
    if out is not None:
        return write_out(out, result)
    return result.requires_grad_() if requires_grad else result


def _shaped(kind: str, name: str, doc: str) -> Any:
    def function(
        *sizes: Any, size: Any = None, generator: Generator | None = None, dtype: Any = None,
        device: Any = None, requires_grad: bool = False, layout: Any = None,
        pin_memory: bool = False, out: Tensor | None = None,
    ) -> Tensor:
        check_device(device)
        want = shape_of(sizes if size is None else (size,), name)
        non_negative(want)
        values = draw(kind, generator, shape=want, dtype=_float_dtype(dtype, name))
        return _done(values, requires_grad, out)

    function.__name__ = name
    function.__doc__ = doc
    return function


rand = _shaped("uniform", "rand", "Uniform on [0, 1).")
randn = _shaped("normal", "randn", "Normal with mean 0 and variance 1.")


def _like(function: Any, name: str) -> Any:
    def like(
        input: Tensor, *, dtype: Any = None, device: Any = None, requires_grad: bool = False,
        generator: Generator | None = None, layout: Any = None, memory_format: Any = None,
    ) -> Tensor:
        kind = check_dtype(dtype) or input.dtype
        found: Tensor = function(
            shape(input), dtype=kind, device=device, requires_grad=requires_grad,
            generator=generator,
        )
        return found

    like.__name__ = name
    like.__doc__ = f"{name}: the shape and dtype of `input`."
    return like


rand_like = _like(rand, "rand_like")
randn_like = _like(randn, "randn_like")


def randint(
    *args: Any, low: Any = None, high: Any = None, size: Any = None,
    generator: Generator | None = None, dtype: Any = None, device: Any = None,
    requires_grad: bool = False, layout: Any = None, pin_memory: bool = False,
    out: Tensor | None = None,
) -> Tensor:
    """randint([low=0,] high, size): integers on [low, high)."""
    check_device(device)
    given = list(args)
    if size is None:
        if not given or not isinstance(given[-1], (tuple, list)):
            raise TypeError(located(
                "randint() received an invalid combination of arguments: size must be a tuple"
            ))  # fmt: skip
        size = given.pop()
    if len(given) == 2:
        low, high = given
    elif len(given) == 1:
        low, high = (given[0], high) if high is not None else (low, given[0])
    return _integers(
        0 if low is None else int(low), int(high), shape_of((size,)), generator,
        check_dtype(dtype) or dtypes.i64, requires_grad, out,
    )


def _integers(
    low: int, high: int, size: Any, generator: Generator | None, dtype: Any,
    requires_grad: bool = False, out: Tensor | None = None,
) -> Tensor:
    if low >= high:
        raise RuntimeError(located(
            f"random_ expects 'from' to be less than 'to', but got from={low} >= to={high}"
        ))  # fmt: skip
    non_negative(size)
    return _done(
        draw("randint", generator, shape=size, low=low, high=high, dtype=dtype),
        requires_grad, out,
    )


def randint_like(
    input: Tensor, low: int, high: int | None = None, *, dtype: Any = None, **kwargs: Any
) -> Tensor:
    """randint with the shape and dtype of `input`."""
    if high is None:
        low, high = 0, low
    kind = check_dtype(dtype) or input.dtype
    return _integers(low, high, shape(input), None, kind)


def randperm(
    n: int, *, generator: Generator | None = None, dtype: Any = None, device: Any = None,
    requires_grad: bool = False, layout: Any = None, pin_memory: bool = False,
    out: Tensor | None = None,
) -> Tensor:
    """A random order of 0 .. n-1."""
    check_device(device)
    if n < 0:
        raise RuntimeError(located(f"n must be non-negative, got {n}"))
    order = draw("permutation", generator, n=int(n))
    return _done(promote.cast(order, check_dtype(dtype) or dtypes.i64), requires_grad, out)


def normal(
    mean: Any = 0.0, std: Any = 1.0, size: Any = None, *, generator: Generator | None = None,
    dtype: Any = None, device: Any = None, requires_grad: bool = False, layout: Any = None,
    pin_memory: bool = False, out: Tensor | None = None,
) -> Tensor:
    """Normal numbers; mean and std are numbers (with `size`) or tensors."""
    check_device(device)
    if isinstance(mean, Tensor) or isinstance(std, Tensor):
        tensors = [v for v in (mean, std) if isinstance(v, Tensor)]
        sizes = broadcast_sizes(*(shape(v) for v in tensors))
        kind = promote.result_type(*tensors)
        z = draw("normal", generator, shape=sizes, dtype=kind)
        return _done(P.add(P.mul(z, std), mean), requires_grad, out)
    if size is None:
        raise TypeError(located("normal() of two numbers needs a size"))
    if std < 0:
        raise RuntimeError(located(f"normal expects std >= 0.0, but found std {std}"))
    kind = _float_dtype(dtype, "normal")
    return _done(_normals(shape_of((size,)), kind, mean, std, generator), requires_grad, out)


def _scaled(z: Tensor, mean: Any, std: Any) -> Tensor:
    """z * std + mean in one rounding, as torch's kernel does, where it matters."""
    if type(std) in (int, float) and std == 1 and type(mean) in (int, float) and mean == 0:
        return z
    if z.dtype is not dtypes.f32 or (type(mean) in (int, float) and mean == 0):
        return P.add(P.mul(z, std), mean) if mean != 0 else P.mul(z, std)
    return _fused(z, std, mean)


def _fused(a: Tensor, b: Any, c: Any) -> Tensor:
    """a * b + c of float32 with (nearly always) one rounding: through float64."""
    wide = promote.cast(a, dtypes.f64)
    b, c = (_as_float32(v) for v in (b, c))
    return promote.cast(P.add(P.mul(wide, b), c), dtypes.f32)


def _as_float32(value: Any) -> Any:
    if type(value) in (int, float):
        return float(np.float32(value))
    return value


# --- in place ----------------------------------------------------------------------------------


def _store(target: Tensor, value: Tensor) -> Tensor:
    return inplace(target, value, overwrite=True)


def uniform_(
    self: Tensor, a: Any = 0.0, b: Any = 1.0, *, generator: Generator | None = None, **kw: Any
) -> Tensor:
    """Fill with numbers uniform on [from, to)."""
    a, b = kw.pop("from", a), kw.pop("to", b)
    if kw:
        raise TypeError(located(
            f"uniform_() got an unexpected keyword argument {next(iter(kw))!r}"
        ))  # fmt: skip
    if not a <= b:
        raise RuntimeError(located(
            f"uniform_ expects to return a [from, to) range, but found from={a} > to={b}"
        ))  # fmt: skip
    u = draw("uniform", generator, shape=shape(self), dtype=_float_dtype(self.dtype, "uniform"))
    if (a, b) == (0.0, 1.0):
        return _store(self, u)
    if self.dtype is dtypes.f32:
        return _store(self, _fused(u, _as_float32(_as_float32(b) - _as_float32(a)), a))
    return _store(self, P.add(P.mul(u, b - a), a))


def normal_(
    self: Tensor, mean: Any = 0.0, std: Any = 1.0, *, generator: Generator | None = None
) -> Tensor:
    """Fill with normal numbers."""
    if std < 0:
        raise RuntimeError(located(f"normal expects std >= 0.0, but found std {std}"))
    kind = _float_dtype(self.dtype, "normal")
    return _store(self, _normals(shape(self), kind, mean, std, generator))


def _normals(sizes: Any, kind: DType, mean: Any, std: Any, generator: Generator | None) -> Tensor:
    """Fewer than 16 are drawn and scaled in float64 whatever the dtype, as in torch."""
    few = all(type(size) is int for size in sizes) and math.prod(sizes) < 16
    z = draw("normal", generator, shape=sizes, dtype=dtypes.f64 if few else kind)
    return promote.cast(_scaled(z, mean, std), kind)


def exponential_(
    self: Tensor, lambd: float = 1.0, *, generator: Generator | None = None
) -> Tensor:
    """Fill with exponential numbers of rate `lambd`."""
    if lambd <= 0:
        raise RuntimeError(located(
            f"exponential_ expects lambda > 0.0, but found lambda={lambd}"
        ))  # fmt: skip
    kind = _float_dtype(self.dtype, "exponential")
    e = draw("exponential", generator, shape=shape(self), dtype=kind)
    return _store(self, e if lambd == 1 else P.div(e, lambd))


def bernoulli_(
    self: Tensor, p: Any = 0.5, *, generator: Generator | None = None
) -> Tensor:
    """Fill with 1 with probability p (a number or a tensor), else 0."""
    if isinstance(p, Tensor):
        wide = promote.cast(p, dtypes.f64)
        u = draw("uniform", generator, shape=shape(self), dtype=dtypes.f64)
        return _store(self, promote.cast(P.lt(u, wide), self.dtype))
    _probability(p)
    return _store(
        self, draw("bernoulli", generator, shape=shape(self), p=float(p), dtype=self.dtype)
    )


def _probability(p: float) -> None:
    if not 0 <= p <= 1:
        raise RuntimeError(located(f"bernoulli_ expects p to be in [0, 1], but got p={p}"))


def bernoulli(
    input: Tensor, p: float | None = None, *, generator: Generator | None = None,
    out: Tensor | None = None,
) -> Tensor:
    """1 with the probabilities in `input` (or p everywhere), else 0."""
    if p is not None:
        _probability(p)
        values = draw("bernoulli", generator, shape=shape(input), p=float(p), dtype=input.dtype)
        return _done(values, False, out)
    if not input.dtype.is_float:
        raise RuntimeError(located(
            f"\"bernoulli_tensor_cpu_self_\" not implemented for '{promote._name(input.dtype)}'"
        ))  # fmt: skip
    kind = dtypes.f64 if input.dtype is dtypes.f64 else dtypes.f32
    u = draw("uniform", generator, shape=shape(input), dtype=kind)
    found = promote.cast(P.lt(u, promote.cast(input.detach(), kind)), input.dtype)
    return _done(found, False, out)


def random_(
    self: Tensor, *bounds: int, generator: Generator | None = None, **kw: int
) -> Tensor:
    """Fill with integers on [from, to); without bounds, all that the dtype holds exactly."""
    low, high = kw.pop("from", None), kw.pop("to", None)
    if len(bounds) == 2:
        low, high = bounds
    elif len(bounds) == 1:
        low, high = (bounds[0], high) if high is not None else (low, bounds[0])
    if high is None:
        if self.dtype.is_float:
            digits = {dtypes.f16: 11, dtypes.bf16: 8, dtypes.f32: 24, dtypes.f64: 53}
            high = 2 ** digits[self.dtype] + 1
        elif self.dtype is dtypes.bool_:
            high = 2
        else:
            high = iinfo(self.dtype).max + 1
    kind = dtypes.i64 if not self.dtype.is_integer else self.dtype
    values = draw(
        "randint", generator, shape=shape(self), low=int(low or 0), high=int(high), dtype=kind
    )
    return _store(self, promote.cast(values, self.dtype))


def cauchy_(
    self: Tensor, median: float = 0, sigma: float = 1, *, generator: Generator | None = None
) -> Tensor:
    """Fill with Cauchy numbers."""
    u = draw("uniform", generator, shape=shape(self), dtype=dtypes.f64)
    value = P.add(P.mul(P.tan(P.mul(P.sub(u, 0.5), math.pi)), sigma), median)
    return _store(self, promote.cast(value, self.dtype))


def log_normal_(
    self: Tensor, mean: float = 1, std: float = 2, *, generator: Generator | None = None
) -> Tensor:
    """Fill with exp of normal numbers."""
    kind = _float_dtype(self.dtype, "log_normal")
    z = draw("normal", generator, shape=shape(self), dtype=kind)
    return _store(self, P.exp(_scaled(z, mean, std)))


def geometric_(self: Tensor, p: float, *, generator: Generator | None = None) -> Tensor:
    """Fill with numbers of trials until the first success."""
    u = draw("uniform", generator, shape=shape(self), dtype=dtypes.f64)
    value = P.ceil(P.div(P.log(P.sub(1.0, u)), math.log1p(-p)))
    return _store(self, promote.cast(value, self.dtype))


def multinomial(
    input: Tensor, num_samples: int, replacement: bool = False, *,
    generator: Generator | None = None, out: Tensor | None = None,
) -> Tensor:
    """Indices drawn with the (unnormalised) probabilities in each row."""
    if input.ndim not in (1, 2):
        raise RuntimeError(located("prob_dist must be 1 or 2 dim"))
    if not input.dtype.is_float:
        raise RuntimeError(located(
            "multinomial only supports floating-point dtypes for input, got: "
            f"{promote._name(input.dtype)}"
        ))  # fmt: skip
    size = shape(input)[-1]
    if num_samples <= 0:
        raise RuntimeError(located("cannot sample n_sample <= 0 samples"))
    if not replacement and isinstance(size, int) and num_samples > size:
        raise RuntimeError(located(
            "cannot sample n_sample > prob_dist.size(-1) samples without replacement"
        ))  # fmt: skip
    weights = input.detach()
    if not replacement or num_samples == 1:
        # the race of exponential clocks: the fastest win
        clocks = draw("exponential", generator, shape=shape(input), dtype=input.dtype)
        speed = P.div(weights, clocks)
        along = input.ndim - 1
        if num_samples == 1:
            best: Tensor = apply(ops.argmax, speed, dim=along, keepdim=True)
            return _done(best, False, out)
        found = apply(ops.topk, speed, k=num_samples, dim=along, largest=True)[1]
        return _done(found, False, out)
    return _done(_with_replacement(weights, num_samples, generator), False, out)


def _with_replacement(
    weights: Tensor, count: int, generator: Generator | None
) -> Tensor:
    along = weights.ndim - 1
    totals = apply(ops.cumsum, weights, dim=along)
    last = shape(weights)[-1]
    sums = totals[..., last - 1 :]
    edges = P.div(totals, sums)
    u = draw("uniform", generator, shape=(*shape(weights)[:-1], count), dtype=dtypes.f64)
    found = searchsorted(promote.cast(edges, dtypes.f64), u, right=True)
    return P.clamp(found, max=last - 1)


METHODS = {
    "uniform_": uniform_, "normal_": normal_, "exponential_": exponential_,
    "bernoulli_": bernoulli_, "bernoulli": bernoulli, "random_": random_, "cauchy_": cauchy_,
    "log_normal_": log_normal_, "geometric_": geometric_, "multinomial": multinomial,
}  # fmt: skip
