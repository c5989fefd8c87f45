"""What a tensor's memory is to devices that work while the host goes on."""

from __future__ import annotations

from typing import Any

from graphc.ir.memory import DeviceArray

from ..context import local
from ..errors import located
from ..placement import Pinned, look, place_at
from ..tensor import Tensor, from_array, held


def pin_memory(self: Tensor, device: Any = None) -> Tensor:
    """A copy in memory from which a device copies while the host goes on; the tensor itself where
    it lies there, or no device is faster for it. Raises RuntimeError for one that is not on the
    CPU."""
    if self.device.type != "cpu":
        raise RuntimeError(located(
            f"cannot pin a tensor on {self.device}: only dense CPU tensors can be pinned"
        ))
    if local.trace is not None:
        return self
    look()
    if Pinned.copy is None or is_pinned(self):
        return self
    return from_array(Pinned.copy(self._graphc_array))


def is_pinned(self: Tensor, device: Any = None) -> bool:
    """Whether it lies in memory from which a device copies while the host goes on."""
    return (
        self._graphc_trace is None and place_at(self) is None and Pinned.holds(self._graphc_array)
    )


def record_stream(self: Tensor, stream: Any) -> None:
    """A stream other than the one it was made on uses the tensor's memory: once freed, it is not
    used again before that has happened. Raises RuntimeError for a tensor on the CPU."""
    buffer = held(self, "record_stream()", "call it outside the compiled function")
    if not isinstance(buffer, DeviceArray):
        raise RuntimeError(located("record_stream() is for tensors on a GPU, not on the CPU"))
    stream.uses(buffer)
