"""torch._foreach_*: one function over lists of tensors, which hand-written optimizers use."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ..errors import located
from ..tensor import Tensor
from .norms import vector_norm

_UNARY = "abs acos asin atan ceil cos cosh erf erfc exp expm1 floor frac lgamma log log10 log1p "\
         "log2 neg reciprocal round rsqrt sigmoid sign sin sinh sqrt tan tanh trunc".split()
_BINARY = "add sub mul div pow clamp_max clamp_min".split()
_BOUNDS = {"maximum": "clamp_min", "minimum": "clamp_max"}  # with a number for the other


def _each(function: Callable[..., Any], name: str) -> Callable[..., Any]:
    def foreach(tensors: Sequence[Tensor], *args: Any, **kwargs: Any) -> Any:
        results = []
        for a in args:
            if isinstance(a, (list, tuple)) and len(a) != len(tensors):
                raise RuntimeError(located(
                    f"_foreach_{name}(): lists must have one item for each tensor, got "
                    f"{len(tensors)} and {len(a)}"
                ))
        for i, x in enumerate(tensors):
            own = [a[i] if isinstance(a, (list, tuple)) else a for a in args]
            results.append(function(x, *own, **kwargs))
        return tensors if name.endswith("_") else tuple(results)

    foreach.__name__ = f"_foreach_{name}"
    foreach.__doc__ = f"{name}() of each tensor; list arguments are taken element by element."
    return foreach


def _norm(x: Tensor, ord: Any = 2, dtype: Any = None) -> Tensor:
    return vector_norm(x, ord, dtype=dtype)


def _powsum(x: Tensor, ord: Any = 2, dtype: Any = None) -> Tensor:
    total: Tensor = x.abs().to(dtype or x.dtype).pow(ord).sum()
    return total


def _pointwise(name: str) -> Callable[..., Any]:
    """addcmul and addcdiv take `value` by position, or one for each tensor: a list, or a vector."""

    def call(x: Tensor, first: Tensor, second: Tensor, value: Any = 1) -> Any:
        return getattr(x, name)(first, second, value=value)

    each = _each(call, name)

    def foreach(tensors: Sequence[Tensor], *args: Any, **kwargs: Any) -> Any:
        if len(args) == 3 and isinstance(args[2], Tensor):
            args = (*args[:2], args[2].tolist())
        return each(tensors, *args, **kwargs)

    foreach.__name__, foreach.__doc__ = each.__name__, each.__doc__
    return foreach


def _bound(name: str, in_place: bool) -> Callable[..., Any]:
    """maximum and minimum take numbers here."""

    def call(x: Tensor, other: Any) -> Any:
        found = getattr(x, name if isinstance(other, Tensor) else _BOUNDS[name])(other)
        return x.copy_(found) if in_place else found

    return call


def table() -> dict[str, Callable[..., Any]]:
    """_foreach_add, _foreach_add_, ... once the methods are attached to Tensor."""
    found: dict[str, Callable[..., Any]] = {}
    for name in (*_UNARY, *_BINARY, "lerp"):
        for spelled in (name, f"{name}_"):
            found[f"_foreach_{spelled}"] = _each(getattr(Tensor, spelled), spelled)
    for name in _BOUNDS:
        for spelled in (name, f"{name}_"):
            found[f"_foreach_{spelled}"] = _each(_bound(name, spelled != name), spelled)
    for name in ("zero_", "copy_", "clone", "max", "mm"):
        found[f"_foreach_{name}"] = _each(getattr(Tensor, name), name)
    for name in ("addcmul", "addcdiv"):
        for spelled in (name, f"{name}_"):
            found[f"_foreach_{spelled}"] = _pointwise(spelled)
    found["_foreach_norm"] = _each(_norm, "norm")
    found["_foreach_powsum"] = _each(_powsum, "powsum")
    return found
