"""What torch.mps, torch.xpu and torch.mtia are where there is no such device."""

from __future__ import annotations

from typing import Any

from . import unsupported


def _no() -> bool:
    """False."""
    return False


def _none_of_them() -> int:
    """0."""
    return 0


def _nothing(*args: Any, **kwargs: Any) -> None:
    """Nothing to do without the device."""


def names(package: str) -> dict[str, Any]:
    """The names of a device's package."""
    nothing = ("manual_seed", "manual_seed_all", "seed", "seed_all", "empty_cache")
    cure = f"ask {package}.is_available() first, which is False here"
    return {
        "is_available": _no, "is_initialized": _no, "device_count": _none_of_them,
        **dict.fromkeys(nothing, _nothing),
        **unsupported.table(package, cure, functions="""
            synchronize current_device set_device get_device_name get_device_properties
            current_stream stream get_rng_state set_rng_state current_allocated_memory
            driver_allocated_memory memory_allocated max_memory_allocated memory_reserved
            set_per_process_memory_fraction
        """, kinds="Stream Event"),
    }
