"""Where a loop keeps a value that it carries from iteration to iteration.

Two buffers take turns: iteration i reads number i % 2 and writes the other. Or, where a scan
stacks what its steps begin or end with, the value has a row for each iteration and one more: a
step reads one and writes the next, so what is stacked lies there already, without a copy. A
stacked result that leaves the graph has no row to spare: there the first iteration, or the last,
stands apart from the loop and has a place of its own for what it begins or ends with.
"""

from __future__ import annotations

from typing import TypeAlias

from ...dim import Size, mod, unwrap
from ...graph import Node
from ...kernel import BufferRef
from ...record import record
from .step import Storage, moved


@record(eq=False)
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

    def first(self, initial: Storage) -> BufferRef:
        """Where the first iteration finds the value, which begins as `initial`."""
        return self.even.ref()

    def current(self, number: Size) -> BufferRef:
        """Where iteration `number` finds it; behind the last one, where it is left."""
        return moved(self.even.ref(), mod(number, 2) * (self.odd.offset - self.even.offset))

    def next(self, number: Size) -> BufferRef:
        """Where that iteration leaves it."""
        return moved(self.odd.ref(), mod(number, 2) * (self.even.offset - self.odd.offset))


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

    def _offset(self, number: Size) -> Size:
        """Of the row that holds the value before iteration `number`, in bytes."""
        row = self.length - number if self.reverse else number
        return unwrap(row * self.row.size)

    def first(self, initial: Storage) -> BufferRef:
        """As of Turns."""
        return self.current(0)

    def current(self, number: Size) -> BufferRef:
        """As of Turns."""
        return moved(self.whole.ref(), self._offset(number))

    def next(self, number: Size) -> BufferRef:
        """As of Turns."""
        return self.current(unwrap(number + 1))


class Leaving:
    """The rows of a stacked result that leaves the graph, one for each iteration.

    Of what steps `began` with: the last iteration leaves the value in `last`. Else of what they
    end with: the first finds it where it was before the loop.
    """

    scratch: tuple[Storage, ...] = ()

    def __init__(self, value: Node, length: Size, reverse: bool, began: bool) -> None:
        self.row = Storage.of(value.tensor_type)
        self.length, self.reverse, self.began = length, reverse, began
        self.rows = Storage(self.row.dtype, unwrap(self.row.elements * length))
        self.last = self.row
        if not began:
            self.last = Storage(
                self.row.dtype, self.row.elements, whole=self.rows,
                start=self._offset(unwrap(length - 1)),
            )

    def _offset(self, number: Size) -> Size:
        """Of an iteration's row, in bytes."""
        row = self.length - 1 - number if self.reverse else number
        return unwrap(row * self.row.size)

    def first(self, initial: Storage) -> BufferRef:
        """As of Turns."""
        self.initial = initial
        return self.current(0)

    def current(self, number: Size) -> BufferRef:
        """As of Turns."""
        if not self.began:
            return self.initial.ref() if number == 0 else self.next(unwrap(number - 1))
        if number == self.length:
            return self.last.ref()
        return moved(self.rows.ref(), self._offset(number))

    def next(self, number: Size) -> BufferRef:
        """As of Turns."""
        if self.began:
            return self.current(unwrap(number + 1))
        return moved(self.rows.ref(), self._offset(number))


Place: TypeAlias = Turns | Trail | Leaving
