"""GPUs as devices that tensors lie on: registered when one is first asked for."""

from __future__ import annotations

import importlib
import threading
from typing import Any

from ..frontend import placement
from ..frontend.placement import Pinned, Place
from .available import gpus, index_of, is_available

_lock = threading.Lock()


def find(index: int | None) -> Place | None:
    """The Place of a GPU, None: of the current one. None: there is no such GPU."""
    number = index_of(index)
    if not is_available() or number >= len(gpus().devices):
        return None
    with _lock:
        found = registered(number)
        if found is None:
            devices = importlib.import_module("..engine.devices", __package__)  # the compiler
            devices.register("cuda", "cuda")
            Pinned.copy = gpus().pinned.array
            Pinned.holds = staticmethod(lambda array: gpus().pinned.holds(array.ctypes.data))
            Pinned.later = gpus().unwaited
            found = registered(number)
    return found


def registered(index: int) -> Place | None:
    """The Place of a GPU that was asked for before."""
    return next(
        (place for place in placement.places() if place.memory.place == f"cuda:{index}"), None
    )


def raise_failed(gpu: Any) -> None:
    """Raise what failed on a GPU, for which the caller has waited."""
    place = registered(gpu.index)
    if place is not None:
        place.memory.status.look()  # type: ignore[attr-defined]
