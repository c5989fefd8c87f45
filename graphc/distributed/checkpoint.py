"""torch.distributed.checkpoint: checkpoints of several processes."""

from __future__ import annotations

from .. import unsupported

_CURE = "save and load with torch.save() and torch.load()"

globals().update(unsupported.table("torch.distributed.checkpoint", _CURE, functions="""
    save load async_save save_state_dict load_state_dict
""", kinds="""
    FileSystemReader FileSystemWriter DefaultLoadPlanner DefaultSavePlanner Stateful
"""))
