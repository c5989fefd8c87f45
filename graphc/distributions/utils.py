"""torch.distributions.utils: broadcast parameters, probabilities and log-odds, lazy attributes."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from ..frontend import functions as T
from ..frontend import promote
from ..frontend.grad_mode import enable_grad
from ..frontend.tensor import Tensor

__all__ = [
    "broadcast_all", "clamp_probs", "lazy_property", "logits_to_probs", "probs_to_logits",
    "tril_matrix_to_vec", "vec_to_tril_matrix",
]

euler_constant = 0.57721566490153286060


def broadcast_all(*values: Any) -> tuple[Tensor, ...]:
    """Tensors and numbers as tensors of one shape. Raises ValueError for other types."""
    if not all(isinstance(v, Tensor) or promote.is_number(v) for v in values):
        raise ValueError(
            "Input arguments must all be instances of Number, torch.Tensor or objects "
            "implementing __torch_function__."
        )
    tensors = [v for v in values if isinstance(v, Tensor)]
    dtype = tensors[0].dtype if tensors else promote.get_default_dtype()
    device = tensors[0].device if tensors else None
    made = [
        v if isinstance(v, Tensor) else T.tensor(v, dtype=dtype, device=device) for v in values
    ]
    broadcast: tuple[Tensor, ...] = tuple(T.broadcast_tensors(*made))
    return broadcast


def _standard_normal(shape: Any, dtype: Any, device: Any) -> Tensor:
    """Normal numbers of mean 0 and variance 1."""
    return T.empty(tuple(shape), dtype=dtype, device=device).normal_()


def standard_uniform(shape: Any, dtype: Any) -> Tensor:
    """Uniform numbers on [0, 1)."""
    drawn: Tensor = T.rand(tuple(shape), dtype=dtype)
    return drawn


def _sum_rightmost(value: Any, dim: int) -> Any:
    """The sum over the last `dim` dimensions."""
    if dim == 0 or not isinstance(value, Tensor):
        return value
    return value.reshape(*tuple(value.shape)[: value.dim() - dim], -1).sum(-1)


def clamp_probs(probs: Tensor) -> Tensor:
    """Probabilities kept away from 0 and 1 by the dtype's epsilon."""
    eps = T.finfo(probs.dtype).eps
    return probs.clamp(min=eps, max=1 - eps)


def logits_to_probs(logits: Tensor, is_binary: bool = False) -> Tensor:
    """Log-odds (or unnormalised log-probabilities in the last dim) to probabilities."""
    return T.sigmoid(logits) if is_binary else T.softmax(logits, -1)


def probs_to_logits(probs: Tensor, is_binary: bool = False) -> Tensor:
    """Probabilities to log-odds (or log-probabilities)."""
    clamped = clamp_probs(probs)
    if is_binary:
        return T.log(clamped) - T.log1p(-clamped)
    logits: Tensor = T.log(clamped)
    return logits


def is_probs(probs: Any, logits: Any) -> bool:
    """Whether probs is given. Raises ValueError unless exactly one of the two is."""
    if (probs is None) == (logits is None):
        raise ValueError("Either `probs` or `logits` must be specified, but not both.")
    return probs is not None


class lazy_property:
    """An attribute computed at its first use, with a history wherever that is."""

    def __init__(self, wrapped: Callable[[Any], Any]) -> None:
        self.wrapped = wrapped
        self._of_class = _lazy_property_and_property(wrapped)
        functools.update_wrapper(self, wrapped)  # type: ignore[arg-type]

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        if instance is None:
            return self._of_class
        with enable_grad():
            value = self.wrapped(instance)
        setattr(instance, self.wrapped.__name__, value)
        return value


class _lazy_property_and_property(lazy_property, property):
    """What the class itself gives: tools that write documentation look for a property."""

    def __init__(self, wrapped: Callable[[Any], Any]) -> None:
        property.__init__(self, wrapped)


def tril_matrix_to_vec(mat: Tensor, diag: int = 0) -> Tensor:
    """The lower triangles of matrices, row by row."""
    n = mat.shape[-1]
    if not -n <= diag < n:
        raise ValueError(f"diag ({diag}) provided is outside [{-n}, {n - 1}].")
    rows, columns = T.tril_indices(n, n, diag)
    return mat[..., rows, columns]


def vec_to_tril_matrix(vec: Tensor, diag: int = 0) -> Tensor:
    """Lower triangular matrices of their entries, row by row."""
    length = vec.shape[-1]
    n = (-(1 + 2 * diag) + ((1 + 2 * diag) ** 2 + 8 * length + 4 * abs(diag) * (diag + 1)) ** 0.5)
    if n / 2 % 1 > 1e-6:
        raise ValueError(
            f"The size of last dimension is {length} which cannot be expressed as the lower "
            "triangular part of a square D x D matrix."
        )
    size = round(n / 2)
    rows, columns = T.tril_indices(size, size, diag)
    flat = vec.new_zeros((*tuple(vec.shape)[:-1], size * size))
    place = (rows * size + columns).expand(vec.shape)
    return flat.scatter(-1, place, vec).reshape(*tuple(vec.shape)[:-1], size, size)
