"""Causal biases as masks."""

from __future__ import annotations

from ...frontend import functions as T
from ...frontend.tensor import Tensor


def causal_upper_left(*size: int) -> Tensor:
    """A bool mask, True where a query may look: the diagonal starts in the upper left corner."""
    rows, columns = size
    return T.ones((rows, columns), dtype=T.bool).tril()


def causal_lower_right(*size: int) -> Tensor:
    """The same with the diagonal ending in the lower right corner."""
    rows, columns = size
    return T.ones((rows, columns), dtype=T.bool).tril(columns - rows)
