"""Random leaky relu, in-place spellings, feature dropout and other rare functions."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...frontend import functions as T
from ...frontend.autocast import listed
from ...frontend.context import local
from ...frontend.dispatch import fixed
from ...frontend.functions.arguments import recorded_as
from ...frontend.functions.distances import MANY_DIFFERENCES, norm_of_difference
from ...frontend.grad_mode import no_grad
from ...frontend.history import requires_grad
from ...frontend.placement import beside
from ...frontend.random_state import draw_from
from ...frontend.replayed import replayed
from ...frontend.result_layouts import in_rows
from ...frontend.tensor import Tensor
from .activation import celu, elu, hardtanh, leaky_relu, selu, threshold
from .conv import conv1d


def celu_(input: Tensor, alpha: float = 1.0) -> Tensor:
    """celu in place."""
    return celu(input, alpha, inplace=True)


def elu_(input: Tensor, alpha: float = 1.0) -> Tensor:
    """elu in place."""
    return elu(input, alpha, inplace=True)


def hardtanh_(input: Tensor, min_val: float = -1.0, max_val: float = 1.0) -> Tensor:
    """hardtanh in place."""
    return hardtanh(input, min_val, max_val, inplace=True)


def leaky_relu_(input: Tensor, negative_slope: float = 0.01) -> Tensor:
    """leaky_relu in place."""
    return leaky_relu(input, negative_slope, inplace=True)


def selu_(input: Tensor) -> Tensor:
    """selu in place."""
    return selu(input, inplace=True)


def threshold_(input: Tensor, threshold: float, value: float) -> Tensor:
    """threshold in place."""
    return _threshold(input, threshold, value, inplace=True)


_threshold = threshold


@recorded_as("RreluWithNoiseBackward0")
def rrelu(
    input: Tensor, lower: float = 1.0 / 8, upper: float = 1.0 / 3, training: bool = False,
    inplace: bool = False,
) -> Tensor:
    """Leaky relu with a slope drawn from [lower, upper) for each element; its mean in eval."""
    if lower > upper:
        raise RuntimeError("Lower bound should be less than or equal to the upper bound")
    if not training:
        found = leaky_relu(input, (lower + upper) / 2, inplace)
        return found if inplace else in_rows(found)
    result = input * _slopes(input, lower, upper)
    return input.copy_(result) if inplace else in_rows(result)


@beside
def _slopes(input: Tensor, lower: Any, upper: Any) -> Tensor:
    """1 for positive elements; torch draws a number for each of the others alone."""
    if input.dtype is not T.float64:  # the bounds are rounded to the input's precision
        lower, upper = float(np.float32(lower)), float(np.float32(upper))
    with no_grad():
        negative = input <= 0
        drawn = draw_from("uniform_where", None, negative) * (upper - lower) + lower
        return T.where(negative, drawn.to(input.dtype), T.ones_like(input))


def rrelu_(
    input: Tensor, lower: float = 1.0 / 8, upper: float = 1.0 / 3, training: bool = False
) -> Tensor:
    """rrelu in place."""
    return rrelu(input, lower, upper, training, inplace=True)


def feature_alpha_dropout(
    input: Tensor, p: float = 0.5, training: bool = False, inplace: bool = False
) -> Tensor:
    """alpha_dropout of whole channels."""
    if not 0.0 <= p <= 1.0:
        raise ValueError(f"dropout probability has to be between 0 and 1, but got {p}")
    if not training or p == 0.0 or input.numel() == 0:
        return input
    if input.dim() < 2:
        raise RuntimeError("Feature dropout requires at least 2 dimensions in the input")
    alpha = 1.7580993408473766
    if p == 1.0:
        return input.mul_(0.0) if inplace else input * 0.0
    a = ((alpha**2 * p + 1) * (1 - p)) ** -0.5
    shape = [*tuple(input.shape)[:2], *(1 for _ in range(input.dim() - 2))]
    noise = input.new_empty(shape).bernoulli_(1 - p)
    result = input * (noise * a) + ((noise - 1) * (alpha * a) + alpha * a * p)
    return input.copy_(result) if inplace else result


@listed
def conv_tbc(input: Tensor, weight: Tensor, bias: Tensor, pad: int = 0) -> Tensor:
    """Convolution over time of [T, B, C]; weight [K, C, O]."""
    result = conv1d(input.permute(1, 2, 0), weight.permute(2, 1, 0), bias, padding=pad)
    return result.permute(2, 0, 1)


@replayed
@recorded_as("PdistBackward0")
def _pdist(input: Tensor, p: float) -> Tensor:
    count = input.shape[0]
    rows, columns = (
        input.index_select(0, fixed(places.astype(np.int64)))
        for places in np.triu_indices(count, 1, count)
    )
    result: Any = (rows - columns).norm(p, -1)
    return result


@replayed
def _above_diagonal(matrix: Tensor) -> Tensor:
    """As one row."""
    places = np.flatnonzero(~np.tri(matrix.shape[0], dtype=bool))
    result: Any = matrix.reshape(-1).index_select(0, fixed(places.astype(np.int64)))
    return result


@listed
def pdist(input: Tensor, p: float = 2.0) -> Tensor:
    """Distances of every pair of rows, as one row."""
    if input.dim() != 2:
        raise RuntimeError(f"pdist only supports 2D tensors, got: {input.dim()}D")
    if p < 0:
        raise RuntimeError("pdist only supports non-negative p values")
    if p in (1, 2) and local.trace is None and not (local.grad and requires_grad(input)):
        rows, columns = input.shape
        if rows * (rows - 1) // 2 * columns >= MANY_DIFFERENCES:
            # both triangles, without memory for the differences
            return _above_diagonal(
                norm_of_difference(input.unsqueeze(1), input.unsqueeze(0), p)
            )
    return _pdist(input, p)
