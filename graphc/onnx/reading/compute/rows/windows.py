"""Where the windows of convolutions and pools lie: strides, dilations, paddings."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ..table import Node

_AUTO = ("NOTSET", "SAME_UPPER", "SAME_LOWER", "VALID")


@dataclass(frozen=True)
class Windows:
    """Of an input [N, C, *sizes]."""

    kernel: tuple[int, ...]
    stride: tuple[int, ...]
    dilation: tuple[int, ...]
    low: tuple[Any, ...]
    high: tuple[Any, ...]

    @property
    def rank(self) -> int:
        return len(self.kernel)

    @property
    def spans(self) -> list[int]:
        """How far each window reaches."""
        return [d * (k - 1) + 1 for k, d in zip(self.kernel, self.dilation, strict=True)]


def positive(node: Node, name: str, count: int, least: int = 1) -> tuple[int, ...]:
    """An attribute of `count` numbers, `least` where it is left out."""
    found = tuple(node.get(name) or [least] * count)
    if len(found) != count or min(found, default=least) < least:
        node.refuse(
            f"{name} is {list(found)} for {count} spatial dims", f"give {count} numbers >= {least}"
        )
    return found


def windows_of(node: Node, sizes: Any, kernel: Any) -> Windows:
    """From the attributes that Conv, MaxPool, ... share. `sizes`: the spatial ones."""
    count = len(sizes)
    kernel = tuple(node.get("kernel_shape") or kernel or ())
    if len(kernel) != count or min(map(int, kernel), default=1) < 1:
        node.refuse(f"kernel_shape is {list(kernel)} for {count} spatial dims", "give it")
    stride, dilation = positive(node, "strides", count), positive(node, "dilations", count)
    auto = node.one_of("auto_pad", "NOTSET", _AUTO)
    if auto.startswith("SAME"):
        low, high = [], []
        for size, k, s, d in zip(sizes, kernel, stride, dilation, strict=True):
            total = max((-(-size // s) - 1) * s + d * (k - 1) + 1 - size, 0)
            less = total // 2
            low.append(less if auto == "SAME_UPPER" else total - less)
            high.append(total - low[-1])
        return Windows(kernel, stride, dilation, tuple(low), tuple(high))
    pads = positive(node, "pads", 2 * count, 0) if auto == "NOTSET" else (0,) * (2 * count)
    return Windows(kernel, stride, dilation, pads[:count], pads[count:])
