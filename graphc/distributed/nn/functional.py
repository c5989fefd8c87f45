"""torch.distributed.nn.functional: collectives with gradients."""

from __future__ import annotations

from ... import unsupported

_CURE = "call it where torch.distributed.is_initialized() alone, which is False here"

globals().update(unsupported.table("torch.distributed.nn.functional", _CURE, functions="""
    broadcast gather scatter reduce reduce_scatter all_gather all_to_all all_to_all_single
    all_reduce
"""))
