"""What eager mode runs in the rest of a call that began as a recording: counted, not recorded.

To record an operator for the first time takes ten times as long as to run it. Where what was
recorded so far says that this will not pay, the rest of the call is plain eager code; whether later
calls are recorded is decided by the whole call, so its operators are counted.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

from graphc.ir.op import Attrs, Op
from graphc.ir.types import TensorType


class Signature(Protocol):
    """What eager mode knows of an operator (dispatch.py)."""

    inputs: tuple[TensorType, ...]
    results: tuple[Any, ...]


class Ran(NamedTuple):
    """One operator that ran."""

    op: Op
    attrs: Attrs
    signature: Signature


class EagerCount:
    """The operators that this thread runs in eager mode, and how often Python asked for a value."""

    def __init__(self) -> None:
        self.ran: list[Ran] = []
        self.demands = 0

    def note(self, op: Op, attrs: Attrs, signature: Signature) -> None:
        """Count an operator."""
        self.ran.append(Ran(op, attrs, signature))
