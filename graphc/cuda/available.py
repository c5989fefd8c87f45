"""Whether there is a GPU for torch.cuda, and the devices that the package is about."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar, cast

from .. import backends
from ..frontend.context import local
from ..frontend.device import device as _Device

F = TypeVar("F", bound=Callable[..., Any])


def gpus() -> Any:
    """The process's devices (backends/cuda/device.py: Gpus)."""
    return cast(Any, backends.get("cuda")).gpus


def is_available() -> bool:
    """Whether there is a driver, and a device. What is asked for the first time looks for them."""
    return device_count() > 0


def device_count() -> int:
    """How many GPUs tensors may lie on."""
    return len(gpus().devices)


def needs_gpu(function: F) -> F:
    """A function that raises AssertionError where there is no GPU."""

    @functools.wraps(function)
    def asked(*args: Any, **kwargs: Any) -> Any:
        if not is_available():
            raise AssertionError(
                f"Torch not compiled with CUDA enabled: torch.cuda.{function.__name__}() has no "
                f"GPU{_why()}. Cure: guard it with torch.cuda.is_available(), which is False here"
            )
        return function(*args, **kwargs)

    return cast(F, asked)


def _why() -> str:
    missing = gpus().missing
    return "" if missing is None else f" ({str(missing).partition(' Cure: ')[0].rstrip('.')})"


def index_of(selected: Any) -> int:
    """The number of a GPU; None, and "cuda" without a number: of the current one. Raises
    ValueError for another kind of device."""
    if isinstance(selected, int):
        return selected
    found = None if selected is None else _Device(selected)
    if found is not None and found.type != "cuda":
        raise ValueError(f"Expected a cuda device, but got: {found}")
    if found is None or found.index is None:
        current: int = gpus().current_index
        return current
    return found.index


def gpu(selected: Any = None) -> Any:
    """A GPU as the process uses it (backends/cuda/device.py: Device). Raises RuntimeError for one
    that is not there."""
    index, found = index_of(selected), gpus().devices
    if not 0 <= index < len(found):
        raise RuntimeError(
            f"CUDA error: invalid device ordinal {index}: there are {len(found)}. Cure: a number "
            "below torch.cuda.device_count()"
        )
    return found[index]


def end_recording(what: str) -> None:
    """Under a trace, what was recorded until now is begun: what comes next is about the work that
    a GPU was given."""
    if local.trace is not None:
        local.trace.end_segment(what)
