"""Windows of signal processing, as constants."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..dispatch import constant
from ..errors import located
from ..placement import makes
from ..promote import get_default_dtype
from ..tensor import Tensor
from .arguments import check_dtype


def _window(name: str, values: Callable[..., np.ndarray]) -> Callable[..., Tensor]:
    @makes
    def function(
        window_length: int, periodic: bool = True, *shape: float, dtype: Any = None,
        device: Any = None, requires_grad: bool = False, layout: Any = None,
        pin_memory: bool = False, **parameters: float,
    ) -> Tensor:
        if window_length < 0:
            raise RuntimeError(located(
                f"{name} requires non-negative window_length, got window_length={window_length}"
            ))
        kind = check_dtype(dtype) or get_default_dtype()
        size = window_length + bool(periodic)
        array = np.ones(1) if window_length == 1 else values(size, *shape, **parameters)
        result = constant(array[:window_length].astype(kind.numpy))
        return result.requires_grad_() if requires_grad else result

    function.__name__ = name
    function.__doc__ = f"The {name.removesuffix('_window')} window; `periodic` for the FFT."
    return function


def _hamming(n: int, alpha: float = 0.54, beta: float = 0.46) -> np.ndarray:
    return alpha - beta * np.cos(2 * np.pi * np.arange(n) / max(n - 1, 1))


def _kaiser(n: int, beta: float = 12.0) -> np.ndarray:
    return np.kaiser(n, beta)


hann_window = _window("hann_window", np.hanning)
bartlett_window = _window("bartlett_window", np.bartlett)
blackman_window = _window("blackman_window", np.blackman)
hamming_window = _window("hamming_window", _hamming)
kaiser_window = _window("kaiser_window", _kaiser)
