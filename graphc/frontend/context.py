"""What is true of the running thread: its trace, and whether operations are recorded."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from types import FrameType

    from graphc.ir.dtypes import DType

    from .eager_count import EagerCount
    from .placement import Place
    from .trace import Trace


class _Local(threading.local):
    """Defaults are class attributes: a new thread starts untraced, with gradients on."""

    trace: Trace | None = None
    grad: bool = True
    inference: bool = False
    # the dtype of autocast for each type of device on which it is on; None: it is off everywhere
    autocast: tuple[tuple[str, DType], ...] | None = None
    # where new tensors were made outside each `with torch.device(...)`, outermost first
    devices: tuple[Place | None, ...] = ()
    # where new tensors are made; None: on the CPU
    place: Place | None = None
    # of a function that is making tensors: where its operators without inputs run
    making: tuple[Any, ...] | None = None
    # who answers no call: 0, classes (1), classes and modes (2); the modes that do, innermost last;
    # how many this thread has entered (overriding.py)
    overriding_off: int = 0
    function_modes: tuple[Any, ...] = ()
    modes_entered: int = 0
    overriding_skips: bool = False  # the next call is answered by nobody
    exporting: bool = False
    # whether eager mode runs what a recording, or a version, is to be
    instead: bool = False
    # what calls a function of a Module in a function that runs in segments: (function, Module,
    # args, kwargs)
    nested: Callable[[Callable[..., Any], Any, Any, Any], Any] | None = None
    # hooks in force on what the tape saves, innermost last (saved_hooks.py): (pack, unpack)
    saved_hooks: tuple[tuple[Callable[[Any], Any], Callable[[Any], Any]], ...] = ()
    # what counts the operators of eager mode
    counted: EagerCount | None = None
    # what a recording makes of a user's function that graphc's own code calls
    enter: Callable[[Any], Any] | None = None
    # where the user's line is looked for, and in what called it; None: in what runs
    innermost: FrameType | None = None


local = _Local()


class Suspended:
    """A context in which this thread records nothing."""

    __slots__ = ("_saved",)

    def __enter__(self) -> None:
        self._saved, local.trace = local.trace, None

    def __exit__(self, *error: object) -> None:
        local.trace = self._saved


class Uncounted:
    """A context in which nothing that runs eagerly is counted: graphc's own questions, which a
    recording does not ask."""

    __slots__ = ("_saved",)

    def __enter__(self) -> None:
        self._saved, local.counted = local.counted, None

    def __exit__(self, *error: object) -> None:
        local.counted = self._saved


def callout(function: Any) -> Any:
    """A user's function (a hook, a custom Function's backward) for graphc's own code to call."""
    return function if local.enter is None else local.enter(function)
