"""The transforms, in one, two and any number of dimensions; pytorch.org/docs/stable/fft.html.

`norm` says where the factor 1/n goes: "backward" (the inverse), "forward", or "ortho" (both).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from graphc.frontend import promote
from graphc.frontend.dispatch import apply
from graphc.frontend.errors import located
from graphc.frontend.functions.arguments import with_out
from graphc.frontend.replayed import replayed
from graphc.frontend.tensor import Tensor
from graphc.ir import dtypes, ops

Dims = Sequence[int]


def _scale(norm: str | None, sizes: Sequence[int], inverse: bool) -> float:
    if norm not in (None, "backward", "forward", "ortho"):
        raise RuntimeError(located(f'Invalid normalization mode: "{norm}"'))
    if norm == "ortho":
        return 1.0 / math.sqrt(math.prod(sizes)) if sizes else 1.0
    return 1.0 / math.prod(sizes) if inverse == (norm != "forward") else 1.0


def _as_complex(x: Tensor) -> Tensor:
    return promote.cast(x, dtypes.complex_of(_as_float(x).dtype))


def _as_float(x: Tensor) -> Tensor:
    """Integers become the default float. Raises RuntimeError for 16-bit floats."""
    if x.dtype in (dtypes.f16, dtypes.bf16):
        raise RuntimeError(located(f"Unsupported dtype {promote._name(x.dtype)}"))
    return x if x.dtype.differentiable else promote.cast(x, promote.get_default_dtype())


def _wrap(dim: int, rank: int) -> int:
    if not -max(rank, 1) <= dim < max(rank, 1) or rank == 0:
        low, high = (-rank, rank - 1) if rank else (-1, 0)
        raise IndexError(located(
            f"Dimension out of range (expected to be in range of [{low}, {high}], but got {dim})"
        ))
    return dim % rank


def _plan(x: Tensor, s: Any, dim: Any) -> tuple[Dims, list[int]]:
    """Which dims are transformed, and the sizes that they are cut or padded to first."""
    if dim is not None and not isinstance(dim, (tuple, list, range)):
        dim = (int(dim),)
    if s is not None and not isinstance(s, (tuple, list)):
        s = (s,)
    if dim is None:
        count = x.ndim if s is None else len(s)
        if count > x.ndim:
            raise RuntimeError(located(
                f"Got shape with {count} values but input tensor only has {x.ndim} dimensions."
            ))
        dim = range(x.ndim - count, x.ndim)
    dims = tuple(_wrap(int(d), x.ndim) for d in dim)
    if len(set(dims)) != len(dims):
        raise RuntimeError(located("FFT dims must be unique"))
    if s is not None and len(s) != len(dims):
        raise RuntimeError(located(
            "When given, dim and shape arguments must have the same length"
        ))
    sizes = [int(x.shape[d]) for d in dims]  # a symbolic size is fixed: the scale depends on it
    if s is not None:
        sizes = [have if n in (None, -1) else int(n) for have, n in zip(sizes, s, strict=True)]
    return dims, sizes


def _check(sizes: Sequence[int]) -> None:
    for n in sizes:
        if n < 1:
            raise RuntimeError(located(f"Invalid number of data points ({n}) specified"))


def _resized(x: Tensor, dims: Dims, sizes: Sequence[int]) -> Tensor:
    """Cut at the end, or padded with zeros."""
    high = [0] * x.ndim
    for d, n in zip(dims, sizes, strict=True):
        have = int(x.shape[d])
        if n < have:
            x = x.narrow(d, 0, n)
        high[d] = max(n - have, 0)
    if any(high):
        none = (0,) * x.ndim
        x = apply(ops.pad, x, low=none, high=tuple(high), interior=none, value=0.0)
    return x


@replayed
def _complex(x: Tensor, s: Any, dim: Any, norm: str | None, inverse: bool) -> Tensor:
    dims, sizes = _plan(x, s, dim)
    _check(sizes)
    x = _resized(_as_complex(x), dims, sizes)
    scale = _scale(norm, sizes, inverse)
    found: Tensor = apply(ops.fft_complex, x, dims=dims, inverse=inverse, scale=scale)
    return found


@replayed
def _half(x: Tensor, s: Any, dim: Any, norm: str | None, inverse: bool, name: str) -> Tensor:
    """The half spectrum of real numbers."""
    if x.dtype.is_complex:
        raise RuntimeError(located(
            f"{name} expects a real input tensor, but got {promote._name(x.dtype)}"
        ))
    dims, sizes = _plan(x, s, dim)
    _check(sizes)
    if not dims:
        raise RuntimeError(located(f"{name} must transform at least one axis"))
    x = _resized(_as_float(x), dims, sizes)
    found: Tensor = apply(ops.fft_real, x, dims=dims, scale=_scale(norm, sizes, inverse))
    return found


@replayed
def _whole(x: Tensor, s: Any, dim: Any, norm: str | None, inverse: bool, name: str) -> Tensor:
    """Real numbers of half a spectrum; the last size is 2 (n - 1) unless given."""
    dims, sizes = _plan(x, s, dim)
    if not dims:
        raise RuntimeError(located(f"{name} must transform at least one axis"))
    given = s[-1] if isinstance(s, (tuple, list)) else s
    if given in (None, -1):
        sizes[-1] = 2 * (int(x.shape[dims[-1]]) - 1)
    _check(sizes)
    x = _resized(_as_complex(x), dims, [*sizes[:-1], sizes[-1] // 2 + 1])
    scale = _scale(norm, sizes, inverse)
    found: Tensor = apply(ops.fft_inverse_real, x, dims=dims, size=sizes[-1], scale=scale)
    return found


@with_out
def fft(input: Tensor, n: int | None = None, dim: int = -1, norm: str | None = None) -> Tensor:
    """The Fourier transform along `dim`, of `n` numbers."""
    return _complex(input, n, dim, norm, False)


@with_out
def ifft(input: Tensor, n: int | None = None, dim: int = -1, norm: str | None = None) -> Tensor:
    """The inverse of fft."""
    return _complex(input, n, dim, norm, True)


@with_out
def rfft(input: Tensor, n: int | None = None, dim: int = -1, norm: str | None = None) -> Tensor:
    """The n // 2 + 1 first numbers of the transform of real numbers."""
    return _half(input, n, dim, norm, False, "rfft")


@with_out
def irfft(input: Tensor, n: int | None = None, dim: int = -1, norm: str | None = None) -> Tensor:
    """The inverse of rfft."""
    return _whole(input, n, dim, norm, True, "irfft")


@with_out
def hfft(input: Tensor, n: int | None = None, dim: int = -1, norm: str | None = None) -> Tensor:
    """The real transform of a signal of which half is given, the rest being its conjugate."""
    return _whole(input.conj(), n, dim, norm, False, "hfft")


@with_out
def ihfft(input: Tensor, n: int | None = None, dim: int = -1, norm: str | None = None) -> Tensor:
    """The inverse of hfft."""
    return _half(input, n, dim, norm, True, "ihfft").conj()


@with_out
def fft2(input: Tensor, s: Any = None, dim: Any = (-2, -1), norm: str | None = None) -> Tensor:
    """The transform over two dims."""
    return _complex(input, s, dim, norm, False)


@with_out
def ifft2(input: Tensor, s: Any = None, dim: Any = (-2, -1), norm: str | None = None) -> Tensor:
    """The inverse of fft2."""
    return _complex(input, s, dim, norm, True)


@with_out
def rfft2(input: Tensor, s: Any = None, dim: Any = (-2, -1), norm: str | None = None) -> Tensor:
    """The half spectrum of real numbers over two dims."""
    return _half(input, s, dim, norm, False, "rfftn")


@with_out
def irfft2(input: Tensor, s: Any = None, dim: Any = (-2, -1), norm: str | None = None) -> Tensor:
    """The inverse of rfft2."""
    return _whole(input, s, dim, norm, True, "irfftn")


@with_out
def hfft2(input: Tensor, s: Any = None, dim: Any = (-2, -1), norm: str | None = None) -> Tensor:
    """hfft over two dims."""
    return _whole(input.conj(), s, dim, norm, False, "hfftn")


@with_out
def ihfft2(input: Tensor, s: Any = None, dim: Any = (-2, -1), norm: str | None = None) -> Tensor:
    """The inverse of hfft2."""
    return _half(input, s, dim, norm, True, "ihfftn").conj()


@with_out
def fftn(input: Tensor, s: Any = None, dim: Any = None, norm: str | None = None) -> Tensor:
    """The transform over `dim` (all without one)."""
    return _complex(input, s, dim, norm, False)


@with_out
def ifftn(input: Tensor, s: Any = None, dim: Any = None, norm: str | None = None) -> Tensor:
    """The inverse of fftn."""
    return _complex(input, s, dim, norm, True)


@with_out
def rfftn(input: Tensor, s: Any = None, dim: Any = None, norm: str | None = None) -> Tensor:
    """The half spectrum of real numbers over `dim`."""
    return _half(input, s, dim, norm, False, "rfftn")


@with_out
def irfftn(input: Tensor, s: Any = None, dim: Any = None, norm: str | None = None) -> Tensor:
    """The inverse of rfftn."""
    return _whole(input, s, dim, norm, True, "irfftn")


@with_out
def hfftn(input: Tensor, s: Any = None, dim: Any = None, norm: str | None = None) -> Tensor:
    """hfft over `dim`."""
    return _whole(input.conj(), s, dim, norm, False, "hfftn")


@with_out
def ihfftn(input: Tensor, s: Any = None, dim: Any = None, norm: str | None = None) -> Tensor:
    """The inverse of hfftn."""
    return _half(input, s, dim, norm, True, "ihfftn").conj()
