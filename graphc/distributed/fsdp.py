"""torch.distributed.fsdp: sharded training, which needs several processes."""

from __future__ import annotations

from .. import unsupported

_CURE = "run in one process: drop the wrapper, or choose it by torch.distributed.is_available()"

globals().update(unsupported.table("torch.distributed.fsdp", _CURE, functions="""
    fully_shard register_fsdp_forward_method
""", kinds="""
    FullyShardedDataParallel FSDPModule ShardingStrategy StateDictType MixedPrecision
    MixedPrecisionPolicy BackwardPrefetch CPUOffload CPUOffloadPolicy OffloadPolicy
    FullStateDictConfig LocalStateDictConfig ShardedStateDictConfig FullOptimStateDictConfig
    ShardedOptimStateDictConfig OptimStateKeyType StateDictSettings
"""))
