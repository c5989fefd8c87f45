"""Frequencies of a transform's results, and their order."""

from __future__ import annotations

from typing import Any

import graphc
from graphc.frontend.tensor import Tensor


def _made(values: Tensor, dtype: Any, requires_grad: bool, out: Tensor | None) -> Tensor:
    values = values.to(dtype or graphc.get_default_dtype())
    if out is not None:
        return out.copy_(values)
    return values.requires_grad_(requires_grad)


def fftfreq(
    n: int, d: float = 1.0, *, out: Tensor | None = None, dtype: Any = None, layout: Any = None,
    device: Any = None, requires_grad: bool = False,
) -> Tensor:
    """The frequencies of fft's results, in cycles per unit of the sample spacing `d`."""
    places = graphc.arange(n, dtype=dtype or graphc.get_default_dtype(), device=device)
    places = graphc.where(places > (n - 1) // 2, places - n, places)
    return _made(places * (1.0 / (max(n, 1) * d)), dtype, requires_grad, out)


def rfftfreq(
    n: int, d: float = 1.0, *, out: Tensor | None = None, dtype: Any = None, layout: Any = None,
    device: Any = None, requires_grad: bool = False,
) -> Tensor:
    """The frequencies of rfft's results."""
    kind = dtype or graphc.get_default_dtype()
    places = graphc.arange(n // 2 + 1, dtype=kind, device=device)
    return _made(places * (1.0 / (n * d)), dtype, requires_grad, out)


def _dims(x: Tensor, dim: Any) -> tuple[int, ...]:
    if dim is None:
        return tuple(range(x.ndim))
    return tuple(dim) if isinstance(dim, (tuple, list)) else (int(dim),)


def fftshift(input: Tensor, dim: Any = None) -> Tensor:
    """The zero frequency moved to the middle."""
    dims = _dims(input, dim)
    return graphc.roll(input, tuple(input.shape[d] // 2 for d in dims), dims)


def ifftshift(input: Tensor, dim: Any = None) -> Tensor:
    """The inverse of fftshift."""
    dims = _dims(input, dim)
    return graphc.roll(input, tuple((input.shape[d] + 1) // 2 for d in dims), dims)
