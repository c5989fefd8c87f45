"""What torchvision's compiled half is to it: torch.ops.torchvision.* and torch.ops.image.*.

The Python of an installed torchvision calls these (`compat/finder.py`); they take its arguments.
"""

from __future__ import annotations

from ..on_demand import on_demand

_NAMES = {
    "boxes": "ps_roi_align ps_roi_pool roi_align roi_pool",
    "deformable": "deform_conv2d",
    "files": """
        decode_gif decode_image decode_jpeg decode_png decode_webp encode_jpeg encode_png read_file
        write_file
    """,
    "suppression": "nms",
}

__getattr__, __dir__, __all__ = on_demand(__name__, _NAMES)
