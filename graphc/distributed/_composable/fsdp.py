"""torch.distributed._composable.fsdp: the older place of these names."""

from .. import fsdp

_NAMES = (
    "CPUOffloadPolicy", "FSDPModule", "MixedPrecisionPolicy", "OffloadPolicy", "fully_shard",
    "register_fsdp_forward_method",
)
globals().update({name: getattr(fsdp, name) for name in _NAMES})
