"""make_tensor: random test input."""

from __future__ import annotations

from typing import Any

from ..frontend.functions import empty, randint
from ..frontend.tensor import Tensor
from ..ir.dtypes import DType

_INTEGERS = {"uint8": (0, 10), "bool": (0, 2)}


def make_tensor(
    *shape: Any, dtype: DType, device: Any = "cpu", low: float | None = None,
    high: float | None = None, requires_grad: bool = False, noncontiguous: bool = False,
    exclude_zero: bool = False, memory_format: Any = None,
) -> Tensor:
    """Uniform values of [low, high): by default [-9, 9), [0, 10) for uint8."""
    size = tuple(shape[0]) if len(shape) == 1 and not isinstance(shape[0], int) else shape
    name = str(dtype).removeprefix("torch.")
    made_size = (*size[:-1], 2 * size[-1]) if noncontiguous and size else size
    if dtype.is_floating_point or dtype.is_complex:
        made = empty(made_size, dtype=dtype, device=device)
        made = made.uniform_(-9.0 if low is None else low, 9.0 if high is None else high)
        nonzero = 1e-6
    else:
        least, most = _INTEGERS.get(name, (-9, 10))
        bounds = (least if low is None else int(low)), (most if high is None else int(high))
        made = randint(*bounds, made_size, dtype=dtype, device=device)
        nonzero = 1
    if noncontiguous and size:
        made = made[..., ::2]
    if exclude_zero:
        made[made == 0] = nonzero
    return made.requires_grad_(requires_grad) if requires_grad else made
