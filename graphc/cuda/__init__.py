"""torch.cuda: says truthfully that this build has no CUDA backend.

What asks ("is there a GPU?") answers; what only configures or measures does nothing; what needs
a GPU raises.
"""

from __future__ import annotations

import importlib
from collections import OrderedDict
from typing import Any, NoReturn

from ..frontend.functions.dtype_names import TYPE_STRINGS
from .available import is_available as is_available
from .streams import CUDAGraph as CUDAGraph
from .streams import Event as Event
from .streams import ExternalStream as ExternalStream
from .streams import MemPool as MemPool
from .streams import Stream as Stream
from .streams import StreamContext as StreamContext
from .streams import device as device
from .streams import device_of as device_of
from .streams import graph as graph
from .streams import set_stream as set_stream
from .streams import stream as stream


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
    raise AssertionError(
        f"Torch not compiled with CUDA enabled: torch.cuda.{what} has no GPU in this build of "
        "graphc. Cure: guard it with torch.cuda.is_available(), which is False here"
    )


def _needs_gpu(name: str) -> Any:
    def function(*args: Any, **kwargs: Any) -> NoReturn:
        _missing(f"{name}()")

    function.__name__ = name
    function.__doc__ = "Raises AssertionError: there is no GPU."
    return function


current_device = _needs_gpu("current_device")
get_device_name = _needs_gpu("get_device_name")
get_device_properties = _needs_gpu("get_device_properties")
get_device_capability = _needs_gpu("get_device_capability")
set_device = _needs_gpu("set_device")
synchronize = _needs_gpu("synchronize")
current_stream = _needs_gpu("current_stream")
mem_get_info = _needs_gpu("mem_get_info")
default_stream = _needs_gpu("default_stream")
get_rng_state = _needs_gpu("get_rng_state")
set_rng_state = _needs_gpu("set_rng_state")
initial_seed = _needs_gpu("initial_seed")
cudart = _needs_gpu("cudart")
utilization = _needs_gpu("utilization")
graph_pool_handle = _needs_gpu("graph_pool_handle")
make_graphed_callables = _needs_gpu("make_graphed_callables")
set_per_process_memory_fraction = _needs_gpu("set_per_process_memory_fraction")


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
memory_cached = _nothing("memory_cached", 0)
max_memory_cached = _nothing("max_memory_cached", 0)
reset_max_memory_cached = _nothing("reset_max_memory_cached")
reset_accumulated_memory_stats = _nothing("reset_accumulated_memory_stats")
seed = _nothing("seed")
set_rng_state_all = _nothing("set_rng_state_all")
is_current_stream_capturing = _nothing("is_current_stream_capturing", False)
can_device_access_peer = _nothing("can_device_access_peer", False)


def get_rng_state_all() -> list[Any]:
    """No GPU, so no states."""
    return []


def get_arch_list() -> list[str]:
    """No architectures."""
    return []


def memory_stats(device: Any = None) -> OrderedDict[str, Any]:
    """Nothing is counted."""
    return OrderedDict()


def memory_summary(device: Any = None, abbreviated: bool = False) -> str:
    """A line that says that nothing is counted."""
    return "torch.cuda memory summary: no GPU, so no CUDA memory is allocated or reserved"


class OutOfMemoryError(RuntimeError):
    """Never raised: there is no GPU."""


class _CudaType(type):
    """torch.cuda.FloatTensor: nothing is one."""

    def __call__(cls, *args: Any, **kwargs: Any) -> NoReturn:
        raise TypeError(
            f"type torch.cuda.{cls.__name__} not available. Torch not compiled with CUDA enabled. "
            f"Cure: torch.{cls.__name__}, or device='cpu'"
        )

    def __instancecheck__(cls, instance: Any) -> bool:
        return False


def __getattr__(name: str) -> Any:
    if name == "amp":
        return importlib.import_module(".amp", __name__)
    if name in TYPE_STRINGS:
        return _CudaType(name, (), {"__module__": "torch.cuda"})
    raise AttributeError(f"module 'graphc.cuda' has no attribute {name!r}")
