"""Operators of object detection."""

from __future__ import annotations

import math
from typing import Any

from .....frontend import functions as T
from .....frontend.tensor import Tensor
from .....vision_operators.boxes import roi_align as aligned
from .....vision_operators.suppression import nms
from ..numbers import Numbers
from ..table import Node, operator


@operator("RoiAlign", 10)
def roi_align_of_whole(node: Node, x: Tensor, rois: Tensor, images: Tensor) -> Any:
    return _aligned(node, x, rois, images, "output_half_pixel")


@operator("RoiAlign", 16)
def roi_align(node: Node, x: Tensor, rois: Tensor, images: Tensor) -> Any:
    return _aligned(node, x, rois, images, "half_pixel")


def _aligned(node: Node, x: Tensor, rois: Tensor, images: Tensor, places: str) -> Tensor:
    if node.get("mode", "avg") != "avg":
        node.refuse(f"mode is {node.get('mode')!r}", "graphc averages the samples of a bin")
    half = node.get("coordinate_transformation_mode", places) == "half_pixel"
    boxes = T.cat([images.to(rois.dtype).unsqueeze(1), rois], 1)
    return aligned(
        x, boxes, node.get("spatial_scale", 1.0), node.get("output_height", 1),
        node.get("output_width", 1), node.get("sampling_ratio", 0), half,
    )


def _one(value: Numbers | None, default: float) -> float:
    return default if value is None or not value.items else value.items[0]


@operator("NonMaxSuppression", 10, numbers=(2, 3, 4))
def suppressed(
    node: Node, boxes: Tensor, scores: Tensor, most: Numbers | None = None,
    overlap: Numbers | None = None, least: Numbers | None = None,
) -> Any:
    """Rows (image, class, box) of the boxes that are kept, for each class by falling score."""
    count = int(_one(most, 0))
    limit, floor = _one(overlap, 0.0), _one(least, -math.inf)
    found = []
    corners = _corners(boxes, bool(node.get("center_point_box", 0)))
    for image in range(int(scores.shape[0])):
        for kind in range(int(scores.shape[1])):
            each = scores[image, kind]
            taken = T.nonzero(each > floor).reshape(-1) if least is not None else None
            rows = corners[image] if taken is None else corners[image][taken]
            kept = nms(rows, each if taken is None else each[taken], limit)[:count]
            kept = kept if taken is None else taken[kept]
            head = T.tensor([image, kind]).expand(kept.shape[0], 2)
            found.append(T.cat([head, kept.unsqueeze(1)], 1))
    return T.cat(found) if found else T.zeros(0, 3, dtype=T.int64)


def _corners(boxes: Tensor, centred: bool) -> Tensor:
    """(left, top, right, bottom), whichever corners the boxes are told by."""
    a, b, c, d = boxes.unbind(-1)
    if centred:
        return T.stack([a - c / 2, b - d / 2, a + c / 2, b + d / 2], -1)
    return T.stack([
        T.minimum(b, d), T.minimum(a, c), T.maximum(b, d), T.maximum(a, c)
    ], -1)
