"""Which argument of a call that failed is no Tensor and should be one."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from .errors import kind_name
from .tensor import Tensor
from .wrapped import unwrapped


def not_a_tensor(
    function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any],
    method: bool = False,
) -> str | None:
    """What is wrong with the first argument that should be a Tensor; None if nothing is. Those of
    a method are counted from the one behind its tensor."""
    original = unwrapped(function)
    for i, (name, parameter) in enumerate(inspect.signature(original).parameters.items()):
        if parameter.annotation != "Tensor":
            continue
        if parameter.kind is parameter.VAR_POSITIONAL:
            given: Iterable[Any] = args[i:]
        else:
            given = args[i : i + 1] or [kwargs[name] for _ in range(name in kwargs)]
        for value in given:
            if not isinstance(value, Tensor):
                return (
                    f"argument '{name}' (position {i + (not method)}) must be Tensor, not "
                    f"{kind_name(value)}{_cure(value)}"
                )
    return None


def _cure(value: Any) -> str:
    if isinstance(value, np.ndarray):
        return ". Cure: torch.from_numpy(array), or torch.tensor(array) for a copy"
    if isinstance(value, (list, tuple, bool, int, float, complex, np.generic)):
        return ". Cure: torch.tensor(values)"
    return ""
