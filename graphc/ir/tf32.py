"""TF32: the float of 10 bits of fraction, with float32's range, that tensor cores multiply; and
what torch.set_float32_matmul_precision, or torch.backends, says of it, which ir does not ask.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

_DROPPED = 13  # bits of a float32's fraction


class Setting:
    """Of matrix products: "highest", "high" or "medium"; "": nobody has said anything."""

    matmul = ""


def rounded(x: NDArray[np.float32]) -> NDArray[np.float32]:
    """float32 numbers to the nearest TF32, ties away from 0 (PTX: cvt.rna.tf32.f32)."""
    bits = np.ascontiguousarray(x, np.float32).view(np.uint32)
    near = (bits + np.uint32(1 << _DROPPED - 1)) & np.uint32(~((1 << _DROPPED) - 1) & 0xFFFFFFFF)
    return np.where(np.isfinite(x), near.view(np.float32), x).astype(np.float32, copy=False)
