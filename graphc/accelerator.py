"""torch.accelerator: the device besides the CPU that was registered first (engine/devices.py)."""

from __future__ import annotations

import importlib
from types import ModuleType
from typing import Any, NoReturn

from .frontend.device import device
from .frontend.device import device as _device_of
from .frontend.errors import located
from .frontend.placement import Place, look, place_of, places


def is_available() -> bool:
    """Whether there is a device besides the CPU."""
    return bool(_all())


def device_count() -> int:
    """How many devices of the accelerator's type there are."""
    return len(_all())


def current_accelerator(check_available: bool = False) -> device | None:
    """The accelerator's type as a device; None: there is none."""
    return device(_all()[0].device.type) if _all() else None


def current_device_index() -> int:
    """Which of the accelerators is the current one: always the first. Raises RuntimeError where
    there is none."""
    return _one("current_device_index").device.index or 0


def synchronize(device: Any = None) -> None:
    """Wait until a device (None: the current one) has done all that it was asked for. Raises what
    failed there, and RuntimeError where there is no such device."""
    current = _one("synchronize")
    place = current if device is None else place_of(
        f"{current.device.type}:{device}" if isinstance(device, int) else device
    )
    if place is not None:
        place.memory.synchronise()


def get_device_module(device: Any = None) -> ModuleType:
    """torch.cuda, torch.cpu, ...: the module of a device's type (None: the accelerator's, or else
    the CPU's). Raises RuntimeError where graphc has none."""
    place = _device_of(device) if device is not None else current_accelerator() or _device_of("cpu")
    try:
        return importlib.import_module(f"{__package__}.{place.type}")
    except ModuleNotFoundError:
        raise RuntimeError(located(
            f"Device '{place.type}' does not have a corresponding module registered as "
            f"'torch.{place.type}'."
        )) from None


def _all() -> list[Place]:
    look()
    found = [place for place in places() if place.backend is not None]
    return [place for place in found if place.device.type == found[0].device.type]


def _one(name: str) -> Place:
    if not _all():
        _none(name)()
    return _all()[0]


def _none(name: str) -> Any:
    def needs(*args: Any, **kwargs: Any) -> NoReturn:
        if _all():
            raise NotImplementedError(located(f"graphc does not have torch.accelerator.{name}()"))
        raise RuntimeError(located(
            f"torch.accelerator.{name}(): no accelerator is available. Cure: ask "
            "torch.accelerator.is_available() first, which is False here"
        ))

    needs.__name__ = name
    needs.__doc__ = "Raises RuntimeError where there is no accelerator, else NotImplementedError."
    return needs


current_device_idx = current_device_index
for _name in """
    set_device_index set_device_idx current_stream set_stream device_index get_device_capability
    get_memory_info
""".split():
    globals()[_name] = _none(_name)


def empty_cache() -> None:
    """Nothing to do."""


def memory_allocated(device_index: Any = None) -> int:
    """0."""
    return 0


memory_reserved = max_memory_allocated = max_memory_reserved = memory_allocated


def reset_peak_memory_stats(device_index: Any = None) -> None:
    """Nothing to do."""


def __getattr__(name: str) -> Any:  # for type checkers: some names come from a loop
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
