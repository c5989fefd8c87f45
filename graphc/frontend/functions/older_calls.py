"""Calls of PyTorch's first releases, which it still takes: numbers before what they multiply.

    add(input, alpha, other)    addcmul(input, value, tensor1, tensor2)
    addmm(beta, input, alpha, mat1, mat2)    addmm(beta, input, mat1, mat2)
"""

from __future__ import annotations

from typing import Any

from ..errors import kind_name, located, warn_user
from ..promote import is_number
from ..tensor import Tensor

_warned: set[str] = set()


def factor_first(name: str, word: str, given: tuple[Any, ...], count: int) -> tuple[Any, ...]:
    """(factor, tensors) of a call with the number first and `count` arguments after it.

    Raises TypeError for any other arguments.
    """
    if len(given) != count + 1 or not is_number(given[0]):
        kinds = ", ".join(kind_name(value) for value in given)
        raise TypeError(located(
            f"{name}() received an invalid combination of arguments - got (Tensor, {kinds}). Cure: "
            f"{name}(input, ..., {word}=number)"
        ))
    _warn(name, word)
    return given


def scales_first(name: str, input: Any, given: tuple[Any, ...]) -> tuple[Any, ...] | None:
    """(input, tensors, beta, alpha) of such a call of a scaled sum; None of another one."""
    # the method has the tensor first: x.addmm(beta, alpha, mat1, mat2)
    values = (input, *given)
    numbers = [value for value in values if is_number(value)]
    tensors = [value for value in values if isinstance(value, Tensor)]
    if not numbers or len(numbers) > 2 or len(tensors) != 3 or len(values) > 5:
        return None
    if isinstance(values[-1], Tensor) and isinstance(values[-2], Tensor):
        _warn(name, "beta and alpha")
        return tensors[0], tuple(tensors[1:]), numbers[0], (*numbers, 1)[1]
    return None


def _warn(name: str, word: str) -> None:
    if name not in _warned:
        _warned.add(name)
        warn_user(
            f"This overload of {name} is deprecated: numbers before the tensors that they "
            f"multiply. Consider passing {word} by name"
        )
