"""Parameters as one vector, and back."""

from __future__ import annotations

from collections.abc import Iterable

from ...frontend import functions as T
from ...frontend.tensor import Tensor


def parameters_to_vector(parameters: Iterable[Tensor]) -> Tensor:
    """All elements of the parameters, one after another."""
    return T.cat([parameter.reshape(-1) for parameter in parameters])


def vector_to_parameters(vec: Tensor, parameters: Iterable[Tensor]) -> None:
    """Make the parameters views of consecutive parts of a vector."""
    if not isinstance(vec, Tensor):
        raise TypeError(f"expected torch.Tensor, but got: {type(vec).__name__}")
    position = 0
    for parameter in parameters:
        count = parameter.numel()
        parameter.data = vec[position : position + count].view_as(parameter).data
        position += count
