"""x.index_select(dim, positions) where it is NumPy's own taking of rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

from ..context import local
from ..eager import _wrap
from ..history import requires_grad
from ..near import is_near
from ..tensor import Parameter, Tensor
from ..values import Eager
from ..wrapped import wraps
from ..written_at import is_negative

F = TypeVar("F", bound=Callable[..., Any])

_PLAIN = frozenset({Tensor, Parameter})


def rows_at(x: Any, dim: Any, index: Any) -> Tensor | None:
    """The rows; None: not so plain, or something is wrong, which the function then says."""
    if (
        local.trace is not None or local.counted is not None or Eager.prepare is None
        or type(x) not in _PLAIN or type(index) is not Tensor or type(dim) is not int
    ):
        return None
    try:
        array, places = x._graphc_array, index._graphc_array
    except AttributeError:  # without dense memory
        return None
    if (
        places.ndim != 1 or places.dtype.char != "l" or not places.size
        or not -array.ndim <= dim < array.ndim or not (is_near(x) and is_near(index))
        or (local.grad and requires_grad(x))
    ):
        return None
    if is_negative(places):
        return None
    try:
        return _wrap(array.take(places, dim))
    except IndexError:
        return None


def rows_first(function: F) -> F:
    """index_select() that looks whether it is so plain."""

    @wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        if len(args) == 3 and not kwargs and (found := rows_at(*args)) is not None:
            return found
        return function(*args, **kwargs)

    return cast(F, wrapper)
