"""Memory formats of convolution weights."""

from __future__ import annotations

from typing import Any

from ..modules.conv import Conv2d, Conv3d, ConvTranspose2d, ConvTranspose3d
from ..modules.module import Module


def _convert(module: Any, memory_format: Any, kinds: tuple[type, ...]) -> Any:
    for each in module.modules():
        if isinstance(each, kinds):
            weight: Any = each.weight  # type: ignore[attr-defined]
            weight.data = weight.detach().clone(memory_format=memory_format)
    return module


def convert_conv2d_weight_memory_format(module: Module, memory_format: Any) -> Module:
    """The module, with the weights of its 2-D convolutions in a memory format."""
    result: Module = _convert(module, memory_format, (Conv2d, ConvTranspose2d))
    return result


def convert_conv3d_weight_memory_format(module: Module, memory_format: Any) -> Module:
    """The module, with the weights of its 3-D convolutions in a memory format."""
    result: Module = _convert(module, memory_format, (Conv3d, ConvTranspose3d))
    return result
