"""torch._C: the few names of PyTorch's compiled half that scripts touch."""

from __future__ import annotations

from typing import Any

from .frontend.tensor import Tensor

TensorBase = Tensor
_has_distributed = False


def _get_tracing_state() -> None:
    """None: TorchScript traces nothing."""


def _log_api_usage_once(event: str) -> None:
    """Nothing is logged."""


def _set_deterministic_algorithms(*args: Any, **kwargs: Any) -> None:
    """Nothing to do."""


def _get_privateuse1_backend_name() -> str:
    """The name of a backend that is not there."""
    return "privateuseone"


def _switch(default: bool) -> Any:
    def switch(value: Any = None) -> bool:
        return default

    switch.__doc__ = "TorchScript's executor is not here: nothing is switched."
    return switch


for _name in """
    set_texpr_fuser_enabled set_profiling_mode set_profiling_executor set_nvfuser_guard_mode
    set_nvfuser_enabled override_can_fuse_on_gpu override_can_fuse_on_cpu can_fuse_on_gpu
    can_fuse_on_cpu
""".split():
    globals()[f"_jit_{_name}"] = _switch(False)
