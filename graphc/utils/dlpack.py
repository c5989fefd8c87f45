"""torch.utils.dlpack: tensors shared with other array libraries."""

from __future__ import annotations

from typing import Any

from ..frontend.functions import from_dlpack as from_dlpack
from ..frontend.tensor import Tensor


def to_dlpack(tensor: Tensor) -> Any:
    """The tensor's DLPack capsule."""
    return tensor.__dlpack__()
