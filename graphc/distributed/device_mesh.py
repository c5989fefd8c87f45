"""torch.distributed.device_mesh: devices in a grid."""

from __future__ import annotations

from .. import unsupported

_CURE = "run in one process: drop the wrapper, or choose it by torch.distributed.is_available()"

globals().update(unsupported.table("torch.distributed.device_mesh", _CURE, functions="""
    init_device_mesh
""", kinds="""
    DeviceMesh
"""))
