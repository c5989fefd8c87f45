"""Complex parameters: every rule but SGD's treats the two halves of a number by themselves."""

from __future__ import annotations

from ..frontend import functions as T
from ..frontend.tensor import Tensor


def real_parts(*tensors: Tensor) -> list[Tensor]:
    """The tensors; complex ones as real views [..., 2] of the same memory, written through."""
    return [T.view_as_real(each) if each.is_complex() else each for each in tensors]
