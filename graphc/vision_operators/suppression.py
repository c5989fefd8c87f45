"""Non-maximum suppression. How many boxes it keeps depends on values, as in nonzero()."""

from __future__ import annotations

import numpy as np

from ..frontend import functions as T
from ..frontend.dispatch import constant
from ..frontend.errors import located
from ..frontend.placement import beside
from ..frontend.tensor import Tensor, concrete

_CURE = "its result's size depends on values: call it outside the compiled function"


@beside
def nms(dets: Tensor, scores: Tensor, iou_threshold: float) -> Tensor:
    """The positions of the boxes [n, 4] (left, top, right, bottom) that are kept, int64, by falling
    score: those that no kept one of a higher score overlaps by more than iou_threshold of what
    both cover."""
    if dets.dim() != 2:
        raise RuntimeError(located(f"boxes should be a 2d tensor, got {dets.dim()}D"))
    if dets.shape[1] != 4:
        raise RuntimeError(located(
            f"boxes should have 4 elements in dimension 1, got {dets.shape[1]}"
        ))
    if scores.dim() != 1:
        raise RuntimeError(located(f"scores should be a 1d tensor, got {scores.dim()}D"))
    if dets.shape[0] != scores.shape[0]:
        raise RuntimeError(located(
            "boxes and scores should have same number of elements in dimension 0, got "
            f"{dets.shape[0]} and {scores.shape[0]}"
        ))
    if dets.dtype in (T.float16, T.bfloat16):
        dets = dets.float()
    falling = T.sort(scores.detach(), 0, True, True)[1]
    order = concrete(falling, "torchvision.ops.nms()", _CURE)
    boxes = concrete(dets.detach(), "torchvision.ops.nms()", _CURE)
    return constant(_kept(boxes[order], order, float(iou_threshold)))


def _kept(boxes: np.ndarray, order: np.ndarray, threshold: float) -> np.ndarray:
    """Of boxes in their order, the numbers in `order` of those that are kept."""
    left, top, right, bottom = boxes.T
    # one array: what is left of it is taken in one step
    rest = np.ascontiguousarray([left, top, right, bottom, (right - left) * (bottom - top)])
    numbers, kept = order, []
    # a float32 overlap is compared with the threshold itself, not with its nearest float32
    limit = np.float64(threshold)
    with np.errstate(all="ignore"):
        while numbers.size:
            kept.append(numbers[0])
            (left, top, right, bottom, area), rest = rest[:, 0], rest[:, 1:]
            width = np.minimum(right, rest[2]) - np.maximum(left, rest[0])
            height = np.minimum(bottom, rest[3]) - np.maximum(top, rest[1])
            both = np.maximum(width, 0) * np.maximum(height, 0)
            clear = ~(both / (area + rest[4] - both) > limit)
            numbers = numbers[1:][clear]
            if not clear.all():
                rest = rest[:, clear]
    return np.array(kept, np.int64)
