"""What eager mode runs in the rest of a call that began as a recording: counted, not recorded.

To record an operator for the first time takes ten times as long as to run it. Where what was
recorded so far says that this will not pay, the rest of the call is plain eager code; whether later
calls are recorded is decided by the whole call, so its operators are counted.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Protocol, TypeVar

from graphc.ir.graph import Loc
from graphc.ir.named import NamedTuple
from graphc.ir.op import Attrs, Op
from graphc.ir.types import TensorType

from .context import local
from .errors import user_location

_Item = TypeVar("_Item")


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

    def __init__(self, awaited: frozenset[tuple[str, int, bool]] = frozenset()) -> None:
        """`awaited`: files and lines where it is thought to ask for one, and whether by bool(): on
        other lines eager mode itself looks at some values so."""
        self.awaited = awaited
        self.ran: list[Ran] = []
        self.again = 0  # of these, in later iterations of loops that a recording has as one
        self.demands = 0
        self.first: tuple[str, Loc] | None = None  # what did so first on such a line

    def note(self, op: Op, attrs: Attrs, signature: Signature) -> None:
        """Count an operator."""
        self.ran.append(Ran(op, attrs, signature))

    def gave(
        self, op: Op, inputs: tuple[Any, ...], attrs: Attrs, signature: Signature,
        results: tuple[Any, ...],
    ) -> None:
        """What an operator gave is of no interest here."""

    def detached(self, x: Any, result: Any) -> None:
        """Nor is a tensor without its history."""

    def looked(self) -> None:
        """Nor is how a tensor lies in memory."""

    def wrote(self) -> None:
        """Nor is a write."""

    def warned(self) -> None:
        """Nor is a warning."""

    def demand(self, what: str) -> None:
        """Count a value that Python asks for."""
        self.demands += 1
        if self.awaited and self.first is None:
            loc = user_location()
            if loc is not None and (loc.file, loc.line, what == "bool(tensor)") in self.awaited:
                self.first = what, loc


def iterations(items: Iterable[_Item]) -> Iterator[_Item]:
    """The items, for a loop whose body a recording takes once: what runs behind its first
    iteration is counted as work, and not as operators to record."""
    counted = local.counted
    if counted is None or not hasattr(counted, "ran"):
        yield from items
        return
    first = again = -1
    for item in items:
        yield item
        if first < 0:
            first, again = len(counted.ran), counted.again
        counted.again = again + len(counted.ran) - first
