"""torch.device: where a tensor lives."""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType
from typing import Any

from .context import local


class Placing:
    """Set by placement.py: the Place of a device, None for the CPU."""

    find: Callable[[Any], Any]


# torch's device types: a name for each, tensors on two of them
_TYPES = (
    "cpu cuda ipu xpu mkldnn opengl opencl ideep hip ve fpga maia xla lazy vulkan mps meta hpu "
    "mtia privateuseone"
).split()
registered: set[str] = set()  # types of devices that placement.register() has been told of


class device:  # torch spells this class in lower case
    """`device("cpu")`, `device("cuda", 0)`, `device("cuda:0")` or a device."""

    __slots__ = ("index", "type")

    type: str
    index: int | None

    def __init__(self, type: str | device | int = "cpu", index: int | None = None) -> None:
        if isinstance(type, int):
            type = f"cuda:{type}"
        if isinstance(type, device):
            type = str(type)
        if not isinstance(type, str):
            raise TypeError(f"device(): argument 'type' must be str, not {type!r}")
        name, colon, number = type.partition(":")
        if colon:
            if index is not None:
                raise RuntimeError(f"type (string) must not include an index, got {type!r}")
            if not number.isdigit():
                raise RuntimeError(f"Invalid device string: {type!r}")
            index = int(number)
        if name not in _TYPES and name not in registered:
            raise RuntimeError(
                f"Expected one of {', '.join(_TYPES)} device type at start of device string: {type}"
            )
        self.type = name
        self.index = index

    def __enter__(self) -> device:
        """New tensors are made here. Raises RuntimeError for a device that is not there."""
        place = Placing.find(self)
        local.devices += (local.place,)
        local.place = place
        return self

    def __exit__(
        self, kind: object, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        *rest, local.place = local.devices
        local.devices = tuple(rest)

    def __repr__(self) -> str:
        tail = "" if self.index is None else f", index={self.index}"
        return f"device(type='{self.type}'{tail})"

    def __str__(self) -> str:
        return self.type if self.index is None else f"{self.type}:{self.index}"

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, device) and (self.type, self.index) == (other.type, other.index)
        )

    def __hash__(self) -> int:
        return hash((self.type, self.index))

    def __reduce__(self) -> tuple[object, tuple[str, int | None]]:
        return (device, (self.type, self.index))


CPU = device("cpu")
