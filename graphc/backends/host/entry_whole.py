"""A call as a whole in native code, where all that is left to do beside what entry.py asks is to
make memory for the results, to run the code, and to make tensors of that memory.

`graphc_whole(table, args)` is given the tuple of a call's arguments, and the arrays of run-time
numbers. It gives the result's tensor, a list or a tuple of them, or a tuple of the arrays alone; or
a number: of the first condition that does not hold, -3 where run-time numbers are others than those
that it knows (entry_numbers.py), or -2 where the call is to be made in another way.
What holds for all calls in the process is asked first (`world`: an Entry of conditions alone).
Where its memory is others' between calls, it is taken before the code runs, and given back when it
has run (entry_turns.py).
A `Whole` has one block of words for itself, which one call has at a time: what finds it taken
(a second thread, a call inside the call) goes another way, with a block of its own.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from typing import Any

from ...ir.named import NamedTuple
from .entry_numbers import KnownNumbers
from .entry_turns import Turns
from .layouts import slot_offset
from .methods import bound

LIST, ONE, TUPLE, ARRAYS = range(4)
_NEW = 65  # Py_tp_new
_TABLE = (
    "entry", "ready", "threads", "laid", "status", "made", "made_count", "results",
    "results_count", "new", "tensor", "empty", "gives", "calls", "world", "numbers",
    "numbers_count", "begin", "end", "shelf", "known", "node",
)
OTHER_NUMBERS = -3


class Result(NamedTuple):
    """A tensor to be made: of which of the arrays, and a storage like its own."""

    array: int
    storage: Any
    history: tuple[Any, ...] | None = None  # what its node is made of


class Places(NamedTuple):
    """Addresses of words: how many threads there are, how many the block is laid out for, and
    where the code says what has failed."""

    threads: int
    laid: int
    status: int


class Whole:
    """`call(arguments)`: see above."""

    def __init__(
        self, entry: Any, world: Any, block: int, places: Places,
        arrays: Sequence[tuple[Callable[..., Any], tuple[Any, ...], int]],
        results: Sequence[Result], gives: int, calls: Any, numbers: Sequence[int] = (),
        known: KnownNumbers | None = None, node: type | None = None,
    ) -> None:
        """`arrays`: what makes each, of which arguments, and the output's word in the block;
        `gives`: ONE tensor, a LIST of them or a TUPLE, or the ARRAYS; `numbers`: words for the
        arrays that a call gives behind its arguments; `calls`: a word that counts them; `known`:
        run-time numbers that are asked; `node`: the class of histories."""
        self._block = block
        self._ready = _words([block])
        made = [word for make, args, at in arrays for word in (id(make), id(args), at)]
        code = entry.code
        slots = [name for name in code.storage.__slots__ if name not in ("__weakref__", "array")]
        rows = []
        for each in results:
            pairs = [
                word for name in slots for word in (
                    slot_offset(vars(code.storage)[name]), id(getattr(each.storage, name)),
                )
            ]
            history = 0 if each.history is None else id(each.history)
            rows.append((each.array, _words(pairs), len(slots), history))
        place = slot_offset(vars(code.storage)["array"])
        parts = [_words(made), _words([
            word for array, pairs, count, history in rows
            for word in (array, ctypes.addressof(pairs), count, place, history)
        ]), _words(numbers)]
        values = {
            "entry": entry.table, "ready": ctypes.addressof(self._ready),
            "threads": places.threads, "laid": places.laid, "status": places.status,
            "made": ctypes.addressof(parts[0]), "made_count": len(arrays),
            "results": ctypes.addressof(parts[1]), "results_count": len(results),
            "new": _new(), "tensor": id(code.classes[0]), "empty": id(()), "gives": gives,
            "calls": ctypes.addressof(calls), "world": world.table,
            "numbers": ctypes.addressof(parts[2]), "numbers_count": len(numbers),
            "begin": 0, "end": 0, "shelf": 0,
            "known": 0 if known is None else known.place, "node": id(node),
        }
        self._table = table = _words([values[name] for name in _TABLE])
        self._turns: Turns | None = None
        held = [value for each in results for value in map(each.storage.__getattribute__, slots)]
        kept = (
            entry, world, code, parts, rows, table, list(arrays), list(results), held, calls,
            self._ready, node, known,
        )
        address = ctypes.addressof(table)
        self.call: Callable[..., Any] = bound(code.whole, address, kept)
        self.take: Callable[[], bool] = bound(code.take, address, kept)

    def take_turns(self, turns: Turns | None) -> None:
        """What calls begin and end with from now on; the caller has the block, or nobody calls."""
        begin, end, shelf = (0, 0, 0) if turns is None else turns.places()
        for name, place in (("begin", begin), ("end", end), ("shelf", shelf)):
            self._table[_TABLE.index(name)] = place
        self._turns = turns

    def give_back(self) -> None:
        """The block, which the caller has, is anybody's again."""
        self._ready[0] = self._block


def _new() -> int:
    """Where the code of object.__new__ lies."""
    slot = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_int)
    return slot(("PyType_GetSlot", ctypes.pythonapi))(object, _NEW) or 0


def _words(values: Sequence[int]) -> Any:
    return (ctypes.c_int64 * max(len(values), 1))(*values)


WHOLE = """
; one result: a tensor on an array, with a storage of its own; takes the reference to the array
define internal ptr @tensor(ptr %whole, ptr %record, ptr %array) {
  %new = call ptr @pointer(ptr %whole, i64 9)
  %class = call ptr @pointer(ptr %whole, i64 10)
  %empty = call ptr @pointer(ptr %whole, i64 11)
  %table = call ptr @pointer(ptr %whole, i64 0)
  %storage.class = call ptr @pointer(ptr %table, i64 11)
  %names = call ptr @pointer(ptr %table, i64 6)
  %storage = call ptr %new(ptr %storage.class, ptr %empty, ptr null)
  %no.storage = icmp eq ptr %storage, null
  br i1 %no.storage, label %fails, label %fill
fill:
  %pairs = call ptr @pointer(ptr %record, i64 1)
  %count = call i64 @word(ptr %record, i64 2)
  %array.offset = call i64 @word(ptr %record, i64 3)
  %array.at = getelementptr i8, ptr %storage, i64 %array.offset
  call void @Py_IncRef(ptr %array)
  store ptr %array, ptr %array.at
  br label %slot
slot:
  %i = phi i64 [ 0, %fill ], [ %i.next, %put ]
  %pair = phi ptr [ %pairs, %fill ], [ %pair.next, %put ]
  %more = icmp slt i64 %i, %count
  br i1 %more, label %put, label %make
put:
  %offset = call i64 @word(ptr %pair, i64 0)
  %value = call ptr @pointer(ptr %pair, i64 1)
  call void @Py_IncRef(ptr %value)
  %at = getelementptr i8, ptr %storage, i64 %offset
  store ptr %value, ptr %at
  %i.next = add i64 %i, 1
  %pair.next = getelementptr i64, ptr %pair, i64 2
  br label %slot
make:
  %tensor = call ptr %new(ptr %class, ptr %empty, ptr null)
  %no.tensor = icmp eq ptr %tensor, null
  br i1 %no.tensor, label %drop.storage, label %set
set:
  %name.1 = call ptr @pointer(ptr %names, i64 0)
  %name.2 = call ptr @pointer(ptr %names, i64 1)
  %failed.1 = call i32 @PyObject_SetAttr(ptr %tensor, ptr %name.1, ptr %array)
  %failed.2 = call i32 @PyObject_SetAttr(ptr %tensor, ptr %name.2, ptr %storage)
  call void @Py_DecRef(ptr %array)
  call void @Py_DecRef(ptr %storage)
  %failed = or i32 %failed.1, %failed.2
  %well = icmp eq i32 %failed, 0
  br i1 %well, label %past, label %drop
past:
  %history = call ptr @pointer(ptr %record, i64 4)
  %some = icmp ne ptr %history, null
  br i1 %some, label %node.is, label %end
node.is:
  %node.class = call ptr @pointer(ptr %whole, i64 21)
  %node = call ptr @PyObject_CallObject(ptr %node.class, ptr %history)
  %no.node = icmp eq ptr %node, null
  br i1 %no.node, label %drop, label %node.set
node.set:
  %name.3 = call ptr @pointer(ptr %names, i64 3)
  %failed.3 = call i32 @PyObject_SetAttr(ptr %tensor, ptr %name.3, ptr %node)
  call void @Py_DecRef(ptr %node)
  %well.too = icmp eq i32 %failed.3, 0
  br i1 %well.too, label %end, label %drop
end:
  ret ptr %tensor
drop:
  call void @Py_DecRef(ptr %tensor)
  ret ptr null
drop.storage:
  call void @Py_DecRef(ptr %storage)
  br label %fails
fails:
  call void @Py_DecRef(ptr %array)
  ret ptr null
}
define internal void @drop_all(ptr %arrays, i64 %count) {
  br label %next
next:
  %i = phi i64 [ 0, %0 ], [ %i.next, %drop ]
  %more = icmp slt i64 %i, %count
  br i1 %more, label %drop, label %end
drop:
  %at = getelementptr ptr, ptr %arrays, i64 %i
  %array = load ptr, ptr %at
  store ptr null, ptr %at
  call void @Py_DecRef(ptr %array)
  %i.next = add i64 %i, 1
  br label %next
end:
  ret void
}
; the tensors or the arrays, or null; the references to the arrays are taken out of their row
define internal ptr @tensors(ptr %whole, ptr %arrays) {
  %records = call ptr @pointer(ptr %whole, i64 7)
  %count = call i64 @word(ptr %whole, i64 8)
  %gives = call i64 @word(ptr %whole, i64 12)
  %is.single = icmp eq i64 %gives, 1
  %is.tuple = icmp eq i64 %gives, 2
  %is.row = icmp eq i64 %gives, 3
  br i1 %is.single, label %one, label %row.or.several
row.or.several:
  br i1 %is.row, label %row, label %several
row:
  %row.count = call i64 @word(ptr %whole, i64 6)
  %row.tuple = call ptr @PyTuple_New(i64 %row.count)
  %row.failed = icmp eq ptr %row.tuple, null
  br i1 %row.failed, label %nothing, label %row.next
row.next:
  %r = phi i64 [ 0, %row ], [ %r.next, %row.put ]
  %r.more = icmp slt i64 %r, %row.count
  br i1 %r.more, label %row.put, label %row.end
row.put:
  %r.at = getelementptr ptr, ptr %arrays, i64 %r
  %r.array = load ptr, ptr %r.at
  store ptr null, ptr %r.at
  %r.set = call i32 @PyTuple_SetItem(ptr %row.tuple, i64 %r, ptr %r.array)
  %r.next = add i64 %r, 1
  br label %row.next
row.end:
  ret ptr %row.tuple
one:
  %first = call i64 @word(ptr %records, i64 0)
  %first.at = getelementptr ptr, ptr %arrays, i64 %first
  %array.1 = load ptr, ptr %first.at
  store ptr null, ptr %first.at
  %result = call ptr @tensor(ptr %whole, ptr %records, ptr %array.1)
  ret ptr %result
several:
  br i1 %is.tuple, label %new.tuple, label %new.list
new.tuple:
  %tuple = call ptr @PyTuple_New(i64 %count)
  br label %new
new.list:
  %just.list = call ptr @PyList_New(i64 %count)
  br label %new
new:
  %list = phi ptr [ %tuple, %new.tuple ], [ %just.list, %new.list ]
  %failed = icmp eq ptr %list, null
  br i1 %failed, label %nothing, label %next
next:
  %i = phi i64 [ 0, %new ], [ %i.next, %set ]
  %record = phi ptr [ %records, %new ], [ %record.next, %set ]
  %more = icmp slt i64 %i, %count
  br i1 %more, label %make, label %end
make:
  %which = call i64 @word(ptr %record, i64 0)
  %at = getelementptr ptr, ptr %arrays, i64 %which
  %array = load ptr, ptr %at
  store ptr null, ptr %at
  %tensor = call ptr @tensor(ptr %whole, ptr %record, ptr %array)
  %bad = icmp eq ptr %tensor, null
  br i1 %bad, label %drop, label %put
put:
  br i1 %is.tuple, label %to.tuple, label %to.list
to.tuple:
  %set.1 = call i32 @PyTuple_SetItem(ptr %list, i64 %i, ptr %tensor)
  br label %set
to.list:
  %set.2 = call i32 @PyList_SetItem(ptr %list, i64 %i, ptr %tensor)
  br label %set
set:
  %i.next = add i64 %i, 1
  %record.next = getelementptr i64, ptr %record, i64 5
  br label %next
end:
  ret ptr %list
drop:
  call void @Py_DecRef(ptr %list)
  ret ptr null
nothing:
  ret ptr null
}
define internal void @give_back(ptr %whole, ptr %block) {
  %ready = call ptr @pointer(ptr %whole, i64 1)
  store ptr %block, ptr %ready
  ret void
}
; the block is the caller's, if it was there
define ptr @graphc_take(ptr %self, ptr %args, i64 %n) {
  %whole = call ptr @PyLong_AsVoidPtr(ptr %self)
  %table = call ptr @pointer(ptr %whole, i64 0)
  %ready = call ptr @pointer(ptr %whole, i64 1)
  %block = load ptr, ptr %ready
  store ptr null, ptr %ready
  %taken = icmp ne ptr %block, null
  %which = select i1 %taken, i64 15, i64 26
  %said = call ptr @pointer(ptr %table, i64 %which)
  call void @Py_IncRef(ptr %said)
  ret ptr %said
}
define ptr @graphc_whole(ptr %self, ptr %args, i64 %n) {
  %whole = call ptr @PyLong_AsVoidPtr(ptr %self)
  %given = load ptr, ptr %args
  %table = call ptr @pointer(ptr %whole, i64 0)
  %ready = call ptr @pointer(ptr %whole, i64 1)
  %block = load ptr, ptr %ready
  %threads = call ptr @pointer(ptr %whole, i64 2)
  %laid = call ptr @pointer(ptr %whole, i64 3)
  %threads.now = load i64, ptr %threads
  %threads.laid = load i64, ptr %laid
  %as.laid = icmp eq i64 %threads.now, %threads.laid
  %free = icmp ne ptr %block, null
  %numbers.wanted = call i64 @word(ptr %whole, i64 16)
  %numbers.given = sub i64 %n, 1
  %as.many = icmp eq i64 %numbers.given, %numbers.wanted
  %free.now = and i1 %free, %as.many
  %usable = and i1 %as.laid, %free.now
  br i1 %usable, label %ask, label %busy
ask:
  %world = call ptr @pointer(ptr %whole, i64 14)
  %empty = call ptr @pointer(ptr %whole, i64 11)
  %world.is = call i64 @check(ptr %world, ptr %empty, ptr %block)
  %as.ever = icmp slt i64 %world.is, -1
  br i1 %as.ever, label %begin, label %busy
begin:
  store ptr null, ptr %ready
  %status.at = call ptr @pointer(ptr %whole, i64 4)
  store i64 0, ptr %status.at
  %as.known = call i1 @known(ptr %whole)
  br i1 %as.known, label %fitting, label %renumbered
fitting:
  %where = call i64 @check(ptr %table, ptr %given, ptr %block)
  %fits = icmp slt i64 %where, -1
  br i1 %fits, label %graded, label %missed
graded:
  %spared = icmp eq i64 %where, -3
  %gradients = call i64 @word(ptr %table, i64 21)
  %none.left = icmp eq i64 %gradients, 0
  %has.memory = or i1 %spared, %none.left
  br i1 %has.memory, label %numbers, label %unspared
numbers:
  %number.words = call ptr @pointer(ptr %whole, i64 15)
  br label %next.number
next.number:
  %k = phi i64 [ 0, %numbers ], [ %k.next, %number.is ]
  %k.next = add i64 %k, 1
  %k.more = icmp slt i64 %k.next, %n
  br i1 %k.more, label %number.is, label %allocate
number.is:
  %k.array = call ptr @pointer(ptr %args, i64 %k.next)
  %k.data = call i64 @word(ptr %k.array, i64 2)
  %k.word = call i64 @word(ptr %number.words, i64 %k)
  %k.at = getelementptr i64, ptr %block, i64 %k.word
  store i64 %k.data, ptr %k.at
  br label %next.number
allocate:
  %count = call i64 @word(ptr %whole, i64 6)
  %arrays = alloca ptr, i64 %count
  %makers = call ptr @pointer(ptr %whole, i64 5)
  br label %next
next:
  %i = phi i64 [ 0, %allocate ], [ %i.next, %point ]
  %record = phi ptr [ %makers, %allocate ], [ %record.next, %point ]
  %more = icmp slt i64 %i, %count
  br i1 %more, label %make, label %run
make:
  %maker = call ptr @pointer(ptr %record, i64 0)
  %maker.args = call ptr @pointer(ptr %record, i64 1)
  %array = call ptr @PyObject_CallObject(ptr %maker, ptr %maker.args)
  %no.memory = icmp eq ptr %array, null
  br i1 %no.memory, label %raises, label %point
point:
  %array.at = getelementptr ptr, ptr %arrays, i64 %i
  store ptr %array, ptr %array.at
  %data = call i64 @word(ptr %array, i64 2)
  %word = call i64 @word(ptr %record, i64 2)
  %word.at = getelementptr i64, ptr %block, i64 %word
  store i64 %data, ptr %word.at
  %i.next = add i64 %i, 1
  %record.next = getelementptr i64, ptr %record, i64 3
  br label %next
run:
  %begun = call i1 @begin(ptr %whole)
  br i1 %begun, label %runs, label %raises
runs:
  %status = call i64 @start(ptr %table, ptr %block)
  %well = icmp eq i64 %status, 0
  br i1 %well, label %ran, label %failed
ran:
  %calls = call ptr @pointer(ptr %whole, i64 13)
  %calls.before = load i64, ptr %calls
  %calls.now = add i64 %calls.before, 1
  store i64 %calls.now, ptr %calls
  call void @finish(ptr %table, ptr %block, i1 true)
  %ended = call i1 @end(ptr %whole)
  call void @give_back(ptr %whole, ptr %block)
  br i1 %ended, label %give, label %interrupted
give:
  %result = call ptr @tensors(ptr %whole, ptr %arrays)
  call void @drop_all(ptr %arrays, i64 %count)
  ret ptr %result
failed:
  call void @finish(ptr %table, ptr %block, i1 false)
  %ended.too = call i1 @end(ptr %whole)
  call void @give_back(ptr %whole, ptr %block)
  br i1 %ended.too, label %again, label %interrupted
again:
  call void @drop_all(ptr %arrays, i64 %count)
  br label %say
interrupted:
  call void @drop_all(ptr %arrays, i64 %count)
  ret ptr null
raises:
  call void @finish(ptr %table, ptr %block, i1 false)
  call void @give_back(ptr %whole, ptr %block)
  call void @drop_all(ptr %arrays, i64 %i)
  ret ptr null
unspared:
  call void @finish(ptr %table, ptr %block, i1 false)
  call void @give_back(ptr %whole, ptr %block)
  br label %say
missed:
  call void @give_back(ptr %whole, ptr %block)
  br label %say
renumbered:
  call void @give_back(ptr %whole, ptr %block)
  br label %say
busy:
  br label %say
say:
  %code = phi i64 [ -2, %busy ], [ -2, %unspared ], [ -2, %again ], [ %where, %missed ],
    [ -3, %renumbered ]
  %number = call ptr @PyLong_FromLong(i64 %code)
  ret ptr %number
}
"""
