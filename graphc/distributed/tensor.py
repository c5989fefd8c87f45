"""torch.distributed.tensor: tensors over several devices."""

from __future__ import annotations

from .. import unsupported

_CURE = "run in one process: drop the wrapper, or choose it by torch.distributed.is_available()"

globals().update(unsupported.table("torch.distributed.tensor", _CURE, functions="""
    distribute_tensor distribute_module empty full ones rand randn zeros
""", kinds="""
    DTensor Placement Shard Replicate Partial
"""))
