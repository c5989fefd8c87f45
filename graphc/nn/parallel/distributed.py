"""DistributedDataParallel, which needs several processes."""

from __future__ import annotations

from ... import unsupported

DistributedDataParallel = unsupported.kind(
    "torch.nn.parallel.DistributedDataParallel",
    "train in one process: wrap the model only where torch.distributed.is_available()",
)
