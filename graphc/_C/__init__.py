"""torch._C: the few names of PyTorch's compiled half that scripts touch."""

from __future__ import annotations

import enum
from types import SimpleNamespace
from typing import Any

from .. import overrides, unsupported
from ..backends import cudnn
from ..frontend import overriding
from ..frontend.context import local
from ..frontend.device import device
from ..frontend.functions.subclasses import dispatch_disabled
from ..frontend.overriding import DisableTorchFunction as DisableTorchFunction
from ..frontend.overriding import DisableTorchFunctionSubclass as DisableTorchFunctionSubclass
from ..frontend.subtrace import SubTrace
from ..frontend.tensor import Tensor
from ..ir.op import LinAlgError
from ..nn.modules.conversion import parse_to

TensorBase = Tensor
_TensorMeta = type(Tensor)
_LinAlgError = LinAlgError
# TorchScript's types, which some take for those of tensors and numbers
TensorType = unsupported.kind("torch.TensorType", "torch.Tensor is the type of tensors")
PyTorchFileReader = unsupported.kind("torch.PyTorchFileReader", "torch.load() reads such files")
_has_distributed = False
_disabled_torch_function_impl = overriding.disabled
_disabled_torch_dispatch_impl = dispatch_disabled
_has_torch_function = overrides.has_torch_function
_has_torch_function_unary = overrides.has_torch_function_unary
_has_torch_function_variadic = overrides.has_torch_function_variadic
_push_on_torch_function_stack = overriding.push_mode
_pop_torch_function_stack = overriding.pop_mode


SymFloat = unsupported.kind("torch.SymFloat", "a number under a trace is a Python number")
DeviceObjType = unsupported.kind("torch.DeviceObjType", "torch.device is the type of devices")
SymBool = unsupported.kind("torch.SymBool", "a comparison under a trace is a Python bool")


class _TorchFunctionState(enum.IntEnum):
    """What a thread has switched off of `__torch_function__`."""

    ENABLED = overriding.NOTHING
    SUBCLASSES_DISABLED = overriding.CLASSES
    ALL_DISABLED = overriding.ALL


def _get_torch_function_state() -> _TorchFunctionState:
    """What this thread has switched off."""
    return _TorchFunctionState(local.overriding_off)


def _set_torch_function_state(state: _TorchFunctionState) -> None:
    """Switch it off, or on."""
    local.overriding_off = int(state)


def _is_torch_function_enabled() -> bool:
    """Whether classes answer."""
    return local.overriding_off == overriding.NOTHING


def _is_torch_function_all_disabled() -> bool:
    """Whether neither classes nor modes answer."""
    return local.overriding_off == overriding.ALL


def _is_torch_function_mode_enabled() -> bool:
    """Whether there is a mode that answers."""
    return bool(local.function_modes) and local.overriding_off != overriding.ALL


def _len_torch_function_stack() -> int:
    """How many modes there are."""
    return len(local.function_modes)


def _get_function_stack_at(level: int) -> Any:
    """A mode; 0: the outermost."""
    return local.function_modes[level]


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


def _get_cudnn_enabled() -> bool:
    """Whether cuDNN may be used: torch.backends.cudnn.enabled."""
    return bool(cudnn.enabled)


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
