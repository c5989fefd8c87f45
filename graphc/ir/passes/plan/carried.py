"""Where a loop keeps a value that it carries from iteration to iteration.

Two buffers take turns: iteration i reads number i % 2 and writes the other. Or, where a scan
stacks what its steps begin or end with, the value has a row for each iteration and one more: a
step reads one and writes the next, so what is stacked lies there already, without a copy.
"""

from __future__ import annotations

from dataclasses import dataclass

from ...dim import Dim, Size, mod, unwrap
from ...graph import Node
from ...kernel import BufferRef
from .step import Storage, moved


@dataclass(frozen=True, eq=False)
class Turns:
    """Two buffers that take turns."""

    even: Storage
    odd: Storage

    @classmethod
    def of(cls, value: Node) -> Turns:
        """Buffers for a carried value."""
        return cls(Storage.of(value.tensor_type), Storage.of(value.tensor_type))

    @property
    def scratch(self) -> tuple[Storage, ...]:
        """What the loop needs while it runs."""
        return self.even, self.odd

    @property
    def first(self) -> BufferRef:
        """Where the first iteration finds the value."""
        return self.even.ref()

    def current(self, var: str) -> BufferRef:
        """Where an iteration finds it; behind the loop, where it is left."""
        return moved(self.even.ref(), mod(Dim.var(var), 2) * (self.odd.offset - self.even.offset))

    def next(self, var: str) -> BufferRef:
        """Where an iteration leaves it."""
        return moved(self.odd.ref(), mod(Dim.var(var), 2) * (self.even.offset - self.odd.offset))


class Trail:
    """Rows, one more than there are iterations; a loop in `reverse` begins with the last."""

    scratch: tuple[Storage, ...] = ()  # its parts are results of the loop

    def __init__(self, value: Node, length: Size, reverse: bool) -> None:
        self.row = Storage.of(value.tensor_type)
        self.length, self.reverse = length, reverse
        whole = Storage(self.row.dtype, unwrap(self.row.elements * (length + 1)))
        self.whole = whole
        early, late = (
            Storage(whole.dtype, unwrap(self.row.elements * length), whole=whole, start=start)
            for start in (0, self.row.size)
        )
        self.began, self.ended = (late, early) if reverse else (early, late)  # stacked
        self.last = Storage(
            whole.dtype, self.row.elements, whole=whole, start=self._offset(length)
        )

    def _offset(self, iteration: Size) -> Size:
        """Of the row that holds the value before an iteration, in bytes."""
        number = self.length - iteration if self.reverse else iteration
        return unwrap(number * self.row.size)

    @property
    def first(self) -> BufferRef:
        """As of Turns."""
        return moved(self.whole.ref(), self._offset(0))

    def current(self, var: str) -> BufferRef:
        """As of Turns."""
        return moved(self.whole.ref(), self._offset(Dim.var(var)))

    def next(self, var: str) -> BufferRef:
        """As of Turns."""
        return moved(self.whole.ref(), self._offset(unwrap(Dim.var(var) + 1)))
