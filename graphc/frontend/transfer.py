"""Tensors taken from one device to another, with history."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from graphc.ir.memory import Buffer, DeviceArray, inverse, memory_order, on_host

from .context import local
from .errors import located
from .history import edge, requires_grad
from .nodes import Node, World
from .placement import TWO_DEVICES, Place, place_at
from .storage import Storage
from .tensor import Tensor


class DeviceCopy(Node):
    """A copy on another device: its gradient goes back to where the tensor lies."""

    source: Place | None

    def name(self) -> str:
        return "ToCopyBackward0"

    def gradients(self, grads: list[Any], needs: Sequence[bool], world: World) -> Sequence[Any]:
        return [world.from_tensor(moved(world.to_tensor(grads[0]), self.source))]


def moved(tensor: Tensor, place: Place | None) -> Tensor:
    """The tensor itself where it lies there, else a copy. Raises NotImplementedError for one that
    has no elements."""
    source = place_at(tensor)
    if source is place:
        return tensor
    trace = local.trace
    if trace is not None:
        with trace.eager(TWO_DEVICES):
            return moved(
                tensor if tensor._graphc_concrete is None else tensor._graphc_concrete, place
            )
    buffer = tensor._graphc_array
    if isinstance(buffer, DeviceArray) and source is not None and source.device.type == "meta":
        raise NotImplementedError(located(
            "Cannot copy out of meta tensor; no data! Please use torch.nn.Module.to_empty() "
            "instead of torch.nn.Module.to() when moving module from meta to a different device."
        ))
    result: Tensor = object.__new__(Tensor)
    result._graphc_array = _copied(buffer, place)
    result._graphc_storage = Storage(result._graphc_array)
    if local.grad and requires_grad(tensor):
        node = DeviceCopy((edge(tensor),), (tensor._graphc_type,))
        node.source = source
        result._graphc_node = node
    return result


def _copied(buffer: Buffer, place: Place | None) -> Buffer:
    """Its elements in other memory, with the dims in the same order."""
    order = memory_order(buffer)
    host = on_host(buffer if order is None else buffer.transpose(order))
    made = np.array(host, order="C") if place is None else place.put(host)
    return made if order is None else made.transpose(inverse(order))
