"""What is true of the running thread: its trace, and whether operations are recorded."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from graphc.ir.dtypes import DType

    from .trace import Trace


class _Local(threading.local):
    """Defaults are class attributes: a new thread starts untraced, with gradients on."""

    trace: Trace | None = None
    grad: bool = True
    inference: bool = False
    # the dtype of autocast for the CPU; None: it is off
    autocast: DType | None = None
    # what `with torch.device(...)` selected, outermost first, with what each restores
    devices: tuple[tuple[bool, object], ...] = ()
    # whether new memory says that it is on the meta device
    meta: bool = False


local = _Local()
