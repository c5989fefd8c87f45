"""torch.device: where a tensor lives."""

from __future__ import annotations

from types import TracebackType
from typing import Any

from .context import local
from .errors import located


class Injected:
    """Set by random_state: the default generator, which the meta device does not draw from."""

    generator: Any = None


# torch's device types: a name for each, tensors on two of them
_TYPES = (
    "cpu cuda ipu xpu mkldnn opengl opencl ideep hip ve fpga maia xla lazy vulkan mps meta hpu "
    "mtia privateuseone"
).split()


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
        if name not in _TYPES:
            raise RuntimeError(
                f"Expected one of {', '.join(_TYPES)} device type at start of device string: {type}"
            )
        self.type = name
        self.index = index

    def __enter__(self) -> device:
        """New tensors are made here: on the CPU, or on "meta".

        graphc computes meta tensors like others, so their values are sound; what they draw from
        the default generator is given back.
        """
        meta = self.type == "meta"
        if not meta:
            check_device(self)
        drawn = meta and local.trace is None
        local.devices += ((local.meta, Injected.generator.get_state() if drawn else None),)
        local.meta = meta
        return self

    def __exit__(
        self, kind: object, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        *rest, (local.meta, state) = local.devices
        local.devices = tuple(rest)
        if state is not None:
            Injected.generator.set_state(state)

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


def check_device(given: Any) -> None:
    """Raise RuntimeError for a device other than the CPU, and "meta" where it is selected."""
    if given is None or given == "cpu":
        return
    kind = device(given).type
    if kind == "cuda":
        raise RuntimeError(located(
            "no CUDA backend in this build of graphc: use device='cpu' (torch.cuda.is_available() "
            "is False)"
        ))
    if kind == "meta" and not local.meta:
        raise NotImplementedError(located(
            "graphc has no tensors without data: device 'meta' is not supported here. Cure: leave "
            "the device out, make the model inside `with torch.device('meta'):` (its values are "
            "computed), or use torch.nn.utils.skip_init()"
        ))
    if kind not in ("cpu", "meta"):
        raise RuntimeError(located(f"device {str(given)!r} is not supported: use 'cpu'"))


CPU = device("cpu")
META = device("meta")
