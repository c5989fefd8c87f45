"""Memory that is others' between calls, taken and given back by native code: a part of
entry_text.py.

Who lends it keeps what is free in a dictionary, by identity, so that taking something out is one
step for every thread. A call takes the very memory that it was last laid out for, if it is there;
else Python is asked (`begin`), which lays the call out anew. What is larger than anybody wants by
now is let go.

A shelf is a row of words: the dictionary, what the memory lies under in it, the address and the
least number of bytes that it has to have, the place of a word with the largest size that is wanted,
and the memory that a call has just now.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any


class Shelf:
    """Where native code finds the memory that a call was last laid out for."""

    def __init__(self, free: dict[int, Any], most: ctypes.c_int64) -> None:
        """`free`: arrays of bytes by identity; `most`: the largest size that is wanted."""
        self._kept, self._key = (free, most), 0
        self.words = (ctypes.c_int64 * 6)(id(free), 0, 0, 0, ctypes.addressof(most), 0)

    def put(self, array: Any, address: int, size: int) -> None:
        """A call was laid out for this array, of which it needs so many bytes."""
        self.words[1] = 0  # where this is interrupted, nothing is known
        self._key = key = id(array)
        self.words[1:4] = [id(key), address, size]


class Turns:
    """What a call begins and ends with, where the program's memory is others' between calls."""

    def __init__(
        self, begin: Callable[[], None], end: Callable[[], None], shelf: Shelf
    ) -> None:
        """`begin`, `end`: for a call that does not find its memory on the shelf."""
        self.begin, self.end, self.shelf = begin, end, shelf

    def places(self) -> tuple[int, int, int]:
        """Of what native code asks."""
        return id(self.begin), id(self.end), ctypes.addressof(self.shelf.words)


TURNS = """
define internal i1 @turn(ptr %whole, ptr %does) {
  %empty = call ptr @pointer(ptr %whole, i64 11)
  %none = call ptr @PyObject_CallObject(ptr %does, ptr %empty)
  %raised = icmp eq ptr %none, null
  br i1 %raised, label %no, label %did
did:
  call void @Py_DecRef(ptr %none)
  ret i1 true
no:
  ret i1 false
}
; the first of a call; whether nothing was raised
define internal i1 @begin(ptr %whole) {
  %does = call ptr @pointer(ptr %whole, i64 17)
  %nothing = icmp eq ptr %does, null
  br i1 %nothing, label %well, label %look
look:
  %shelf = call ptr @pointer(ptr %whole, i64 19)
  %free = call ptr @pointer(ptr %shelf, i64 0)
  %key = call ptr @pointer(ptr %shelf, i64 1)
  %keyless = icmp eq ptr %key, null
  br i1 %keyless, label %ask, label %find
find:
  %array = call ptr @PyDict_GetItemWithError(ptr %free, ptr %key)
  %none = icmp eq ptr %array, null
  br i1 %none, label %ask, label %found
found:
  %data = call i64 @word(ptr %array, i64 2)
  %sizes = call ptr @pointer(ptr %array, i64 4)
  %size = load i64, ptr %sizes
  %data.wanted = call i64 @word(ptr %shelf, i64 2)
  %size.wanted = call i64 @word(ptr %shelf, i64 3)
  %there = icmp eq i64 %data, %data.wanted
  %enough = icmp sge i64 %size, %size.wanted
  %fits = and i1 %there, %enough
  br i1 %fits, label %take, label %ask
take:
  call void @Py_IncRef(ptr %array)
  %failed = call i32 @PyDict_DelItem(ptr %free, ptr %key)
  %taken = icmp eq i32 %failed, 0
  br i1 %taken, label %keep, label %leave
keep:
  %slot = getelementptr ptr, ptr %shelf, i64 5
  store ptr %array, ptr %slot
  br label %well
leave:
  call void @PyErr_Clear()
  call void @Py_DecRef(ptr %array)
  br label %ask
ask:
  %done = call i1 @turn(ptr %whole, ptr %does)
  ret i1 %done
well:
  ret i1 true
}
; the last of a call; whether nothing was raised
define internal i1 @end(ptr %whole) {
  %does = call ptr @pointer(ptr %whole, i64 18)
  %nothing = icmp eq ptr %does, null
  br i1 %nothing, label %well, label %look
look:
  %shelf = call ptr @pointer(ptr %whole, i64 19)
  %slot = getelementptr ptr, ptr %shelf, i64 5
  %array = load ptr, ptr %slot
  %none = icmp eq ptr %array, null
  br i1 %none, label %ask, label %has
has:
  store ptr null, ptr %slot
  %sizes = call ptr @pointer(ptr %array, i64 4)
  %size = load i64, ptr %sizes
  %most.at = call ptr @pointer(ptr %shelf, i64 4)
  %most = load i64, ptr %most.at
  %wanted = icmp sle i64 %size, %most
  br i1 %wanted, label %put, label %drop
put:
  %free = call ptr @pointer(ptr %shelf, i64 0)
  %key = call ptr @pointer(ptr %shelf, i64 1)
  %failed = call i32 @PyDict_SetItem(ptr %free, ptr %key, ptr %array)
  %well.put = icmp eq i32 %failed, 0
  br i1 %well.put, label %drop, label %forget
forget:
  call void @PyErr_Clear()
  br label %drop
drop:
  call void @Py_DecRef(ptr %array)
  br label %well
ask:
  %done = call i1 @turn(ptr %whole, ptr %does)
  ret i1 %done
well:
  ret i1 true
}
"""
