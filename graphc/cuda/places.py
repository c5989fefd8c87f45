"""GPUs as devices that tensors lie on: registered when one is first asked for."""

from __future__ import annotations

import importlib
import threading
from typing import Any

from .. import backends, config
from ..frontend import placement
from ..frontend.placement import Pinned, Place, Streams
from .available import gpu, gpus, is_available

_lock = threading.Lock()


def find(index: int | None) -> Place | None:
    """The Place of a GPU; None: of the current one. None where there is no GPU at all; raises
    RuntimeError for a number beyond those there are."""
    if not is_available():
        return None
    number = gpu(index).index
    with _lock:
        found = registered(number)
        if found is None:
            devices = importlib.import_module("..engine.devices", __package__)  # the compiler
            devices.register("cuda", _backend(number))
            gpu(number).blocking = bool(config.current().cuda_launch_blocking)
            Pinned.copy = gpus().pinned.array
            Pinned.holds = staticmethod(lambda array: gpus().pinned.holds(array.ctypes.data))
            Pinned.later = gpus().unwaited
            Streams.current, Streams.order = staticmethod(_current), staticmethod(_order)
            found = registered(number)
    return found


def _current(place: Place) -> int:
    found: int = gpu(place.device.index).current_stream()
    return found


def _order(place: Place, waiting: int, behind: int) -> None:
    found = gpu(place.device.index)
    if waiting != behind:
        found.activate()
        event = found.driver.create_event()
        found.driver.record(event, behind)
        found.driver.order(waiting, event)
        found.driver.destroy_event(event)


def _backend(index: int) -> str:
    """The name of the backend whose memory is a GPU's."""
    if index == 0:
        return "cuda"
    first: Any = backends.get("cuda")
    name = f"cuda:{index}"
    backends.register(name, lambda: first.on(index), ("debug",))
    return name


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
