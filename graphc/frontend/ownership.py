"""Results that have memory of their own, however the function makes them.

A function of several steps may end in a view of what it made on the way, or, where there is
nothing to do, give its argument back. To the caller both must look as PyTorch's: a new tensor that
is no view.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

from graphc.ir import ops

from .dispatch import apply
from .tensor import Tensor, current
from .wrapped import wraps

F = TypeVar("F", bound=Callable[..., Any])


def owns_result(function: F) -> F:
    """Decorator: the tensors that the function gives share no memory with its arguments, and are
    nobody's views."""

    @wraps(function)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        result = function(*args, **kwargs)
        if isinstance(result, Tensor):
            return own(result, (*args, *kwargs.values()))
        given = (*args, *kwargs.values())
        parts = [own(part, given) if isinstance(part, Tensor) else part for part in result]
        return type(result)(*parts) if hasattr(result, "_fields") else type(result)(parts)

    return cast(F, wrapped)


def own(result: Tensor, given: tuple[Any, ...]) -> Tensor:
    """`result`, or a copy of it where it shares memory with one of the `given` arguments."""
    state = current(result)
    if state._base is None and not any(result is value for value in given):
        return result
    if any(_shares(state, value) for value in given):
        copied: Tensor = apply(ops.cast, result, dtype=result.dtype)
        return copied
    state._base, state._graphc_chain, state._graphc_no_grad_view = None, (), False
    state._graphc_several = None
    return result


def _shares(state: Tensor, value: Any) -> bool:
    if isinstance(value, (tuple, list)):
        return any(_shares(state, part) for part in value)
    return (
        isinstance(value, Tensor)
        and current(value)._graphc_storage.root is state._graphc_storage.root
    )
