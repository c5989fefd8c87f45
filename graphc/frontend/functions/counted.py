"""mask.sum(): how many are true, counted where they lie; cast to int64 first, they are eight times
the memory."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar, cast

import numpy as np

from ..context import local
from ..eager import _wrap
from ..tensor import Tensor
from ..values import Eager

F = TypeVar("F", bound=Callable[..., Any])


def counts_truths(function: F) -> F:
    """sum(), which of a mask alone is a count."""

    @wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        if len(args) == 1 and not kwargs and local.trace is None and type(args[0]) is Tensor:
            try:
                array = args[0]._graphc_array
            except AttributeError:  # of a trace that is over, or without dense memory
                return function(*args)
            if array.dtype.char == "?" and local.counted is None and (
                Eager.prepare is not None and Eager.elsewhere is None
            ):
                return _wrap(np.array(np.count_nonzero(array)))
        return function(*args, **kwargs)

    return cast(F, wrapper)
