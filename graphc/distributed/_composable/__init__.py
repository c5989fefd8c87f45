"""torch.distributed._composable: the older place of torch.distributed.fsdp's names."""

from . import fsdp as fsdp
