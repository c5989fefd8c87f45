"""torch.multiprocessing: the standard library's, with spawn() and sharing strategies.

As in torch, a tensor given to a process or sent through a queue or pipe moves to shared memory:
both sides see the same values from then on. A process that sends one must live until it has
been received.
"""

from __future__ import annotations

import multiprocessing
import multiprocessing.connection
from multiprocessing import *  # noqa: F403
from typing import Any

from .reductions import init_reductions as init_reductions
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
    """Noted: file descriptors are used in any case. Raises AssertionError for another name."""
    global _strategy
    if new_strategy not in get_all_sharing_strategies():
        raise AssertionError(f"invalid sharing strategy: {new_strategy!r}")
    _strategy = new_strategy


init_reductions()


def __getattr__(name: str) -> Any:
    return getattr(multiprocessing, name)
