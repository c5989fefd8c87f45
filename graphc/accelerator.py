"""torch.accelerator: says truthfully that there is none."""

from __future__ import annotations

from typing import Any, NoReturn

from .frontend.device import device
from .frontend.errors import located


def is_available() -> bool:
    """False."""
    return False


def device_count() -> int:
    """0."""
    return 0


def current_accelerator(check_available: bool = False) -> device | None:
    """None."""
    return None


def _none(name: str) -> Any:
    def needs(*args: Any, **kwargs: Any) -> NoReturn:
        raise RuntimeError(located(
            f"torch.accelerator.{name}(): no accelerator is available. Cure: ask "
            "torch.accelerator.is_available() first, which is False here"
        ))

    needs.__name__ = name
    needs.__doc__ = "Raises RuntimeError: there is no accelerator."
    return needs


for _name in """
    current_device_index current_device_idx set_device_index set_device_idx current_stream
    set_stream synchronize device_index get_device_capability get_memory_info
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
