"""Whether tensors lie on the CPU, where other devices have been used: asked at every short way."""

from __future__ import annotations

from typing import Any

from .storage import LOOSE
from .values import Eager


def stays(tensor: Any) -> bool:
    """Whether a user has placed a tensor on the CPU, which a number does not say."""
    return not tensor._graphc_storage.away and tensor._graphc_array.ndim > 0


def is_near(x: Any) -> bool:
    """Whether what is done to a tensor alone is done on the CPU, and its result lies there."""
    return Eager.elsewhere is None or not x._graphc_storage.away


def are_near(x: Any, y: Any) -> bool:
    """The same of two tensors, one of which may be a number that graphc's own code made."""
    if Eager.elsewhere is None:
        return True
    away = x._graphc_storage.away | y._graphc_storage.away
    return not away or (away == LOOSE and (stays(x) or stays(y)))
