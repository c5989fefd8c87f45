"""torch.distributed._tensor: the older place of torch.distributed.tensor's names."""

from .. import tensor
from . import experimental as experimental

_NAMES = (
    "DTensor", "Partial", "Replicate", "Shard", "distribute_module", "distribute_tensor", "empty",
    "full", "ones", "rand", "randn", "zeros",
)
globals().update({name: getattr(tensor, name) for name in _NAMES})
