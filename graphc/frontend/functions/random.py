"""Random tensors from the default generator (or a given one), bit-equal with torch's on the CPU."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from graphc.ir import dtypes, ops
from graphc.ir.dim import product
from graphc.ir.dtypes import DType
from graphc.ir.op import get as get_op

from .. import promote
from ..context import local
from ..dispatch import apply
from ..drawn_in_place import few_drawn
from ..ensured import ensured
from ..errors import located
from ..history import requires_grad
from ..overlap import check_apart
from ..placement import beside, makes, makes_like, place_at
from ..plain import is_unwatched
from ..random_state import Generator, draw, drawn_at_once
from ..tensor import Tensor, from_array
from ..transfer import moved
from ..values import Eager
from . import pointwise as P
from .arguments import (
    broadcast_sizes,
    check_dtype,
    non_negative,
    public_size,
    shape,
    shape_of,
    write_out,
)
from .creation import empty_like
from .inplace_shape import resize_
from .parts import slice_dim
from .random_inplace import (
    bernoulli_,
    cauchy_,
    check_probability,
    checked_probabilities,
    exponential_,
    float_dtype,
    geometric_,
    log_normal_,
    normal_,
    normals,
    random_,
    uniform_,
)
from .sorting import searchsorted
from .zero_gradient import flat_in


def _done(
    result: Tensor, requires_grad: bool, out: Tensor | None = None, warns: bool = False
) -> Tensor:
    if out is not None:
        return write_out(out, result, warns)
    return result.requires_grad_() if requires_grad else result


def _resized(out: Tensor, want: Any) -> Tensor:
    """`out` with the size that is to be drawn; it is then filled in its own memory order."""
    return out if shape(out) == tuple(want) else resize_(out, *want)


def _complex(kind: str, generator: Generator | None, want: Any, dtype: DType) -> Tensor:
    """Both parts drawn in turn; those of a normal number have a variance of 1/2 each."""
    count = product(want)
    # torch computes fewer than 16 numbers in double
    few = kind == "normal" and isinstance(count, int) and count < 8
    parts: Tensor = draw(
        kind, generator, shape=(*want, 2), dtype=dtypes.f64 if few else dtype.real
    )
    if kind == "normal":
        parts = apply(ops.mul, parts, promote.operand(1 / math.sqrt(2), parts.dtype))
    parts = promote.cast(parts, dtype.real).contiguous()
    found: Tensor = apply(ops.view_as_complex, parts)
    return found


def _are_sizes(given: tuple[Any, ...]) -> bool:
    """Whether they are plain sizes, as nearly always."""
    for size in given:  # a generator would take twice as long
        if type(size) is not int or size < 0:
            break
    else:
        return True
    return False


def _shaped(kind: str, name: str, fill: Any, doc: str) -> Any:
    record = get_op(f"rng_{kind}")

    @makes
    def function(
        *sizes: Any, size: Any = None, generator: Generator | None = None, dtype: Any = None,
        device: Any = None, requires_grad: bool = False, layout: Any = None,
        pin_memory: bool = False, out: Tensor | None = None,
    ) -> Tensor:
        want: Any = sizes
        if not sizes and size is None:
            raise TypeError(located(
                f"{name}() received an invalid combination of arguments - got no size. Cure: "
                f"{name}(2, 3), or {name}(()) for a single number"
            ))
        if size is not None or not _are_sizes(sizes):
            want = shape_of(sizes if size is None else (size,), name)
            non_negative(want)
        if out is not None:
            filled: Tensor = fill(_resized(out, want), generator=generator)
            return filled
        if isinstance(dtype, DType) and dtype.is_complex:
            return _done(_complex(kind, generator, want, dtype), requires_grad)
        drawn_as = promote.Defaults.dtype if dtype is None else float_dtype(dtype, name)
        values = None
        if generator is None:
            values = drawn_at_once(record, {"shape": want, "dtype": drawn_as})
        if values is None:
            values = draw(record, generator, shape=want, dtype=drawn_as)
        return values.requires_grad_() if requires_grad else values

    function.__name__ = name
    function.__doc__ = doc
    return function


rand = _shaped("uniform", "rand", uniform_, "Uniform on [0, 1).")
randn = _shaped("normal", "randn", normal_, "Normal with mean 0 and variance 1.")


def _like(kind: str, function: Any, fill: Any, name: str) -> Any:
    record = get_op(f"rng_{kind}")

    def alone(x: Tensor) -> Tensor | None:
        """The call with a tensor alone, where it is row-major; None: like() has to see to it."""
        if Eager.elsewhere is not None or local.trace is not None or type(x) is not Tensor:
            return None
        try:
            array = x._graphc_array
        except AttributeError:  # of a trace that is over, or without dense memory
            return None
        if not array.flags.c_contiguous or array.dtype.char not in "fd":
            return None
        return drawn_at_once(record, {"shape": array.shape, "dtype": x.dtype})

    @makes_like
    def like(
        input: Tensor, *, dtype: Any = None, device: Any = None, requires_grad: bool = False,
        generator: Generator | None = None, layout: Any = None, memory_format: Any = None,
        pin_memory: bool = False,
    ) -> Tensor:
        kind = check_dtype(dtype) or input.dtype
        if input.is_contiguous():
            drawn = function(shape(input), dtype=kind, generator=generator)
        else:  # in the order of memory, and normal numbers in pairs then
            memory = empty_like(input, dtype=kind, memory_format=memory_format)
            drawn = fill(memory, generator=generator)
        return _done(drawn, requires_grad)

    like.__name__ = name
    like.__doc__ = f"{name}: the shape and dtype of `input`."
    like.__dict__["quick"] = alone
    return like


rand_like = _like("uniform", rand, uniform_, "rand_like")
randn_like = _like("normal", randn, normal_, "randn_like")


_RANDINT = get_op("rng_randint")


@makes
def randint(
    *args: Any, low: Any = None, high: Any = None, size: Any = None,
    generator: Generator | None = None, dtype: Any = None, device: Any = None,
    requires_grad: bool = False, layout: Any = None, pin_memory: bool = False,
    out: Tensor | None = None,
) -> Tensor:
    """randint([low=0,] high, size): integers on [low, high)."""
    given = list(args)
    if size is None:
        if not given or not isinstance(given[-1], (tuple, list)):
            raise TypeError(located(
                "randint() received an invalid combination of arguments: size must be a tuple"
            ))
        size = given.pop()
    if len(given) == 2:
        low, high = given
    elif len(given) == 1:
        low, high = (given[0], high) if high is not None else (low, given[0])
    if high is None:
        raise TypeError(located(
            "randint() received an invalid combination of arguments: high is missing. Cure: "
            "torch.randint(high, size)"
        ))
    return _integers(
        0 if low is None else int(low), int(high), shape_of((size,), "randint"), generator,
        check_dtype(dtype) or dtypes.i64, requires_grad, out,
    )


def _integers(
    low: int, high: int, size: Any, generator: Generator | None, dtype: Any,
    requires_grad: bool = False, out: Tensor | None = None,
) -> Tensor:
    if low >= high:
        raise RuntimeError(located(
            f"random_ expects 'from' to be less than 'to', but got from={low} >= to={high}"
        ))
    non_negative(size)
    if out is not None:
        return random_(_resized(out, size), low, high, generator=generator)
    kind = dtypes.i64 if dtype is dtypes.bool_ else dtype
    attrs = {"shape": size, "low": low, "high": high, "dtype": kind}
    drawn = drawn_at_once(_RANDINT, attrs) if generator is None else None
    if drawn is None:
        drawn = draw(_RANDINT, generator, **attrs)
    return _done(promote.cast(drawn, dtype), requires_grad)


@makes_like
def randint_like(
    input: Tensor, low: int, high: int | None = None, *, dtype: Any = None, **kwargs: Any
) -> Tensor:
    """randint with the shape and dtype of `input`."""
    if high is None:
        low, high = 0, low
    kind = check_dtype(dtype) or input.dtype
    if input.is_contiguous():
        return _integers(low, high, shape(input), None, kind)
    return random_(empty_like(input, dtype=kind), low, high)


@makes
def randperm(
    n: int, *, generator: Generator | None = None, dtype: Any = None, device: Any = None,
    requires_grad: bool = False, layout: Any = None, pin_memory: bool = False,
    out: Tensor | None = None,
) -> Tensor:
    """A random order of 0 .. n-1."""
    if n < 0:
        raise RuntimeError(located(f"n must be non-negative, got {n}"))
    order = draw("permutation", generator, n=int(n))
    return _done(promote.cast(order, check_dtype(dtype) or dtypes.i64), requires_grad, out)


def normal(
    mean: Any = 0.0, std: Any = 1.0, size: Any = None, *, device: Any = None, **kwargs: Any
) -> Tensor:
    """Normal numbers; mean and std are numbers (with `size`) or tensors, beside which they lie."""
    around = next((value for value in (mean, std) if isinstance(value, Tensor)), None)
    if around is not None:
        return beside(lambda _: _normal(mean, std, size, **kwargs))(around)
    return makes(_normal)(mean, std, size, device=device, **kwargs)


def _normal(
    mean: Any, std: Any, size: Any, *, generator: Generator | None = None,
    dtype: Any = None, device: Any = None, requires_grad: bool = False, layout: Any = None,
    pin_memory: bool = False, out: Tensor | None = None,
) -> Tensor:
    """Normal numbers; mean and std are numbers (with `size`) or tensors."""
    if isinstance(mean, Tensor) or isinstance(std, Tensor):
        return _done(_normal_around(mean, std, generator), requires_grad, out, warns=True)
    if size is None:
        raise TypeError(located("normal() of two numbers needs a size"))
    if std < 0:
        raise RuntimeError(located(f"normal expects std >= 0.0, but found std {std}"))
    sizes = shape_of((size,), "normal")
    if out is not None:
        return normal_(_resized(out, sizes), mean, std, generator=generator)
    kind = float_dtype(dtype, "normal")
    return _done(normals(sizes, kind, mean, std, generator), requires_grad)


def _normal_around(mean: Any, std: Any, generator: Generator | None) -> Tensor:
    tensors = [v for v in (mean, std) if isinstance(v, Tensor)]
    sizes = broadcast_sizes(*(shape(v) for v in tensors))
    kind = promote.result_type(*tensors)
    if isinstance(std, Tensor):
        if not kind.is_float:
            raise RuntimeError(located(f"normal expects a float std, but found {std.dtype}"))
        fits = P.ge(std, 0)  # NaN is none either
        if local.trace is not None:
            spread = ensured(
                std.detach(), fits, "RuntimeError: normal expects all elements of std >= 0.0"
            )
        elif not bool(fits.all()):
            raise RuntimeError(located("normal expects all elements of std >= 0.0"))
        else:
            spread = std
        return _without_gradient(
            P.add(P.mul(normals(sizes, kind, 0.0, 1.0, generator), spread), mean), tensors
        )
    if std < 0:
        raise RuntimeError(located(f"normal expects std >= 0.0, but found std {std}"))
    return _without_gradient(P.add(normals(sizes, kind, 0.0, std, generator), mean), tensors)


def _without_gradient(drawn: Tensor, parameters: list[Tensor]) -> Tensor:
    """Draws do not differentiate: the parameters' gradients are zero, as in torch."""
    result = drawn.detach()
    for parameter in parameters:
        if requires_grad(parameter):
            result = P.where(promote.operand(True, dtypes.bool_), result, parameter)
    return result


@beside
def bernoulli(
    input: Tensor, p: float | None = None, *, generator: Generator | None = None,
    out: Tensor | None = None,
) -> Tensor:
    """1 with the probabilities in `input` (or p everywhere), else 0."""
    if p is not None:
        check_probability(p)
        values = draw("bernoulli", generator, shape=shape(input), p=float(p), dtype=input.dtype)
        return _done(values, False, out)
    if out is not None:
        check_apart(out, input, whole=False)
    if not input.dtype.is_float:
        raise NotImplementedError(located(
            f"\"bernoulli_tensor_cpu_p_\" not implemented for '{promote._name(input.dtype)}'"
        ))
    few = _kept_of_few(input, generator)
    if few is not None:
        return _done(few, False, out)
    chances = checked_probabilities(input)
    kind = dtypes.f64 if input.dtype is dtypes.f64 else dtypes.f32
    u = draw("uniform", generator, shape=shape(input), dtype=kind)
    found = promote.cast(P.lt(u, promote.cast(chances, kind)), input.dtype)
    return _done(flat_in(input, found), False, out)


_FEW_KEPT = 64  # probabilities that Python has looked at before a ufunc has begun


def _kept_of_few(chances: Tensor, generator: Generator | None) -> Tensor | None:
    """bernoulli() of few probabilities; None: not so plain, or one of them is none."""
    if not is_unwatched() or Eager.elsewhere is not None or chances._graphc_trace is not None or (
        local.grad and requires_grad(chances)
    ):
        return None
    array = chances._graphc_array
    if array.dtype.char not in "fd" or array.size > _FEW_KEPT or not array.flags.c_contiguous:
        return None
    known = array.ravel().tolist()
    if not known or not (min(known) >= 0 and max(known) <= 1 and sum(known) >= 0):  # or NaN
        return None
    drawn = few_drawn("rng_uniform", array.shape, chances.dtype, generator)
    if drawn is None:
        u = draw("uniform", generator, shape=array.shape, dtype=chances.dtype)
        drawn = u._graphc_array
    return from_array(np.less(drawn, array, np.empty(array.shape, array.dtype)))


@beside
def multinomial(
    input: Tensor, num_samples: int, replacement: bool = False, *,
    generator: Generator | None = None, out: Tensor | None = None,
) -> Tensor:
    """Indices drawn with the (unnormalised) probabilities in each row."""
    if num_samples == 1 and out is None:
        few = _winner_of_few(input, generator)
        if few is not None:
            return few
    if out is not None and out.dtype is not dtypes.i64:
        raise RuntimeError(located(
            f"multinomial expects Long tensor out, got: {promote._name(out.dtype)}"
        ))
    if input.ndim not in (1, 2):
        raise RuntimeError(located("prob_dist must be 1 or 2 dim"))
    if not input.dtype.is_float:
        raise RuntimeError(located(
            "multinomial only supports floating-point dtypes for input, got: "
            f"{promote._name(input.dtype)}"
        ))
    size = shape(input)[-1]
    if num_samples <= 0:
        raise RuntimeError(located("cannot sample n_sample <= 0 samples"))
    if not replacement and isinstance(size, int) and num_samples > size:
        raise RuntimeError(located(
            "cannot sample n_sample > prob_dist.size(-1) samples without replacement"
        ))
    if isinstance(size, int) and size > _MOST_CATEGORIES:
        raise RuntimeError(located("number of categories cannot exceed 2^24"))
    weights = input.detach()
    if local.trace is None:
        _check_weights(weights, num_samples, replacement)
    else:
        weights = _ensured_weights(weights, num_samples == 1 or not replacement)
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


def _winner_of_few(input: Tensor, generator: Generator | None) -> Tensor | None:
    """multinomial() of one from a row of few weights; None: not so plain, or one of them is none,
    and nothing was drawn."""
    if not is_unwatched() or Eager.elsewhere is not None or input._graphc_trace is not None:
        return None
    array = input._graphc_array
    if (
        array.dtype.char not in "fd" or array.size > _FEW or array.ndim not in (1, 2)
        or array.size != array.shape[-1] or not array.flags.c_contiguous
    ):
        return None
    weights = array.ravel().tolist()
    if not all(0 <= w < _LARGE for w in weights) or not any(weights):
        return None
    clocks = few_drawn("rng_exponential", array.shape, input.dtype, generator)
    if clocks is None:
        return None
    if 0.0 in clocks.ravel().tolist():  # of which NumPy would warn
        with np.errstate(all="ignore"):
            speed = np.divide(array, clocks)
    else:
        speed = np.divide(array, clocks)
    return from_array(speed.argmax(-1, keepdims=True))


_MOST_CATEGORIES = 2**24
_FEW = 16
_LARGE = 2.0**64  # over the least clock but 0, 2^-53, is no infinity
_NOT_WEIGHTS = "probability tensor contains either `inf`, `nan` or element < 0"
_NOT_WEIGHT = (
    "invalid multinomial distribution (encountering probability entry < 0, infinite or nan)"
)
_NO_WEIGHT = "invalid multinomial distribution (sum of probabilities <= 0)"


def _check_weights(weights: Tensor, count: int, replacement: bool) -> None:
    array = weights._graphc_array
    if is_unwatched() and type(array) is np.ndarray and array.dtype.char in "fd" and array.size:
        if array.size <= _FEW and array.size == array.shape[-1]:  # Python is done before NumPy
            values = array.ravel().tolist()
            if all(0 <= v < np.inf for v in values) and any(values):
                return
        least, most = array.min(), array.max()  # NaN is neither of what follows
        if least >= 0 and 0 < most < np.inf and (
            array.size == array.shape[-1] or bool(array.any(-1).all())
        ):
            return
    if count == 1 or not replacement:
        if not bool(P.logical_and(P.ge(weights, 0), P.isfinite(weights)).all()):
            raise RuntimeError(located(_NOT_WEIGHTS))
    elif not bool(P.logical_and(P.ge(weights, 0), P.isfinite(weights)).all()):
        raise RuntimeError(located(_NOT_WEIGHT))
    if bool(P.eq(weights.sum(-1), 0).any()):
        raise RuntimeError(located(_NO_WEIGHT))


def _ensured_weights(weights: Tensor, at_once: bool) -> Tensor:
    """_check_weights() by the graph."""
    fit = P.logical_and(P.ge(weights, 0), P.isfinite(weights))
    weights = ensured(weights, fit, "RuntimeError: " + (_NOT_WEIGHTS if at_once else _NOT_WEIGHT))
    return ensured(weights, P.ne(weights.sum(-1), 0), f"RuntimeError: {_NO_WEIGHT}")


def _with_replacement(
    weights: Tensor, count: int, generator: Generator | None
) -> Tensor:
    along = weights.ndim - 1
    totals = apply(ops.cumsum, weights, dim=along)
    last = shape(weights)[-1]
    sums = slice_dim(totals, along, last - 1, last)
    edges, place = P.div(totals, sums), place_at(weights)
    if local.trace is None:  # draws are on the host, and float64, which a device may lack
        edges = moved(edges, None)
    u = draw("uniform", generator, shape=(*shape(weights)[:-1], count), dtype=dtypes.f64)
    found = searchsorted(promote.cast(edges, dtypes.f64), u, right=True)
    chosen: Tensor = P.clamp(found, max=public_size(last - 1))
    return chosen if local.trace is not None else moved(chosen, place)


METHODS = {
    "uniform_": uniform_, "normal_": normal_, "exponential_": exponential_,
    "bernoulli_": bernoulli_, "bernoulli": bernoulli, "random_": random_, "cauchy_": cauchy_,
    "log_normal_": log_normal_, "geometric_": geometric_, "multinomial": multinomial,
}
