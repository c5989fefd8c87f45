"""Tensors of images as one picture (torchvision.utils)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import graphc
from graphc import Tensor


def make_grid(
    tensor: Tensor | Sequence[Tensor], nrow: int = 8, padding: int = 2, normalize: bool = False,
    value_range: tuple[float, float] | None = None, scale_each: bool = False,
    pad_value: float = 0.0,
) -> Tensor:
    """Images [N, C, H, W] (or a list of [C, H, W]) side by side, `nrow` a row, as [3, H', W'].

    `normalize` shifts to 0..1 by the least and greatest value, or by `value_range`."""
    if not isinstance(tensor, Tensor):
        if not (isinstance(tensor, (list, tuple)) and all(isinstance(t, Tensor) for t in tensor)):
            raise TypeError(f"tensor or list of tensors expected, got {type(tensor)}")
        tensor = graphc.stack(list(tensor), dim=0)
    assert isinstance(tensor, Tensor)
    return _grid(tensor, nrow, padding, normalize, value_range, scale_each, pad_value)


def _grid(
    tensor: Tensor, nrow: int, padding: int, normalize: bool,
    value_range: tuple[float, float] | None, scale_each: bool, pad_value: float,
) -> Tensor:
    if tensor.dim() == 2:
        tensor = tensor.unsqueeze(0)
    if tensor.dim() == 3:
        tensor = tensor.unsqueeze(0)
    if tensor.dim() == 4 and tensor.size(1) == 1:
        tensor = graphc.cat((tensor, tensor, tensor), 1)
    if normalize:
        tensor = tensor.clone()
        parts: list[Tensor] = list(tensor) if scale_each else [tensor]
        for part in parts:
            low, high = value_range or (float(part.min()), float(part.max()))
            part.clamp_(min=low, max=high).sub_(low).div_(max(high - low, 1e-5))
    if tensor.size(0) == 1:
        return tensor.squeeze(0)
    count = tensor.size(0)
    columns = min(nrow, count)
    rows = math.ceil(count / columns)
    height, width = tensor.size(2) + padding, tensor.size(3) + padding
    grid = tensor.new_full(
        (tensor.size(1), height * rows + padding, width * columns + padding), pad_value
    )
    for k in range(count):
        top, left = k // columns * height + padding, k % columns * width + padding
        grid[:, top : top + height - padding, left : left + width - padding] = tensor[k]
    return grid


def save_image(tensor: Any, fp: Any, format: str | None = None, **kwargs: Any) -> None:
    """make_grid(tensor, ...) as an image file; values are taken as 0 to 1."""
    from PIL import Image  # late: the optional package for images

    with graphc.no_grad():
        grid = make_grid(tensor, **kwargs)
        pixels = grid.mul(255).add_(0.5).clamp_(0, 255).permute(1, 2, 0).to(graphc.uint8)
    Image.fromarray(pixels.numpy()).save(fp, format=format)
