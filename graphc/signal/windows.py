"""torch.signal.windows: windows of M points, symmetric or (sym=False) periodic."""

from __future__ import annotations

import inspect
import operator
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

import graphc
from graphc import Tensor

__all__ = [
    "bartlett", "blackman", "cosine", "exponential", "gaussian", "general_cosine",
    "general_hamming", "hamming", "hann", "kaiser", "nuttall",
]


def _made(
    name: str, count: int, sym: bool, values: Callable[[np.ndarray, int], np.ndarray],
    dtype: Any = None, requires_grad: bool = False, layout: Any = None, device: Any = None,
) -> Tensor:
    """The first `count` of values(places, last place), 1 where there is one point alone."""
    count = operator.index(count)
    if count < 0:
        raise ValueError(f"{name} requires non-negative window length, got M={count}")
    kind = graphc.get_default_dtype() if dtype is None else dtype
    if kind not in (graphc.float32, graphc.float64):
        raise ValueError(f"{name} expects float32 or float64 dtypes, got: {kind}")
    if layout not in (None, graphc.strided):
        raise ValueError(f"{name} is implemented for strided tensors only, got: {layout}")
    last = count - 1 if sym else count
    places = np.arange(count, dtype=np.float64)
    array = np.ones(count) if count <= 1 and last <= 1 else values(places, last)
    return graphc.tensor(array, dtype=kind, device=device, requires_grad=requires_grad)


def general_cosine(M: int, *, a: Iterable[float], sym: bool = True, **options: Any) -> Tensor:
    """Sum of a[i] (-1)^i cos(2 pi i n / N)."""
    if not isinstance(a, Iterable):
        raise TypeError("Coefficients must be a list/tuple")
    weights = [float(w) for w in a]
    if not weights:
        raise ValueError("Coefficients cannot be empty")

    def values(n: np.ndarray, last: int) -> np.ndarray:
        turn = 2 * np.pi * n / max(last, 1)
        terms = [(-1) ** i * w * np.cos(i * turn) for i, w in enumerate(weights)]
        return np.asarray(sum(terms))

    return _made("general_cosine", M, sym, values, **options)


def general_hamming(M: int, *, alpha: float = 0.54, sym: bool = True, **options: Any) -> Tensor:
    """alpha - (1 - alpha) cos(2 pi n / N)."""
    return general_cosine(M, a=[alpha, 1.0 - alpha], sym=sym, **options)


def hamming(M: int, *, sym: bool = True, **options: Any) -> Tensor:
    """The Hamming window."""
    return general_hamming(M, sym=sym, **options)


def hann(M: int, *, sym: bool = True, **options: Any) -> Tensor:
    """The Hann window."""
    return general_hamming(M, alpha=0.5, sym=sym, **options)


def blackman(M: int, *, sym: bool = True, **options: Any) -> Tensor:
    """The Blackman window."""
    return general_cosine(M, a=[0.42, 0.5, 0.08], sym=sym, **options)


def nuttall(M: int, *, sym: bool = True, **options: Any) -> Tensor:
    """The minimum 4-term Blackman-Harris window after Nuttall."""
    return general_cosine(M, a=[0.3635819, 0.4891775, 0.1365995, 0.0106411], sym=sym, **options)


def bartlett(M: int, *, sym: bool = True, **options: Any) -> Tensor:
    """The triangle 1 - |2 n / N - 1|."""
    return _made(
        "bartlett", M, sym, lambda n, last: 1 - np.abs(2 * n / max(last, 1) - 1), **options
    )


def cosine(M: int, *, sym: bool = True, **options: Any) -> Tensor:
    """Half a period of the sine."""
    return _made(
        "cosine", M, sym, lambda n, last: np.sin(np.pi * (n + 0.5) / (last + 1)), **options
    )


def exponential(
    M: int, *, center: float | None = None, tau: float = 1.0, sym: bool = True, **options: Any
) -> Tensor:
    """exp(-|n - center| / tau)."""
    if tau <= 0:
        raise ValueError(f"Tau must be positive, got: {tau} instead.")
    if sym and center is not None:
        raise ValueError("Center must be None for symmetric windows")

    def values(n: np.ndarray, last: int) -> np.ndarray:
        middle = last / 2.0 if center is None else float(center)
        return np.asarray(np.exp(-np.abs(n - middle) / float(tau)))

    return _made("exponential", M, sym, values, **options)


def gaussian(M: int, *, std: float = 1.0, sym: bool = True, **options: Any) -> Tensor:
    """exp(-((n - N / 2) / std)^2 / 2)."""
    if std <= 0:
        raise ValueError(f"Standard deviation must be positive, got: {std} instead.")

    def values(n: np.ndarray, last: int) -> np.ndarray:
        return np.asarray(np.exp(-0.5 * ((n - last / 2.0) / float(std)) ** 2))

    return _made("gaussian", M, sym, values, **options)


def kaiser(M: int, *, beta: float = 12.0, sym: bool = True, **options: Any) -> Tensor:
    """I0(beta sqrt(1 - (2 n / N - 1)^2)) / I0(beta)."""
    if beta < 0:
        raise ValueError(f"beta must be non-negative, got: {beta} instead.")

    def values(n: np.ndarray, last: int) -> np.ndarray:
        across, shape = 2 * n / max(last, 1) - 1, float(beta)
        return np.asarray(np.i0(shape * np.sqrt(np.maximum(1 - across**2, 0))) / np.i0(shape))

    return _made("kaiser", M, sym, values, **options)


def _options_shown(function: Callable[..., Tensor]) -> None:
    """Give a window's signature the names of its options."""
    own = inspect.signature(function)
    kept = [p for p in own.parameters.values() if p.kind is not p.VAR_KEYWORD]
    options = {"dtype": None, "layout": graphc.strided, "device": None, "requires_grad": False}
    named = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default)
        for name, default in options.items()
    ]
    function.__signature__ = own.replace(parameters=[*kept, *named])  # type: ignore[attr-defined]


for _window in (
    bartlett, blackman, cosine, exponential, gaussian, general_cosine, general_hamming, hamming,
    hann, kaiser, nuttall,
):
    _options_shown(_window)
