"""torch._foreach_*: one function over lists of tensors, which hand-written optimizers use."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ..tensor import Tensor
from .norms import vector_norm

_UNARY = "abs ceil cos erf exp expm1 floor log log10 log1p log2 neg reciprocal round rsqrt "\
         "sigmoid sign sin sqrt tan tanh trunc".split()
_BINARY = "add sub mul div pow maximum minimum clamp_max clamp_min".split()


def _each(function: Callable[..., Any], name: str) -> Callable[..., Any]:
    def foreach(tensors: Sequence[Tensor], *args: Any, **kwargs: Any) -> Any:
        results = []
        for i, x in enumerate(tensors):
            own = [a[i] if isinstance(a, (list, tuple)) else a for a in args]
            results.append(function(x, *own, **kwargs))
        return tensors if name.endswith("_") else tuple(results)

    foreach.__name__ = f"_foreach_{name}"
    foreach.__doc__ = f"{name}() of each tensor; list arguments are taken element by element."
    return foreach


def _norm(x: Tensor, ord: Any = 2, dtype: Any = None) -> Tensor:
    return vector_norm(x, ord, dtype=dtype)


def _pointwise(name: str) -> Callable[..., Any]:
    """addcmul and addcdiv take `value` (or a list of them) by position."""

    def call(x: Tensor, first: Tensor, second: Tensor, value: Any = 1) -> Any:
        return getattr(x, name)(first, second, value=value)

    return call


def _written(name: str) -> Callable[..., Any]:
    """In place, of what a single tensor has no such method for (maximum)."""

    def call(x: Tensor, *args: Any) -> Any:
        return x.copy_(getattr(x, name)(*args))

    return call


def table() -> dict[str, Callable[..., Any]]:
    """_foreach_add, _foreach_add_, ... once the methods are attached to Tensor."""
    found: dict[str, Callable[..., Any]] = {}
    for name in (*_UNARY, *_BINARY, "lerp"):
        for spelled in (name, f"{name}_"):
            method = getattr(Tensor, spelled, None) or _written(name)
            found[f"_foreach_{spelled}"] = _each(method, spelled)
    for name in ("zero_", "copy_"):
        found[f"_foreach_{name}"] = _each(getattr(Tensor, name), name)
    for name in ("addcmul", "addcdiv"):
        for spelled in (name, f"{name}_"):
            found[f"_foreach_{spelled}"] = _each(_pointwise(spelled), spelled)
    found["_foreach_norm"] = _each(_norm, "norm")
    return found
