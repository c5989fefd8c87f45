"""torch.distributed.autograd: gradients over several processes."""

from __future__ import annotations

from .. import unsupported

_CURE = "run in one process: drop the wrapper, or choose it by torch.distributed.is_available()"

globals().update(unsupported.table("torch.distributed.autograd", _CURE, functions="""
    backward get_gradients
""", kinds="""
    context
"""))
