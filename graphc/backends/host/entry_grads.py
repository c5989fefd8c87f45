"""Native code that puts gradients into memory of gradients before: a part of entry_text.py.

What a step leaves in `.grad` takes the place of what the last step has left there. If nobody else
refers to that one, neither to the Tensor nor to its memory, it is kept as a *spare*, and is what
the step after this one writes to and leaves. A call takes its spares out of the table. A gradient
that is written *in place* is its own spare: the call has a reference to it, and nothing is kept.

A record of one gradient: the tensor that has it, its class, header (dtype, dims, sizes), the word
of the block for its address, the spare's number of writes and whether it is an inference tensor
(as objects), whether it is written in place, and hints (entry_fetch.py) of the spare.
"""

from __future__ import annotations

GRADS = """
define internal i1 @alone(ptr %object, i32 %wanted, i64 %weak.offset) {
  %count = load i32, ptr %object
  %right = icmp eq i32 %count, %wanted
  %weak = call ptr @pointer.at(ptr %object, i64 %weak.offset)
  %unseen = icmp eq ptr %weak, null
  %is = and i1 %right, %unseen
  ret i1 %is
}
define internal ptr @pointer.at(ptr %object, i64 %offset) {
  %at = getelementptr i8, ptr %object, i64 %offset
  %value = load ptr, ptr %at
  ret ptr %value
}
; the address of a spare's elements if it is as good as a new one, else 0
define internal i64 @spare(ptr %table, ptr %record, ptr %tensor) {
  %none = call ptr @pointer(ptr %table, i64 14)
  %some = icmp ne ptr %tensor, null
  br i1 %some, label %tensor.is, label %no
tensor.is:
  %class = call ptr @pointer(ptr %tensor, i64 1)
  %classes = call ptr @pointer(ptr %table, i64 5)
  %class.wanted = load ptr, ptr %classes
  %is.class = icmp eq ptr %class, %class.wanted
  br i1 %is.class, label %class.is, label %no
class.is:
  %weak.tensor = call i64 @word(ptr %table, i64 22)
  %own = call i1 @alone(ptr %tensor, i32 1, i64 %weak.tensor)
  %values = call ptr @values(ptr %tensor)
  %together = icmp ne ptr %values, null
  %ok.1 = and i1 %own, %together
  br i1 %ok.1, label %values.are, label %no
values.are:
  %used.at = getelementptr i8, ptr %values, i64 USED
  %used = load i8, ptr %used.at
  %plain = icmp eq i8 %used, 2
  br i1 %plain, label %plain.is, label %no
plain.is:
  %array.index = call i64 @word(ptr %classes, i64 1)
  %storage.index = call i64 @word(ptr %classes, i64 2)
  %array = call ptr @pointer(ptr %values, i64 %array.index)
  %storage = call ptr @pointer(ptr %values, i64 %storage.index)
  %has.array = icmp ne ptr %array, null
  %has.storage = icmp ne ptr %storage, null
  %has = and i1 %has.array, %has.storage
  br i1 %has, label %parts, label %no
parts:
  %array.class = call ptr @pointer(ptr %array, i64 1)
  %array.wanted = call ptr @pointer(ptr %table, i64 10)
  %array.right = icmp eq ptr %array.class, %array.wanted
  %storage.class = call ptr @pointer(ptr %storage, i64 1)
  %storage.wanted = call ptr @pointer(ptr %table, i64 11)
  %storage.right = icmp eq ptr %storage.class, %storage.wanted
  %right = and i1 %array.right, %storage.right
  br i1 %right, label %memory, label %no
memory:
  %weak.array = call i64 @word(ptr %table, i64 23)
  %array.own = call i1 @alone(ptr %array, i32 2, i64 %weak.array)
  %header = call ptr @pointer(ptr %record, i64 2)
  %laid.out = call i1 @laid_out(ptr %array, ptr %header)
  %flags.at = getelementptr i8, ptr %array, i64 64
  %flags = load i32, ptr %flags.at
  ; aligned, and to be written to
  %flags.both = and i32 %flags, 1280
  %writable = icmp eq i32 %flags.both, 1280
  %own.bit = and i32 %flags, 4
  %owns = icmp ne i32 %own.bit, 0
  %ok.2 = and i1 %array.own, %laid.out
  %ok.3 = and i1 %ok.2, %writable
  br i1 %ok.3, label %base, label %no
base:
  %block = call ptr @pointer(ptr %array, i64 6)
  %whole = icmp eq ptr %block, null
  br i1 %whole, label %memory.own, label %memory.of
memory.own:
  br i1 %owns, label %storage.is, label %no
memory.of:
  %block.class = call ptr @pointer(ptr %block, i64 1)
  %block.wanted = call ptr @pointer(ptr %table, i64 33)
  %is.block = icmp eq ptr %block.class, %block.wanted
  br i1 %is.block, label %block.is, label %no
block.is:
  %block.own = call i1 @alone(ptr %block, i32 1, i64 %weak.array)
  br i1 %block.own, label %storage.is, label %no
storage.is:
  %weak.storage = call i64 @word(ptr %table, i64 24)
  %storage.own = call i1 @alone(ptr %storage, i32 1, i64 %weak.storage)
  %slots = call ptr @pointer(ptr %table, i64 25)
  %slot.1 = call i64 @word(ptr %slots, i64 0)
  %slot.2 = call i64 @word(ptr %slots, i64 1)
  %slot.3 = call i64 @word(ptr %slots, i64 2)
  %slot.4 = call i64 @word(ptr %slots, i64 3)
  %slot.5 = call i64 @word(ptr %slots, i64 4)
  %zero = call ptr @pointer(ptr %slots, i64 5)
  %version.offset = call i64 @word(ptr %table, i64 13)
  %inference.offset = call i64 @word(ptr %table, i64 12)
  %its.array = call ptr @pointer.at(ptr %storage, i64 %slot.1)
  %its.root = call ptr @pointer.at(ptr %storage, i64 %slot.2)
  %its.exposed = call ptr @pointer.at(ptr %storage, i64 %slot.3)
  %its.segment = call ptr @pointer.at(ptr %storage, i64 %slot.4)
  %its.away = call ptr @pointer.at(ptr %storage, i64 %slot.5)
  %its.version = call ptr @pointer.at(ptr %storage, i64 %version.offset)
  %its.inference = call ptr @pointer.at(ptr %storage, i64 %inference.offset)
  %false = call ptr @pointer(ptr %table, i64 26)
  %version = call ptr @pointer(ptr %record, i64 4)
  %inference = call ptr @pointer(ptr %record, i64 5)
  %is.1 = icmp eq ptr %its.array, %array
  %is.2 = icmp eq ptr %its.root, %none
  %is.3 = icmp eq ptr %its.exposed, %false
  %is.4 = icmp eq ptr %its.segment, %none
  %is.5 = icmp eq ptr %its.version, %version
  %is.6 = icmp eq ptr %its.inference, %inference
  %are.1 = and i1 %is.1, %is.2
  %are.2 = and i1 %is.3, %is.4
  %are.3 = and i1 %is.5, %is.6
  %are.4 = and i1 %are.1, %are.2
  %are.5 = and i1 %are.3, %storage.own
  %is.7 = icmp eq ptr %its.away, %zero
  %are.6 = and i1 %are.5, %is.7
  %are = and i1 %are.4, %are.6
  br i1 %are, label %yes, label %no
yes:
  %data = call i64 @word(ptr %array, i64 2)
  %sizes = call ptr @pointer(ptr %array, i64 4)
  %hints = call ptr @pointer(ptr %record, i64 7)
  call void @found(ptr %hints, ptr %tensor, ptr %values, ptr %array, ptr %sizes, ptr %storage)
  ret i64 %data
no:
  ret i64 0
}
; the gradient before, or null (borrowed)
define internal ptr @former(ptr %table, ptr %record) {
  %owner = load ptr, ptr %record
  %class = call ptr @pointer(ptr %owner, i64 1)
  %indices = call ptr @indices(ptr %table, ptr %class)
  %strange = icmp eq ptr %indices, null
  br i1 %strange, label %no, label %known
known:
  %grad = call ptr @fact(ptr %table, ptr %owner, ptr %indices, i64 8)
  ret ptr %grad
no:
  ret ptr null
}
; takes all spares for a call; false: none
define internal i1 @take(ptr %table, ptr %block) {
  %count = call i64 @word(ptr %table, i64 21)
  %records = call ptr @pointer(ptr %table, i64 20)
  %spares = call ptr @pointer(ptr %table, i64 27)
  %any = icmp sgt i64 %count, 0
  br i1 %any, label %look, label %no
look:
  %i = phi i64 [ 0, %0 ], [ %i.next, %on ]
  %record = phi ptr [ %records, %0 ], [ %record.next, %on ]
  %hints = call ptr @pointer(ptr %record, i64 7)
  call void @soon(ptr %hints)
  %in.place = call i64 @word(ptr %record, i64 6)
  %itself = icmp ne i64 %in.place, 0
  br i1 %itself, label %former, label %kept.one
kept.one:
  %kept.tensor = call ptr @pointer(ptr %spares, i64 %i)
  br label %ask
former:
  %former.tensor = call ptr @former(ptr %table, ptr %record)
  br label %ask
ask:
  %tensor = phi ptr [ %kept.tensor, %kept.one ], [ %former.tensor, %former ]
  %data = call i64 @spare(ptr %table, ptr %record, ptr %tensor)
  %good = icmp ne i64 %data, 0
  br i1 %good, label %on, label %no
on:
  %word = call i64 @word(ptr %record, i64 3)
  %at = getelementptr i64, ptr %block, i64 %word
  store i64 %data, ptr %at
  %i.next = add i64 %i, 1
  %record.next = getelementptr i64, ptr %record, i64 8
  %more = icmp slt i64 %i.next, %count
  br i1 %more, label %look, label %all
all:
  %kept = call ptr @kept_grads(ptr %table, ptr %block)
  br label %move
move:
  %k = phi i64 [ 0, %all ], [ %k.next, %moved ]
  %k.record = phi ptr [ %records, %all ], [ %k.record.next, %moved ]
  %from = getelementptr ptr, ptr %spares, i64 %k
  %k.in.place = call i64 @word(ptr %k.record, i64 6)
  %k.itself = icmp ne i64 %k.in.place, 0
  br i1 %k.itself, label %refer, label %take.out
refer:
  %k.former = call ptr @former(ptr %table, ptr %k.record)
  call void @Py_IncRef(ptr %k.former)
  br label %moved
take.out:
  %k.spare = load ptr, ptr %from
  store ptr null, ptr %from
  br label %moved
moved:
  %taken = phi ptr [ %k.former, %refer ], [ %k.spare, %take.out ]
  %to = getelementptr ptr, ptr %kept, i64 %k
  store ptr %taken, ptr %to
  %k.next = add i64 %k, 1
  %k.record.next = getelementptr i64, ptr %k.record, i64 8
  %k.more = icmp slt i64 %k.next, %count
  br i1 %k.more, label %move, label %yes
yes:
  ret i1 true
no:
  ret i1 false
}
; where a block has the spares that a call has taken
define internal ptr @kept_grads(ptr %table, ptr %block) {
  %inputs = call i64 @word(ptr %table, i64 2)
  %both = shl i64 %inputs, 1
  %held = call i64 @word(ptr %table, i64 4)
  %place = add i64 %held, %both
  %at = getelementptr ptr, ptr %block, i64 %place
  ret ptr %at
}
; makes the spares that a call has taken the gradients, and keeps those before as spares; or puts
; them back, if it did not run
define internal void @hand_over(ptr %table, ptr %block, i1 %ran) {
  %count = call i64 @word(ptr %table, i64 21)
  %records = call ptr @pointer(ptr %table, i64 20)
  %spares = call ptr @pointer(ptr %table, i64 27)
  %names = call ptr @pointer(ptr %table, i64 6)
  %name = call ptr @pointer(ptr %names, i64 8)
  %kept = call ptr @kept_grads(ptr %table, ptr %block)
  br label %next
next:
  %i = phi i64 [ 0, %0 ], [ %i.next, %on ]
  %record = phi ptr [ %records, %0 ], [ %record.next, %on ]
  %more = icmp slt i64 %i, %count
  br i1 %more, label %look, label %end
look:
  %at = getelementptr ptr, ptr %kept, i64 %i
  %new = load ptr, ptr %at
  store ptr null, ptr %at
  %some = icmp ne ptr %new, null
  br i1 %some, label %taken, label %on
taken:
  br i1 %ran, label %give, label %keep
give:
  %owner = load ptr, ptr %record
  %class = call ptr @pointer(ptr %owner, i64 1)
  %indices = call ptr @indices(ptr %table, ptr %class)
  %strange = icmp eq ptr %indices, null
  br i1 %strange, label %set, label %known
known:
  %alone = call ptr @undivided(ptr %owner)
  %has.values = icmp ne ptr %alone, null
  br i1 %has.values, label %in.place, label %former
in.place:
  %index = call i64 @word(ptr %indices, i64 8)
  %slot = getelementptr ptr, ptr %alone, i64 %index
  %held = load ptr, ptr %slot
  %none = call ptr @pointer(ptr %table, i64 14)
  %is.none = icmp eq ptr %held, %none
  %missing = icmp eq ptr %held, null
  %nothing = or i1 %is.none, %missing
  br i1 %nothing, label %former, label %swap
swap:
  store ptr %new, ptr %slot
  br label %keep
former:
  %before = call ptr @fact(ptr %table, ptr %owner, ptr %indices, i64 8)
  br label %set
set:
  %old = phi ptr [ null, %give ], [ %before, %former ]
  call void @Py_IncRef(ptr %old)
  %failed = call i32 @PyObject_SetAttr(ptr %owner, ptr %name, ptr %new)
  call void @Py_DecRef(ptr %new)
  br label %keep
keep:
  %rest = phi ptr [ %new, %taken ], [ %old, %set ], [ %held, %swap ]
  %place = getelementptr ptr, ptr %spares, i64 %i
  %there = load ptr, ptr %place
  %free = icmp eq ptr %there, null
  %in.place.is = call i64 @word(ptr %record, i64 6)
  %as.spare = icmp eq i64 %in.place.is, 0
  %keeps = and i1 %free, %as.spare
  br i1 %keeps, label %put, label %drop
put:
  store ptr %rest, ptr %place
  br label %on
drop:
  call void @Py_DecRef(ptr %rest)
  br label %on
on:
  %i.next = add i64 %i, 1
  %record.next = getelementptr i64, ptr %record, i64 8
  br label %next
end:
  ret void
}
"""
