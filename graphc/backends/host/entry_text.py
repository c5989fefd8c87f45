"""The native code of entry.py: a walk over the table of what a call has to find as it was.

`graphc_check(table, args)` is a function for Python: args are the tuple of a call's arguments and
the address of its block. It gives None where everything is as expected; the addresses of the
inputs' elements are then in the block, which holds references to their arrays and to the storages
that will be written; True, if gradients have memory, too (entry_grads.py). Else it gives the number
of the first entry that is not as expected, and holds nothing.
`graphc_run(table, args)` is given the address of the block and the arrays of the outputs that get
new memory (where gradients have some: of the others). It gives what the program gives, 0 being
success; the GIL is released meanwhile where that is worth it.
`graphc_done(table, args)` counts the writes, if its second argument is true, and lets go.
`graphc_keep(table, args)` is given the gradients from before a call, one of each, as spares where
they are not written in place.

Nothing here runs Python code, but for a dictionary whose keys have an `__eq__` of their own.
"""

from __future__ import annotations

import re

from .entry_attributes import ATTRIBUTE, FACTS, VALUES
from .entry_fetch import FETCH
from .entry_grads import GRADS
from .entry_numbers import KNOWN
from .entry_turns import TURNS
from .entry_whole import WHOLE
from .entry_words import AHEAD, FUNCTIONS, HINTS
from .layouts import USED_AT

# words are loaded in place: nothing inlines calls
_LOAD = re.compile(r"(%[\w.]+) = call (i64|ptr) @(?:word|pointer)\(ptr (%[\w.]+), i64 ([\w.%]+)\)")
_LOADED = r"\1.place = getelementptr i64, ptr \3, i64 \4\n  \1 = load \2, ptr \1.place"

# an attribute by a row and the indices of a class; null for None
_READ = re.compile(
    r"(%[\w.]+) = call ptr @read\(ptr (%[\w.]+), ptr (%[\w.]+), ptr (%[\w.]+), i64 (\d+)\)"
)
_WAS_READ = (
    r"\1.index = call i64 @word(ptr \3, i64 \5)\n"
    r"  \1.value = call ptr @pointer(ptr \2, i64 \1.index)\n"
    r"  \1.none = icmp eq ptr \1.value, \4\n  \1 = select i1 \1.none, ptr null, ptr \1.value"
)


def text(version: tuple[int, int]) -> str:
    """The module, for a CPython of this version."""
    declared = [f"declare {r} @{name}({p})" for name, (r, p) in FUNCTIONS.items()]
    parts = VALUES[version], ATTRIBUTE, FACTS, FETCH, GRADS, _WALK, _DONE, KNOWN, TURNS, WHOLE
    code = "\n".join(parts)
    code = _LOAD.sub(_LOADED, _READ.sub(_WAS_READ, code)).replace("USED", str(USED_AT[version]))
    code = code.replace("i64 AHEAD", f"i64 {AHEAD * HINTS}")
    declared.append("declare void @llvm.prefetch.p0(ptr, i32, i32, i32)")
    return "\n".join([*declared, code])


_WALK = """
; the values of a thread: local, "__dict__", how many, (name, default, value) of each
define internal i1 @modes(ptr %entry) {
  %local = call ptr @pointer(ptr %entry, i64 1)
  %name = call ptr @pointer(ptr %entry, i64 2)
  %count = call i64 @word(ptr %entry, i64 3)
  %rows = call ptr @pointer(ptr %entry, i64 4)
  %dict = call ptr @PyObject_GetAttr(ptr %local, ptr %name)
  %failed = icmp eq ptr %dict, null
  br i1 %failed, label %no, label %begin
begin:
  br label %mode
mode:
  %i = phi i64 [ 0, %begin ], [ %i.next, %right ]
  %row = phi ptr [ %rows, %begin ], [ %row.next, %right ]
  %more = icmp slt i64 %i, %count
  br i1 %more, label %look, label %yes
look:
  %key = call ptr @pointer(ptr %row, i64 0)
  %found = call ptr @PyDict_GetItemWithError(ptr %dict, ptr %key)
  %default = call ptr @pointer(ptr %row, i64 1)
  %missing = icmp eq ptr %found, null
  %now = select i1 %missing, ptr %default, ptr %found
  %wanted = call ptr @pointer(ptr %row, i64 2)
  %same = icmp eq ptr %now, %wanted
  br i1 %same, label %right, label %other
right:
  %i.next = add i64 %i, 1
  %row.next = getelementptr ptr, ptr %row, i64 3
  br label %mode
yes:
  call void @Py_DecRef(ptr %dict)
  ret i1 true
other:
  call void @Py_DecRef(ptr %dict)
  ret i1 false
no:
  ret i1 false
}
; whether a `.grad` is there, or is not: argument number (-1: captured), tensor, class, which
define internal i1 @graded(ptr %table, ptr %entry, ptr %given) {
  %number = call i64 @word(ptr %entry, i64 1)
  %is.argument = icmp sge i64 %number, 0
  br i1 %is.argument, label %argument, label %captured
argument:
  %arg = call ptr @PyTuple_GetItem(ptr %given, i64 %number)
  br label %has
captured:
  %known = call ptr @pointer(ptr %entry, i64 2)
  br label %has
has:
  %tensor = phi ptr [ %arg, %argument ], [ %known, %captured ]
  %class = call ptr @pointer(ptr %tensor, i64 1)
  %wanted = call ptr @pointer(ptr %entry, i64 3)
  %right = icmp eq ptr %class, %wanted
  br i1 %right, label %ask, label %no
ask:
  %indices = call ptr @indices(ptr %table, ptr %class)
  %grad = call ptr @fact(ptr %table, ptr %tensor, ptr %indices, i64 8)
  %there = icmp ne ptr %grad, null
  %there.is = zext i1 %there to i64
  %there.wanted = call i64 @word(ptr %entry, i64 4)
  %same = icmp eq i64 %there.is, %there.wanted
  ret i1 %same
no:
  ret i1 false
}
; outputs that go into inputs' memory have their addresses: pairs of words
define internal void @copy(ptr %table, ptr %block) {
  %pairs = call ptr @pointer(ptr %table, i64 18)
  %count = call i64 @word(ptr %table, i64 19)
  br label %next
next:
  %i = phi i64 [ 0, %0 ], [ %i.next, %pair.is ]
  %pair = phi ptr [ %pairs, %0 ], [ %pair.next, %pair.is ]
  %more = icmp slt i64 %i, %count
  br i1 %more, label %pair.is, label %end
pair.is:
  %to = call i64 @word(ptr %pair, i64 0)
  %from = call i64 @word(ptr %pair, i64 1)
  %value = call i64 @word(ptr %block, i64 %from)
  %at = getelementptr i64, ptr %block, i64 %to
  store i64 %value, ptr %at
  %i.next = add i64 %i, 1
  %pair.next = getelementptr i64, ptr %pair, i64 2
  br label %next
end:
  ret void
}
define internal void @let_go(ptr %table, ptr %block) {
  %count = call i64 @word(ptr %table, i64 2)
  %both = shl i64 %count, 1
  %held = call i64 @word(ptr %table, i64 4)
  %kept = getelementptr ptr, ptr %block, i64 %held
  br label %next
next:
  %i = phi i64 [ 0, %0 ], [ %i.next, %on ]
  %more = icmp slt i64 %i, %both
  br i1 %more, label %look, label %end
look:
  %at = getelementptr ptr, ptr %kept, i64 %i
  %object = load ptr, ptr %at
  %some = icmp ne ptr %object, null
  br i1 %some, label %release, label %on
release:
  store ptr null, ptr %at
  call void @Py_DecRef(ptr %object)
  br label %on
on:
  %i.next = add i64 %i, 1
  br label %next
end:
  ret void
}
; what graphc_check gives: the number of an entry, or -2 where all are as expected; -3: gradients
; have memory, too
define internal i64 @check(ptr %table, ptr %given, ptr %block) {
  %copies = alloca [32 x ptr]
  %count = call i64 @word(ptr %table, i64 1)
  %entries = call ptr @pointer(ptr %table, i64 0)
  %arguments = call i64 @PyTuple_Size(ptr %given)
  %arguments.wanted = call i64 @word(ptr %table, i64 17)
  %as.many = icmp eq i64 %arguments, %arguments.wanted
  br i1 %as.many, label %walk, label %fails
walk:
  %i = phi i64 [ 0, %0 ], [ %i.next, %right ]
  %entry = phi ptr [ %entries, %0 ], [ %entry.next, %right ]
  %more = icmp slt i64 %i, %count
  br i1 %more, label %ask, label %together
ask:
  %kind = load i64, ptr %entry
  switch i64 %kind, label %fails [
    i64 0, label %item
    i64 1, label %in.memory
    i64 2, label %local
    i64 3, label %tensor
    i64 4, label %argument
    i64 5, label %class.of
    i64 6, label %same
    i64 7, label %gradient
    i64 8, label %list
    i64 9, label %dict.same
    i64 10, label %dict.held
    i64 11, label %present
    i64 12, label %current
  ]
item:
  %dict = call ptr @pointer(ptr %entry, i64 1)
  %key = call ptr @pointer(ptr %entry, i64 2)
  %value = call ptr @pointer(ptr %entry, i64 3)
  %found = call ptr @PyDict_GetItemWithError(ptr %dict, ptr %key)
  %is.value = icmp eq ptr %found, %value
  br i1 %is.value, label %right, label %fails
in.memory:
  %at = call ptr @pointer(ptr %entry, i64 1)
  %word = load i64, ptr %at
  %word.wanted = call i64 @word(ptr %entry, i64 3)
  %is.word = icmp eq i64 %word, %word.wanted
  br i1 %is.word, label %right, label %fails
local:
  %is.mode = call i1 @modes(ptr %entry)
  br i1 %is.mode, label %right, label %fails
tensor:
  %is.tensor = call i1 @fetch(
      ptr %table, ptr %entry, ptr %given, ptr %block, ptr %copies)
  br i1 %is.tensor, label %right, label %fails
argument:
  %a.number = call i64 @word(ptr %entry, i64 1)
  %a = call ptr @PyTuple_GetItem(ptr %given, i64 %a.number)
  %a.wanted = call ptr @pointer(ptr %entry, i64 3)
  %is.a = icmp eq ptr %a, %a.wanted
  br i1 %is.a, label %right, label %fails
class.of:
  %c.number = call i64 @word(ptr %entry, i64 1)
  %c = call ptr @PyTuple_GetItem(ptr %given, i64 %c.number)
  %c.class = call ptr @pointer(ptr %c, i64 1)
  %c.wanted = call ptr @pointer(ptr %entry, i64 3)
  %is.c = icmp eq ptr %c.class, %c.wanted
  br i1 %is.c, label %right, label %fails
same:
  %s.number = call i64 @word(ptr %entry, i64 1)
  %s = call ptr @PyTuple_GetItem(ptr %given, i64 %s.number)
  %t.number = call i64 @word(ptr %entry, i64 2)
  %t.is.argument = icmp sge i64 %t.number, 0
  br i1 %t.is.argument, label %same.argument, label %same.known
same.argument:
  %t.1 = call ptr @PyTuple_GetItem(ptr %given, i64 %t.number)
  br label %same.both
same.known:
  %t.2 = call ptr @pointer(ptr %entry, i64 3)
  br label %same.both
same.both:
  %t = phi ptr [ %t.1, %same.argument ], [ %t.2, %same.known ]
  %one = icmp eq ptr %s, %t
  %one.is = zext i1 %one to i64
  %one.wanted = call i64 @word(ptr %entry, i64 4)
  %is.one = icmp eq i64 %one.is, %one.wanted
  br i1 %is.one, label %right, label %fails
gradient:
  %is.graded = call i1 @graded(ptr %table, ptr %entry, ptr %given)
  br i1 %is.graded, label %right, label %fails
list:
  %l = call ptr @pointer(ptr %entry, i64 1)
  %l.wanted = call ptr @pointer(ptr %entry, i64 2)
  %l.count.wanted = call i64 @word(ptr %entry, i64 3)
  %l.count = call i64 @word(ptr %l, i64 2)
  %l.right = icmp eq i64 %l.count, %l.count.wanted
  br i1 %l.right, label %list.items, label %fails
list.items:
  %l.items = call ptr @pointer(ptr %l, i64 3)
  br label %list.next
list.next:
  %l.i = phi i64 [ 0, %list.items ], [ %l.i.next, %list.item ]
  %l.more = icmp slt i64 %l.i, %l.count
  br i1 %l.more, label %list.item, label %right
list.item:
  %l.item = call ptr @pointer(ptr %l.items, i64 %l.i)
  %l.item.wanted = call ptr @pointer(ptr %l.wanted, i64 %l.i)
  %l.is = icmp eq ptr %l.item, %l.item.wanted
  %l.i.next = add i64 %l.i, 1
  br i1 %l.is, label %list.next, label %fails
present:
  %p.dict = call ptr @pointer(ptr %entry, i64 1)
  %p.key = call ptr @pointer(ptr %entry, i64 2)
  %p.found = call ptr @PyDict_GetItemWithError(ptr %p.dict, ptr %p.key)
  %p.is = icmp ne ptr %p.found, null
  br i1 %p.is, label %right, label %fails
current:
  %n.dict = call ptr @pointer(ptr %entry, i64 1)
  %n.key = call ptr @pointer(ptr %entry, i64 2)
  %n.place = call ptr @pointer(ptr %entry, i64 3)
  %n.wanted = load ptr, ptr %n.place
  %n.found = call ptr @PyDict_GetItemWithError(ptr %n.dict, ptr %n.key)
  %n.is = icmp eq ptr %n.found, %n.wanted
  br i1 %n.is, label %right, label %fails
dict.same:
  %d = call ptr @pointer(ptr %entry, i64 1)
  %d.tag = call i64 @word(ptr %d, i64 3)
  %d.before = call i64 @word(ptr %entry, i64 2)
  %d.same = icmp eq i64 %d.tag, %d.before
  %d.count = call i64 @word(ptr %entry, i64 3)
  %d.skipped = select i1 %d.same, i64 %d.count, i64 1
  br label %right
dict.held:
  %h = call ptr @pointer(ptr %entry, i64 1)
  %h.tag = call i64 @word(ptr %h, i64 3)
  %h.begin = call i64 @word(ptr %entry, i64 2)
  %h.at = getelementptr i64, ptr %entry, i64 %h.begin
  store i64 %h.tag, ptr %h.at
  br label %right
right:
  %skipped = phi i64 [ 1, %item ], [ 1, %in.memory ], [ 1, %local ], [ 1, %tensor ],
    [ 1, %argument ], [ 1, %class.of ], [ 1, %same.both ], [ 1, %gradient ], [ 1, %list.next ],
    [ %d.skipped, %dict.same ], [ 1, %dict.held ],
    [ 1, %present ], [ 1, %current ]
  %i.next = add i64 %i, %skipped
  %words = shl i64 %skipped, 3
  %entry.next = getelementptr i64, ptr %entry, i64 %words
  br label %walk
together:
  %apart = call i1 @apart(ptr %table, ptr %block)
  br i1 %apart, label %last, label %fails
last:
  %raised = call ptr @PyErr_Occurred()
  %clean = icmp eq ptr %raised, null
  br i1 %clean, label %fits, label %fails
fits:
  call void @copy(ptr %table, ptr %block)
  %took = call i1 @take(ptr %table, ptr %block)
  %answer = select i1 %took, i64 -3, i64 -2
  ret i64 %answer
fails:
  %where = phi i64 [ -1, %0 ], [ %i, %ask ], [ %i, %item ], [ %i, %in.memory ], [ %i, %local ],
    [ %i, %tensor ], [ %i, %argument ], [ %i, %class.of ], [ %i, %same.both ], [ %i, %gradient ],
    [ %i, %list ], [ %i, %list.item ], [ %i, %present ], [ %i, %current ],
    [ %count, %together ], [ %count, %last ]
  call void @PyErr_Clear()
  call void @let_go(ptr %table, ptr %block)
  ret i64 %where
}
define ptr @graphc_check(ptr %self, ptr %args, i64 %n) {
  %table = call ptr @PyLong_AsVoidPtr(ptr %self)
  %given = load ptr, ptr %args
  %block.of = call ptr @pointer(ptr %args, i64 1)
  %block = call ptr @PyLong_AsVoidPtr(ptr %block.of)
  %where = call i64 @check(ptr %table, ptr %given, ptr %block)
  %fits = icmp slt i64 %where, -1
  br i1 %fits, label %say, label %fails
say:
  %took = icmp eq i64 %where, -3
  %answer = select i1 %took, i64 15, i64 14
  %said = call ptr @pointer(ptr %table, i64 %answer)
  call void @Py_IncRef(ptr %said)
  ret ptr %said
fails:
  %result = call ptr @PyLong_FromLong(i64 %where)
  ret ptr %result
}
"""

_DONE = """
; counts the writes of a call that ran, and lets go
define internal void @finish(ptr %table, ptr %block, i1 %counts) {
  br i1 %counts, label %count, label %end
count:
  %inputs = call i64 @word(ptr %table, i64 2)
  %held = call i64 @word(ptr %table, i64 4)
  %first = add i64 %held, %inputs
  %storages = getelementptr ptr, ptr %block, i64 %first
  %writes = call ptr @pointer(ptr %table, i64 16)
  %offset = call i64 @word(ptr %table, i64 13)
  br label %next
next:
  %i = phi i64 [ 0, %count ], [ %i.next, %on ]
  %more = icmp slt i64 %i, %inputs
  br i1 %more, label %look, label %end
look:
  %storage = call ptr @pointer(ptr %storages, i64 %i)
  %some = icmp ne ptr %storage, null
  br i1 %some, label %written, label %on
written:
  %at = getelementptr i8, ptr %storage, i64 %offset
  %old = load ptr, ptr %at
  %was = call i64 @PyLong_AsLongLong(ptr %old)
  %more.writes = call i64 @word(ptr %writes, i64 %i)
  %is = add i64 %was, %more.writes
  %new = call ptr @PyLong_FromLongLong(i64 %is)
  store ptr %new, ptr %at
  call void @Py_DecRef(ptr %old)
  br label %on
on:
  %i.next = add i64 %i, 1
  br label %next
end:
  call void @hand_over(ptr %table, ptr %block, i1 %counts)
  call void @let_go(ptr %table, ptr %block)
  ret void
}
define ptr @graphc_done(ptr %self, ptr %args, i64 %n) {
  %table = call ptr @PyLong_AsVoidPtr(ptr %self)
  %block.of = load ptr, ptr %args
  %block = call ptr @PyLong_AsVoidPtr(ptr %block.of)
  %ran = call ptr @pointer(ptr %args, i64 1)
  %true = call ptr @pointer(ptr %table, i64 15)
  %counts = icmp eq ptr %ran, %true
  call void @finish(ptr %table, ptr %block, i1 %counts)
  %none = call ptr @pointer(ptr %table, i64 14)
  call void @Py_IncRef(ptr %none)
  ret ptr %none
}
; runs the program, without the GIL where that is worth it
define internal i64 @start(ptr %table, ptr %block) {
  %run = call ptr @pointer(ptr %table, i64 28)
  %releases = call i64 @word(ptr %table, i64 29)
  %release = icmp ne i64 %releases, 0
  br i1 %release, label %alone, label %holding
alone:
  %thread = call ptr @PyEval_SaveThread()
  %status.1 = call i64 %run(ptr %block)
  call void @PyEval_RestoreThread(ptr %thread)
  br label %ran
holding:
  %status.2 = call i64 %run(ptr %block)
  br label %ran
ran:
  %status = phi i64 [ %status.1, %alone ], [ %status.2, %holding ]
  ret i64 %status
}
define ptr @graphc_run(ptr %self, ptr %args, i64 %n) {
  %table = call ptr @PyLong_AsVoidPtr(ptr %self)
  %block.of = load ptr, ptr %args
  %block = call ptr @PyLong_AsVoidPtr(ptr %block.of)
  %count = call i64 @word(ptr %table, i64 32)
  %given = sub i64 %n, 1
  %all = icmp eq i64 %given, %count
  %which = select i1 %all, i64 30, i64 31
  %words = call ptr @pointer(ptr %table, i64 %which)
  br label %next
next:
  %i = phi i64 [ 0, %0 ], [ %i.next, %point ]
  %i.next = add i64 %i, 1
  %more = icmp slt i64 %i, %given
  br i1 %more, label %point, label %begin
point:
  %array = call ptr @pointer(ptr %args, i64 %i.next)
  %data = call i64 @word(ptr %array, i64 2)
  %word = call i64 @word(ptr %words, i64 %i)
  %at = getelementptr i64, ptr %block, i64 %word
  store i64 %data, ptr %at
  br label %next
begin:
  %status = call i64 @start(ptr %table, ptr %block)
  %result = call ptr @PyLong_FromLong(i64 %status)
  ret ptr %result
}
define ptr @graphc_keep(ptr %self, ptr %args, i64 %n) {
  %table = call ptr @PyLong_AsVoidPtr(ptr %self)
  %count = call i64 @word(ptr %table, i64 21)
  %spares = call ptr @pointer(ptr %table, i64 27)
  %records = call ptr @pointer(ptr %table, i64 20)
  br label %next
next:
  %i = phi i64 [ 0, %0 ], [ %i.next, %on ]
  %record = phi ptr [ %records, %0 ], [ %record.next, %on ]
  %more = icmp slt i64 %i, %count
  %given = icmp slt i64 %i, %n
  %both = and i1 %more, %given
  br i1 %both, label %look, label %end
look:
  %in.place = call i64 @word(ptr %record, i64 6)
  %as.spare = icmp eq i64 %in.place, 0
  br i1 %as.spare, label %keep, label %on
keep:
  %new = call ptr @pointer(ptr %args, i64 %i)
  %at = getelementptr ptr, ptr %spares, i64 %i
  %old = load ptr, ptr %at
  call void @Py_IncRef(ptr %new)
  store ptr %new, ptr %at
  call void @Py_DecRef(ptr %old)
  br label %on
on:
  %i.next = add i64 %i, 1
  %record.next = getelementptr i64, ptr %record, i64 8
  br label %next
end:
  %none = call ptr @pointer(ptr %table, i64 14)
  call void @Py_IncRef(ptr %none)
  ret ptr %none
}
"""
