"""torch.masked: reductions and normalizations of the elements where a mask is True."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import graphc
from graphc import Tensor
from graphc.frontend.autocast import all_listed

__all__ = [
    "amax", "amin", "argmax", "argmin", "cumprod", "cumsum", "log_softmax", "logaddexp",
    "logsumexp", "mean", "median", "norm", "normalize", "prod", "softmax", "softmin", "std", "sum",
    "var",
]


def _mask_of(x: Tensor, mask: Tensor | None) -> Tensor | None:
    if mask is None:
        return None
    if mask.ndim > x.ndim:
        raise IndexError("_input_mask expected broadcastable mask (got mask dimensionality higher "
                         f"than of the input: {mask.ndim} > {x.ndim})")
    return mask.to(graphc.bool).expand(x.shape)


def _filled(x: Tensor, mask: Tensor | None, value: Any, dtype: Any = None) -> Tensor:
    """The input (cast), with `value` where the mask is False."""
    x = x if dtype is None else x.to(dtype)
    truth = _mask_of(x, mask)
    if truth is None:
        return x
    return graphc.where(truth, x, graphc.tensor(value, dtype=x.dtype))


def _dims(x: Tensor, dim: Any) -> tuple[int, ...]:
    """Distinct non-negative dims; None is all of them."""
    given = tuple(dim) if isinstance(dim, (tuple, list)) else (dim,)
    if dim is None or not given:
        given = tuple(range(x.ndim))
    rank = max(x.ndim, 1)
    found = []
    for d in given:
        if not -rank <= d < rank:
            raise IndexError(f"Dimension out of range (expected to be in range of [{-rank}, "
                             f"{rank - 1}], but got {d})")
        if d % rank in found:
            raise RuntimeError(f"dim={d % rank} appears multiple times in the list of dims")
        found.append(d % rank)
    return tuple(found)


def _whole(x: Tensor) -> Any:
    """The dtype that integers are added up in."""
    small = (graphc.uint8, graphc.bool, graphc.int8, graphc.int16, graphc.int32)
    return graphc.int64 if x.dtype in small else x.dtype


def _lowest(x: Tensor, name: str, sign: int) -> Any:
    """The number that never wins: the smallest (sign -1) or largest of the dtype."""
    if x.dtype is graphc.bool:
        raise NotImplementedError(f"identity of {name} on torch.bool input")
    if x.dtype.is_floating_point:
        return sign * math.inf
    info = graphc.iinfo(x.dtype)
    return info.max if sign > 0 else info.min


def _of_strips(x: Tensor, dim: Any, keepdim: Any, reduce: Callable[..., Tensor]) -> Tensor:
    """Reduce over dims one after another, from the last."""
    if x.ndim == 0:
        return reduce(x, 0, False)
    for d in sorted(_dims(x, dim), reverse=True):
        x = reduce(x, d, bool(keepdim))
    return x


def sum(
    input: Tensor, dim: Any = None, *, keepdim: bool | None = False, dtype: Any = None,
    mask: Tensor | None = None,
) -> Tensor:
    """The sum over `dim`; 0 where nothing is left."""
    x = _filled(input, mask, 0, dtype or _whole(input))
    return x.sum(_dims(x, dim), keepdim=bool(keepdim)) if x.ndim else x.clone()


def prod(
    input: Tensor, dim: Any = None, *, keepdim: bool | None = False, dtype: Any = None,
    mask: Tensor | None = None,
) -> Tensor:
    """The product over `dim`; 1 where nothing is left."""
    x = _filled(input, mask, 1, dtype or _whole(input))
    return _of_strips(x, dim, keepdim, lambda x, d, keep: x.prod(d, keepdim=keep))


def cumsum(
    input: Tensor, dim: int, *, dtype: Any = None, mask: Tensor | None = None
) -> Tensor:
    """The running sum along `dim`."""
    x = _filled(input, mask, 0, dtype)
    return x.cumsum(dim, dtype=x.dtype)


def cumprod(
    input: Tensor, dim: int, *, dtype: Any = None, mask: Tensor | None = None
) -> Tensor:
    """The running product along `dim`."""
    x = _filled(input, mask, 1, dtype)
    return x.cumprod(dim, dtype=x.dtype)


def _extreme(name: str, sign: int) -> Callable[..., Tensor]:
    def function(
        input: Tensor, dim: Any = None, *, keepdim: bool | None = False, dtype: Any = None,
        mask: Tensor | None = None,
    ) -> Tensor:
        x = input if dtype is None else input.to(dtype)
        x = _filled(x, mask, _lowest(x, name, sign))
        found: Tensor = getattr(x, name)(_dims(x, dim) if x.ndim else (), keepdim=bool(keepdim))
        return found

    function.__name__ = name
    function.__doc__ = f"{name} over `dim` where the mask is True."
    return function


amax = _extreme("amax", -1)
amin = _extreme("amin", 1)


def _position(name: str, sign: int) -> Callable[..., Tensor]:
    def function(
        input: Tensor, dim: int | None = None, *, keepdim: bool | None = False, dtype: Any = None,
        mask: Tensor | None = None,
    ) -> Tensor:
        x = input if dtype is None else input.to(dtype)
        x = _filled(x, mask, _lowest(x, name, sign))
        found: Tensor = getattr(x, name)(dim, bool(keepdim))
        return found.to(x.dtype)

    function.__name__ = name
    function.__doc__ = f"{name} over `dim` where the mask is True, in the input's dtype."
    return function


argmax = _position("argmax", -1)
argmin = _position("argmin", 1)


def _count(x: Tensor, mask: Tensor | None, dim: Any, keepdim: Any) -> Tensor:
    """How many elements of each result take part, in int64."""
    ones = graphc.ones(x.shape, dtype=graphc.int64, device=x.device)
    return sum(ones, dim, keepdim=keepdim, mask=mask)


def mean(
    input: Tensor, dim: Any = None, *, keepdim: bool | None = False, dtype: Any = None,
    mask: Tensor | None = None,
) -> Tensor:
    """The mean over `dim`; NaN where nothing is left."""
    kind = dtype or input.dtype
    if not (kind.is_floating_point or kind.is_complex):
        raise ValueError(
            "mean(): Could not infer output dtype. Input dtype must be either a floating point or "
            f"complex dtype. Got: {kind}"
        )
    x = input.to(kind)
    return sum(x, dim, keepdim=keepdim, mask=mask) / _count(x, mask, dim, keepdim)


def median(
    input: Tensor, dim: int = -1, *, keepdim: bool = False, dtype: Any = None,
    mask: Tensor | None = None,
) -> Tensor:
    """The median along `dim` (the lower of two); NaN where nothing is left."""
    x = input if dtype is None else input.to(dtype)
    truth = _mask_of(x, mask)
    if truth is None:
        return x.nanmedian(dim, keepdim)[0]
    if x.dtype.is_floating_point:
        return _filled(x, mask, math.nan).nanmedian(dim, keepdim)[0]
    if bool((~truth.any(dim)).any()):
        raise ValueError(
            "masked median expects no fully masked out rows if dtype is not floating point"
        )
    return _filled(x.double(), mask, math.nan).nanmedian(dim, keepdim)[0].to(x.dtype)


def logsumexp(
    input: Tensor, dim: Any = None, *, keepdim: bool = False, dtype: Any = None,
    mask: Tensor | None = None,
) -> Tensor:
    """log(sum(exp(x))) over `dim`."""
    x = input if dtype is None else input.to(dtype)
    x = _filled(x, mask, -math.inf if x.dtype.is_complex else _lowest(x, "logsumexp", -1))
    return graphc.logsumexp(x, _dims(x, dim), keepdim).to(x.dtype)


def logaddexp(
    input: Tensor, other: Tensor, *, dtype: Any = None, input_mask: Tensor | None = None,
    other_mask: Tensor | None = None,
) -> Tensor:
    """log(exp(a) + exp(b)), without a or b where its mask is False."""
    a = _filled(input, input_mask, -math.inf, dtype)
    b = _filled(other, other_mask, -math.inf, dtype)
    return graphc.logaddexp(a, b)


def norm(
    input: Tensor, ord: float | None = 2.0, dim: Any = None, *, keepdim: bool | None = False,
    dtype: Any = None, mask: Tensor | None = None,
) -> Tensor:
    """The vector norm over `dim`."""
    order = 2.0 if ord is None else float(ord)
    x = input if dtype is None else input.to(dtype)
    if not (x.dtype.is_floating_point or x.dtype.is_complex):
        return graphc.linalg.vector_norm(x, order)  # which refuses it
    x = _filled(x, mask, math.inf if order < 0 else 0.0)
    return graphc.linalg.vector_norm(x, order, _dims(x, dim), bool(keepdim))


def var(
    input: Tensor, dim: Any = None, unbiased: bool | None = None, *,
    correction: float | None = None, keepdim: bool | None = False, dtype: Any = None,
    mask: Tensor | None = None,
) -> Tensor:
    """The variance over `dim`; NaN where too little is left."""
    if unbiased is not None and correction is not None:
        raise ValueError("Only one of unbiased and correction may be given")
    lost = correction if correction is not None else int(unbiased is not False)
    x = input if dtype is None else input.to(dtype)
    if not (x.dtype.is_floating_point or x.dtype.is_complex):
        x = x.to(graphc.float32)
    count = _count(x, mask, dim, True)
    apart = x - sum(x, dim, keepdim=True, mask=mask) / count
    squares = apart * apart.conj() if x.dtype.is_complex else apart.square()
    total = sum(squares, dim, keepdim=keepdim, mask=mask)
    left = count if keepdim or not x.ndim else count.reshape(total.shape)
    found: Tensor = (total / graphc.clamp(left - lost, min=0)).to(total.dtype)
    return found


def std(
    input: Tensor, dim: Any = None, unbiased: bool | None = None, *,
    correction: int | None = None, keepdim: bool | None = False, dtype: Any = None,
    mask: Tensor | None = None,
) -> Tensor:
    """The standard deviation over `dim`."""
    return var(
        input, dim, unbiased, correction=correction, keepdim=keepdim, dtype=dtype, mask=mask
    ).sqrt()


def softmax(
    input: Tensor, dim: int, *, dtype: Any = None, mask: Tensor | None = None
) -> Tensor:
    """softmax along `dim`; masked elements get 0, rows without any NaN."""
    x = input if dtype is None else input.to(dtype)
    return graphc.softmax(_filled(x, mask, _lowest(x, "amax", -1)), dim)


def log_softmax(
    input: Tensor, dim: int, *, dtype: Any = None, mask: Tensor | None = None
) -> Tensor:
    """log_softmax along `dim`."""
    x = input if dtype is None else input.to(dtype)
    return graphc.log_softmax(_filled(x, mask, _lowest(x, "amax", -1)), dim)


def softmin(
    input: Tensor, dim: int, *, dtype: Any = None, mask: Tensor | None = None
) -> Tensor:
    """softmax of -x along `dim`."""
    x = input if dtype is None else input.to(dtype)
    return graphc.softmax(-_filled(x, mask, _lowest(x, "amin", 1)), dim)


def normalize(
    input: Tensor, ord: float, dim: int, *, eps: float = 1e-12, dtype: Any = None,
    mask: Tensor | None = None,
) -> Tensor:
    """x divided by its norm along `dim`, which is at least eps; masked elements are 0."""
    x = input if dtype is None else input.to(dtype)
    size = norm(x, ord, dim, keepdim=True, mask=mask)
    return _filled(x, mask, 0) / graphc.clamp(size, min=eps)

globals().update(all_listed(globals(), "masked_"))
