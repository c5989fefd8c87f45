"""torch.fake_quantize_*: what a quantised tensor would hold, with the straight-through gradient.

Source: https://docs.pytorch.org/docs/2.13/generated/torch.fake_quantize_per_tensor_affine.html
"""

from __future__ import annotations

from typing import Any

from ...frontend.errors import located
from ...frontend.functions import NAMES
from ...frontend.tensor import Tensor


def fake_quantize_per_tensor_affine(
    input: Tensor, scale: Any, zero_point: Any, quant_min: int, quant_max: int
) -> Tensor:
    """(clamp(round(x / scale) + zero_point, quant_min, quant_max) - zero_point) * scale.

    The gradient is 1 where nothing is clamped, else 0. Raises RuntimeError for a range that is
    empty, or a `zero_point` outside of it.
    """
    _check_range(quant_min, quant_max)
    if not isinstance(zero_point, Tensor):
        _check_zero(quant_min <= zero_point <= quant_max)
    return _straight_through(input, scale, zero_point, quant_min, quant_max)


def fake_quantize_per_channel_affine(
    input: Tensor, scale: Tensor, zero_point: Tensor, axis: int, quant_min: int, quant_max: int
) -> Tensor:
    """The same with a scale and a zero point, [C], for each slice of dim `axis`."""
    _check_range(quant_min, quant_max)
    if not 0 <= axis < input.ndim:
        raise RuntimeError(located(f"`axis` must be between 0 and number of dimensions of input, "
                                   f"{input.ndim}, is {axis}"))
    if scale.ndim != 1 or tuple(scale.shape) != tuple(zero_point.shape):
        raise RuntimeError(located("scale and zero-point need to have the same dimensions, one: "
                                   f"they are {list(scale.shape)} and {list(zero_point.shape)}"))
    if scale.shape[0] != input.shape[axis]:
        raise RuntimeError(located(
            f"dimensions of scale and zero-point are not consistent with input tensor: "
            f"{scale.shape[0]}, and dim {axis} has {input.shape[axis]}"))
    shape = tuple(-1 if dim == axis else 1 for dim in range(input.ndim))
    return _straight_through(
        input, scale.reshape(shape), zero_point.reshape(shape), quant_min, quant_max
    )


def _check_range(quant_min: int, quant_max: int) -> None:
    if quant_min > quant_max:
        raise RuntimeError(located(f"`quant_min` should be less than or equal to `quant_max`: "
                                   f"{quant_min} > {quant_max}"))


def _check_zero(inside: bool) -> None:
    if not inside:
        raise RuntimeError(located("`zero_point` must be between `quant_min` and `quant_max`."))


def _straight_through(
    input: Tensor, scale: Any, zero_point: Any, quant_min: int, quant_max: int
) -> Tensor:
    given = input.detach()
    scale, zero = (x.detach() if isinstance(x, Tensor) else x for x in (scale, zero_point))
    inverse = 1.0 / NAMES["as_tensor"](scale, dtype=given.dtype)  # rounded, as torch's is
    whole = (given * inverse).round() + zero
    kept = (whole >= quant_min) & (whole <= quant_max)
    low, high = (NAMES["full"]((), float(x), dtype=whole.dtype) for x in (quant_min, quant_max))
    value = (whole.fmax(low).fmin(high) - zero) * scale  # fmax: NaN is the least
    # input - given is 0, and carries the gradient
    result: Tensor = NAMES["where"](kept, value + (input - given), value)
    return result
