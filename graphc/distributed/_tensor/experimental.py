"""torch.distributed._tensor.experimental: what tensors over several devices take for granted."""

from __future__ import annotations

from ... import unsupported

_CURE = "run in one process: drop the wrapper, or choose it by torch.distributed.is_available()"

globals().update(unsupported.table("torch.distributed._tensor.experimental", _CURE, functions="""
    implicit_replication context_parallel local_map register_sharding
"""))
