"""Run-time numbers of a call that native code knows: a part of entry_text.py.

A number that an item of a dictionary tells is the one that it was while the item is the same
object. Then arrays made of the numbers, which are inputs of the code, are the same, too, and their
addresses are in the call's block already.

A row of words: how many items (-1: nothing is known), then of each its dictionary, its key and the
object that was there.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

_NOTHING = -1


class KnownNumbers:
    """The row, which is filled by whoever has the block of the call."""

    def __init__(self, most: int) -> None:
        """`most`: items."""
        self.words = (ctypes.c_int64 * (1 + 3 * most))(_NOTHING)
        self._kept: Any = None

    @property
    def place(self) -> int:
        """The address of the row."""
        return ctypes.addressof(self.words)

    def forget(self) -> None:
        """Calls are to ask."""
        self.words[0] = _NOTHING
        self._kept = None

    def know(self, items: Sequence[tuple[dict[str, Any], str, Any]], arrays: Any) -> None:
        """The block has the addresses of these arrays, which hold while the items are these."""
        self.forget()
        self._kept = list(items), arrays
        self.words[1 : 1 + 3 * len(items)] = [id(part) for item in items for part in item]
        self.words[0] = len(items)


KNOWN = """
; whether the numbers of a call are those that are known, where some are asked
define internal i1 @known(ptr %whole) {
  %row = call ptr @pointer(ptr %whole, i64 20)
  %unasked = icmp eq ptr %row, null
  br i1 %unasked, label %yes, label %begin
begin:
  %count = load i64, ptr %row
  %nothing = icmp slt i64 %count, 0
  br i1 %nothing, label %no, label %next
next:
  %i = phi i64 [ 0, %begin ], [ %i.next, %ask ]
  %item = phi ptr [ %row, %begin ], [ %item.next, %ask ]
  %i.next = add i64 %i, 1
  %item.next = getelementptr i64, ptr %item, i64 3
  %more = icmp slt i64 %i, %count
  br i1 %more, label %ask, label %yes
ask:
  %dict = call ptr @pointer(ptr %item, i64 1)
  %key = call ptr @pointer(ptr %item, i64 2)
  %wanted = call ptr @pointer(ptr %item, i64 3)
  %found = call ptr @PyDict_GetItemWithError(ptr %dict, ptr %key)
  %same = icmp eq ptr %found, %wanted
  br i1 %same, label %next, label %other
other:
  call void @PyErr_Clear()
  br label %no
yes:
  ret i1 true
no:
  ret i1 false
}
"""
