"""torch._C: the few names of PyTorch's compiled half that scripts touch."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from . import unsupported
from .frontend.context import local
from .frontend.device import device
from .frontend.subtrace import SubTrace
from .frontend.tensor import Tensor
from .nn.modules.conversion import parse_to

TensorBase = Tensor
_TensorMeta = type(Tensor)
PyTorchFileReader = unsupported.kind("torch.PyTorchFileReader", "torch.load() reads such files")
_has_distributed = False


SymFloat = unsupported.kind("torch.SymFloat", "a number under a trace is a Python number")
SymBool = unsupported.kind("torch.SymBool", "a comparison under a trace is a Python bool")


def _assert_async(condition: Tensor, message: str | None = None) -> None:
    """Raise RuntimeError at once where the condition, of one element, is False."""
    if not condition:
        raise RuntimeError(message or "Expected Tensor with single nonzero value, but got zero")


def _are_functorch_transforms_active() -> bool:
    """Whether the code runs in vmap(), grad(), ..., where a tensor's value may not be asked for."""
    return isinstance(local.trace, SubTrace)


def _parse_to(*args: Any, **kwargs: Any) -> tuple[Any, Any, bool, Any]:
    """The arguments of Module.to(): device, dtype, non_blocking, memory format."""
    place, dtype, layout = parse_to(*args, **kwargs)
    blocking = [value for value in args if isinstance(value, bool)]
    apart = bool(kwargs.get("non_blocking", blocking[:1] == [True]))
    return None if place is None else device(place), dtype, apart, layout


_nn = SimpleNamespace(_parse_to=_parse_to)


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
