"""torch._check and its kin: an error where a condition does not hold."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

from graphc.ir import dtypes

from ..tensor import Tensor

Message = Callable[[], Any] | None

_UNEXPLAINED = (
    "Expected cond to be True, but got False. (Could this error message be improved? If so, "
    "please report an enhancement request to PyTorch.)"
)

_OF_TENSOR = (
    "a Tensor. For tensor conditions, use torch._check_tensor_all() to assert that all elements "
    "are true."
)


def check_with(error_type: type[Exception], cond: Any, message: Message) -> None:
    """Raise error_type(str(message())) unless cond, a bool, is True."""
    if not isinstance(cond, bool):
        kind = _OF_TENSOR if isinstance(cond, Tensor) else type(cond)
        raise TypeError(f"cond must be a bool, but got {kind}")
    if cond:
        return
    if not issubclass(error_type, Exception) or issubclass(error_type, Warning):
        raise AssertionError(
            f"error_type must be a subclass of Exception but not Warning, got {error_type}"
        )
    if message is not None and not callable(message):
        raise TypeError("message must be a callable")
    raise error_type(_UNEXPLAINED if message is None else str(message()))


def check_tensor_all_with(
    error_type: type[Exception], cond: Any, message: Message = None
) -> None:
    """Raise error_type unless every element of a Tensor of bools is True; its value is needed."""
    if not isinstance(cond, Tensor):
        raise TypeError(f"cond must be a tensor, but got {type(cond)}")
    if cond.dtype is not dtypes.bool_:
        raise TypeError(f"cond tensor must have dtype torch.bool, but got {cond.dtype}")
    check_with(error_type, bool(cond.all().item()), message)


def check_is_size(i: Any, message: Message = None, *, max: Any = None) -> None:
    """Raise RuntimeError unless 0 <= i, and i <= max where that is given."""
    warnings.warn(
        "_check_is_size will be removed in a future PyTorch release along with "
        "guard_size_oblivious.     Use _check(i >= 0) instead.", FutureWarning, stacklevel=2,
    )
    check_with(RuntimeError, i >= 0, message)
    if max is not None:
        check_with(RuntimeError, i <= max, message)


def check(cond: Any, message: Message = None) -> None:
    """Raise RuntimeError(str(message())) unless cond, a bool, is True."""
    check_with(RuntimeError, cond, message)


def check_index(cond: Any, message: Message = None) -> None:
    """Raise IndexError unless cond is True."""
    check_with(IndexError, cond, message)


def check_value(cond: Any, message: Message = None) -> None:
    """Raise ValueError unless cond is True."""
    check_with(ValueError, cond, message)


def check_type(cond: Any, message: Message = None) -> None:
    """Raise TypeError unless cond is True."""
    check_with(TypeError, cond, message)


def check_not_implemented(cond: Any, message: Message = None) -> None:
    """Raise NotImplementedError unless cond is True."""
    check_with(NotImplementedError, cond, message)


def check_tensor_all(cond: Any, message: Message = None) -> None:
    """Raise RuntimeError unless every element of a Tensor of bools is True."""
    check_tensor_all_with(RuntimeError, cond, message)


# by torch's names
NAMES = {
    f"_{function.__name__}": function for function in (
        check, check_with, check_index, check_value, check_type, check_not_implemented,
        check_tensor_all, check_tensor_all_with, check_is_size,
    )
}
