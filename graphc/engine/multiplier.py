"""Who multiplies matrices on a GPU, as it is set."""

from __future__ import annotations

from ..config import Config, current
from ..frontend.float32 import has_gpu
from ..frontend.functions.settings import are_deterministic_algorithms_enabled


def multiplier(config: Config) -> str:
    """GRAPHC_CUDA_LIBRARIES, but that who wants deterministic algorithms has generated code, whose
    sums do not hang on the device's model."""
    return "0" if are_deterministic_algorithms_enabled() else config.cuda_libraries


def is_tuned(config: Config) -> bool:
    """GRAPHC_MAX_AUTOTUNE, but where deterministic algorithms are asked for: what is timed may be
    taken today and not tomorrow."""
    return bool(config.max_autotune) and not are_deterministic_algorithms_enabled()


def in_force() -> tuple[str, bool] | None:
    """What code hangs on; None: on nothing, where no GPU is used."""
    if not has_gpu():
        return None
    return multiplier(current()), are_deterministic_algorithms_enabled()
