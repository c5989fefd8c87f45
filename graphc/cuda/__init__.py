"""torch.cuda: says truthfully that this build has no CUDA backend.

What asks ("is there a GPU?") answers; what only configures or measures does nothing; what needs
a GPU raises.
"""

from __future__ import annotations

import importlib
from typing import Any, NoReturn

from ..frontend.functions.dtype_names import TYPE_STRINGS


def is_available() -> bool:
    """False."""
    return False


def device_count() -> int:
    """0."""
    return 0


def is_initialized() -> bool:
    """False."""
    return False


def is_bf16_supported(including_emulation: bool = True) -> bool:
    """False."""
    return False


def _missing(what: str) -> NoReturn:
    raise RuntimeError(
        f"torch.cuda.{what}: no CUDA backend in this build of graphc. Cure: guard it with "
        "torch.cuda.is_available(), which is False here"
    )


def _needs_gpu(name: str) -> Any:
    def function(*args: Any, **kwargs: Any) -> NoReturn:
        _missing(f"{name}()")

    function.__name__ = name
    function.__doc__ = "Raises RuntimeError: there is no GPU."
    return function


current_device = _needs_gpu("current_device")
get_device_name = _needs_gpu("get_device_name")
get_device_properties = _needs_gpu("get_device_properties")
get_device_capability = _needs_gpu("get_device_capability")
set_device = _needs_gpu("set_device")
synchronize = _needs_gpu("synchronize")
current_stream = _needs_gpu("current_stream")
mem_get_info = _needs_gpu("mem_get_info")
Stream = _needs_gpu("Stream")
Event = _needs_gpu("Event")


def _nothing(name: str, result: Any = None) -> Any:
    def function(*args: Any, **kwargs: Any) -> Any:
        return result

    function.__name__ = name
    function.__doc__ = "Nothing to do without a GPU."
    return function


manual_seed = _nothing("manual_seed")
manual_seed_all = _nothing("manual_seed_all")
seed_all = _nothing("seed_all")
empty_cache = _nothing("empty_cache")
init = _nothing("init")
ipc_collect = _nothing("ipc_collect")
reset_peak_memory_stats = _nothing("reset_peak_memory_stats")
reset_max_memory_allocated = _nothing("reset_max_memory_allocated")
memory_allocated = _nothing("memory_allocated", 0)
max_memory_allocated = _nothing("max_memory_allocated", 0)
memory_reserved = _nothing("memory_reserved", 0)
max_memory_reserved = _nothing("max_memory_reserved", 0)


class OutOfMemoryError(RuntimeError):
    """Never raised: there is no GPU."""


class _CudaType(type):
    """torch.cuda.FloatTensor: nothing is one."""

    def __call__(cls, *args: Any, **kwargs: Any) -> NoReturn:
        _missing(f"{cls.__name__}()")

    def __instancecheck__(cls, instance: Any) -> bool:
        return False


def __getattr__(name: str) -> Any:
    if name == "amp":
        return importlib.import_module(".amp", __name__)
    if name in TYPE_STRINGS:
        return _CudaType(name, (), {"__module__": "torch.cuda"})
    raise AttributeError(f"module 'graphc.cuda' has no attribute {name!r}")
