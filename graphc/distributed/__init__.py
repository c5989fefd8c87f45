"""torch.distributed: not available. Questions are answered for one process; the rest raises."""

from __future__ import annotations

import enum
import importlib
from typing import Any

from .. import unsupported

_CURE = "guard it with torch.distributed.is_available() and is_initialized(), which are False here"


def is_available() -> bool:
    """False."""
    return False


is_initialized = is_nccl_available = is_gloo_available = is_mpi_available = is_available
is_ucc_available = is_xccl_available = is_torchelastic_launched = is_backend_available = (
    lambda *args: False  # they take a backend's name, or nothing
)


def get_rank(group: Any = None) -> int:
    """0."""
    return 0


def get_world_size(group: Any = None) -> int:
    """1."""
    return 1


def get_node_local_rank(fallback_rank: int | None = None) -> int:
    """0."""
    return 0


class ReduceOp(enum.Enum):
    """How values of several processes would be combined."""

    SUM = 0
    AVG = 1
    PRODUCT = 2
    MIN = 3
    MAX = 4
    BAND = 5
    BOR = 6
    BXOR = 7
    PREMUL_SUM = 8


class group:  # torch spells this class in lower case
    """The default group's place."""

    WORLD: Any = None


class Backend(str):
    """A backend's name, in lower case."""

    UNDEFINED = "undefined"
    GLOO = "gloo"
    NCCL = "nccl"
    UCC = "ucc"
    MPI = "mpi"
    XCCL = "xccl"

    def __new__(cls, name: str) -> Backend:
        return str.__new__(cls, name.lower())


GroupMember = group
dist_backend = Backend

globals().update(unsupported.table("torch.distributed", _CURE, functions="""
    init_process_group destroy_process_group new_group get_backend barrier monitored_barrier
    all_reduce all_reduce_coalesced reduce broadcast broadcast_object_list all_gather
    all_gather_object all_gather_into_tensor gather gather_object scatter scatter_object_list
    reduce_scatter reduce_scatter_tensor all_to_all all_to_all_single send recv isend irecv
    batch_isend_irecv get_group_rank get_global_rank get_process_group_ranks
    get_default_backend_for_device init_device_mesh new_subgroups
""", kinds="ProcessGroup Store TCPStore FileStore HashStore PrefixStore P2POp Work"))

_MODULES = frozenset("autograd checkpoint device_mesh fsdp nn optim rpc tensor".split())


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return importlib.import_module(f".{name}", __name__)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
