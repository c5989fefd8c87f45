"""torch.utils.tensorboard._convert_np: what is logged, as NumPy arrays."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...frontend.tensor import Tensor
from ...ir import dtypes


def make_np(x: Any) -> np.ndarray[Any, Any]:
    """An array as it is; a number as an array of one; a Tensor's values, bfloat16 as float32.

    Raises NotImplementedError for anything else.
    """
    if isinstance(x, np.ndarray):
        return x
    if np.isscalar(x):
        return np.array([x])
    if isinstance(x, Tensor):
        values = x.detach().cpu()
        if values.dtype is dtypes.bf16:  # float16, which torch writes, ends at 65504
            values = values.float()
        found: np.ndarray[Any, Any] = values.numpy()
        return found
    raise NotImplementedError(
        f"got {type(x).__name__}, but a NumPy array, a Tensor or a number is expected"
    )
