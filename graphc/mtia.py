"""torch.mtia: says truthfully that there is no such device."""

from __future__ import annotations

from typing import Any

from . import unsupported

_CURE = "ask torch.mtia.is_available() first, which is False here"


def is_available() -> bool:
    """False."""
    return False


def device_count() -> int:
    """0."""
    return 0


def is_initialized() -> bool:
    """False."""
    return False


def _nothing(*args: Any, **kwargs: Any) -> None:
    """Nothing to do without the device."""


manual_seed = manual_seed_all = seed = seed_all = empty_cache = _nothing
globals().update(unsupported.table("torch.mtia", _CURE, functions="""
    synchronize current_device set_device get_device_name get_device_properties current_stream
    stream get_rng_state set_rng_state current_allocated_memory driver_allocated_memory
    memory_allocated max_memory_allocated memory_reserved set_per_process_memory_fraction
""", kinds="Stream Event"))
