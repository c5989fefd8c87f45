"""torch.cuda: GPUs, where there are any.

What asks ("is there a GPU?") answers; where there is none, what only configures or measures does
nothing, and what needs one raises. Nothing is looked for before it is asked for.
"""

from __future__ import annotations

import importlib
from typing import Any

from ..frontend.functions.dtype_names import TYPE_STRINGS
from ..frontend.functions.tensor_types import construct
from ..frontend.tensor import Tensor
from ..ir.memory import AcceleratorError as AcceleratorError
from ..ir.memory import OutOfMemoryError as OutOfMemoryError
from . import absent as _absent
from . import memory as memory
from . import random as random
from . import streams as streams
from .available import device_count as device_count
from .available import is_available as is_available
from .cudart import CudaError as CudaError
from .cudart import check_error as check_error
from .cudart import cudart as cudart
from .devices import can_device_access_peer as can_device_access_peer
from .devices import current_device as current_device
from .devices import device as device
from .devices import device_of as device_of
from .devices import get_arch_list as get_arch_list
from .devices import get_device_capability as get_device_capability
from .devices import get_device_name as get_device_name
from .devices import get_device_properties as get_device_properties
from .devices import get_gencode_flags as get_gencode_flags
from .devices import get_sync_debug_mode as get_sync_debug_mode
from .devices import init as init
from .devices import ipc_collect as ipc_collect
from .devices import is_bf16_supported as is_bf16_supported
from .devices import is_initialized as is_initialized
from .devices import is_tf32_supported as is_tf32_supported
from .devices import mem_get_info as mem_get_info
from .devices import set_device as set_device
from .devices import set_sync_debug_mode as set_sync_debug_mode
from .devices import synchronize as synchronize
from .graphs import CUDAGraph as CUDAGraph
from .graphs import MemPool as MemPool
from .graphs import graph as graph
from .graphs import graph_pool_handle as graph_pool_handle
from .graphs import is_current_stream_capturing as is_current_stream_capturing
from .graphs import make_graphed_callables as make_graphed_callables
from .memory import empty_cache as empty_cache
from .memory import get_allocator_backend as get_allocator_backend
from .memory import get_per_process_memory_fraction as get_per_process_memory_fraction
from .memory import max_memory_allocated as max_memory_allocated
from .memory import max_memory_cached as max_memory_cached
from .memory import max_memory_reserved as max_memory_reserved
from .memory import memory_allocated as memory_allocated
from .memory import memory_cached as memory_cached
from .memory import memory_reserved as memory_reserved
from .memory import memory_stats as memory_stats
from .memory import memory_stats_as_nested_dict as memory_stats_as_nested_dict
from .memory import memory_summary as memory_summary
from .memory import reset_accumulated_memory_stats as reset_accumulated_memory_stats
from .memory import reset_max_memory_allocated as reset_max_memory_allocated
from .memory import reset_max_memory_cached as reset_max_memory_cached
from .memory import reset_peak_memory_stats as reset_peak_memory_stats
from .memory import set_per_process_memory_fraction as set_per_process_memory_fraction
from .random import get_rng_state as get_rng_state
from .random import get_rng_state_all as get_rng_state_all
from .random import initial_seed as initial_seed
from .random import manual_seed as manual_seed
from .random import manual_seed_all as manual_seed_all
from .random import seed as seed
from .random import seed_all as seed_all
from .random import set_rng_state as set_rng_state
from .random import set_rng_state_all as set_rng_state_all
from .streams import Event as Event
from .streams import ExternalStream as ExternalStream
from .streams import Stream as Stream
from .streams import StreamContext as StreamContext
from .streams import current_stream as current_stream
from .streams import default_stream as default_stream
from .streams import get_stream_from_external as get_stream_from_external
from .streams import set_stream as set_stream
from .streams import stream as stream

has_half, has_magma = True, False
_lazy_init = init


class _CudaType(type):
    """The type of torch.cuda.FloatTensor: makes tensors on the current GPU."""

    def __call__(cls, *args: Any) -> Tensor:
        if not is_available():
            raise TypeError(
                f"type torch.cuda.{cls.__name__} not available. Torch not compiled with CUDA "
                f"enabled. Cure: torch.{cls.__name__}, or device='cpu'"
            )
        return construct(TYPE_STRINGS[cls.__name__], args, device="cuda")

    def __instancecheck__(cls, instance: Any) -> bool:
        return isinstance(instance, Tensor) and instance.is_cuda and (
            instance.dtype is TYPE_STRINGS[cls.__name__]
        )


def __getattr__(name: str) -> Any:
    if name in ("amp", "nvtx", "graphs", "nccl", "profiler", "_utils"):
        return importlib.import_module(f".{name}", __name__)
    if name == "_initialized":
        return is_initialized()
    if name == "default_generators":
        return random.generators()
    if name in _absent.NAMES:
        return _absent.NAMES[name]
    if name in TYPE_STRINGS:
        return _CudaType(name, (), {"__module__": "torch.cuda"})
    raise AttributeError(f"module 'graphc.cuda' has no attribute {name!r}")
