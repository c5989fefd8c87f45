"""torch._inductor: flags, and what the modes of torch.compile set."""

from __future__ import annotations

from typing import Any

from . import config as config

MODES: dict[str, dict[str, Any]] = {
    "default": {},
    "lite": {},
    "reduce-overhead": {"triton.cudagraphs": True},
    "max-autotune-no-cudagraphs": {"max_autotune": True, "triton.cudagraphs": False},
    "max-autotune": {"max_autotune": True, "triton.cudagraphs": True},
}


def list_mode_options(mode: str | None = None, dynamic: bool | None = None) -> dict[str, Any]:
    """The options that each mode of torch.compile stands for, or those of one."""
    if mode is not None:
        return dict(MODES[mode])
    return {name: dict(options) for name, options in MODES.items()}
