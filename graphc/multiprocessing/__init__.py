"""torch.multiprocessing: the standard library's, with spawn() and sharing strategies.

Tensors sent through its queues are copied; `Tensor.share_memory_()` is refused.
"""

from __future__ import annotations

import multiprocessing
import multiprocessing.connection
from multiprocessing import *  # noqa: F403
from typing import Any

from . import spawn as _spawn_module
from .spawn import ProcessContext as ProcessContext
from .spawn import ProcessException as ProcessException
from .spawn import ProcessExitedException as ProcessExitedException
from .spawn import ProcessRaisedException as ProcessRaisedException
from .spawn import SpawnContext as SpawnContext
from .spawn import spawn as spawn
from .spawn import start_processes as start_processes

_strategy = "file_descriptor"


def get_all_sharing_strategies() -> set[str]:
    """The strategies' names."""
    return {"file_descriptor", "file_system"}


def get_sharing_strategy() -> str:
    """What was set; "file_descriptor" at first."""
    return _strategy


def set_sharing_strategy(new_strategy: str) -> None:
    """Noted: tensors are copied between processes. Raises AssertionError for another name."""
    global _strategy
    if new_strategy not in get_all_sharing_strategies():
        raise AssertionError(f"invalid sharing strategy: {new_strategy!r}")
    _strategy = new_strategy


def init_reductions() -> None:
    """Nothing to do: tensors pickle by themselves."""


def __getattr__(name: str) -> Any:
    return getattr(multiprocessing, name)
