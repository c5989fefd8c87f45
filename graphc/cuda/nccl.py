"""torch.cuda.nccl: there is no NCCL; torch.distributed's processes talk by gloo."""

from __future__ import annotations

import warnings
from collections.abc import Iterable

from .. import unsupported
from ..frontend.tensor import Tensor

_CURE = "torch.distributed, whose processes talk by the host"
_MISSING = unsupported.table(
    "torch.cuda.nccl", _CURE,
    functions="all_gather all_reduce broadcast init_rank reduce reduce_scatter unique_id version",
)
globals().update(_MISSING)


def is_available(tensors: Iterable[Tensor]) -> bool:
    """False."""
    warnings.warn("graphc is without NCCL support", stacklevel=2)
    return False
