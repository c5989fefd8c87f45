"""Native code that asks what a tensor is like and fetches its memory: a part of entry_text.py."""

from __future__ import annotations

# entry of a tensor: argument number (-1: captured), tensor, class, header, input, bits, hints
# hints: where the last call has found the tensor, its attributes, array, sizes and storage. They
# are asked to be in the cache a few entries ahead, and never read: what they name may be gone.
# header: dtype, dims, whether memory has them in another order, sizes, bytes of steps if so
FETCH = """
; whether an array has this dtype and these sizes, and is row-major or has these steps
define internal i1 @laid_out(ptr %array, ptr %expected) {
  %dtype.at = getelementptr i8, ptr %array, i64 56
  %dtype = load ptr, ptr %dtype.at
  %dtype.wanted = call ptr @pointer(ptr %expected, i64 0)
  %dtype.right = icmp eq ptr %dtype, %dtype.wanted
  %ndim.at = getelementptr i8, ptr %array, i64 24
  %ndim.32 = load i32, ptr %ndim.at
  %ndim = sext i32 %ndim.32 to i64
  %ndim.wanted = call i64 @word(ptr %expected, i64 1)
  %ndim.right = icmp eq i64 %ndim, %ndim.wanted
  %flags.at = getelementptr i8, ptr %array, i64 64
  %flags = load i32, ptr %flags.at
  %rows = and i32 %flags, 1
  %is.rows = icmp ne i32 %rows, 0
  %ordered.word = call i64 @word(ptr %expected, i64 2)
  %ordered = icmp ne i64 %ordered.word, 0
  %rows.right = or i1 %is.rows, %ordered
  %right.1 = and i1 %dtype.right, %ndim.right
  %right.2 = and i1 %right.1, %rows.right
  br i1 %right.2, label %sizes, label %no
sizes:
  %sizes.at = getelementptr i8, ptr %array, i64 32
  %dims = load ptr, ptr %sizes.at
  %dims.wanted = getelementptr i64, ptr %expected, i64 3
  %steps.at = getelementptr i8, ptr %array, i64 40
  %steps = load ptr, ptr %steps.at
  %steps.wanted = getelementptr i64, ptr %dims.wanted, i64 %ndim
  br label %dim
dim:
  %d = phi i64 [ 0, %sizes ], [ %d.next, %dim.right ]
  %d.more = icmp slt i64 %d, %ndim
  br i1 %d.more, label %dim.ask, label %yes
dim.ask:
  %size = call i64 @word(ptr %dims, i64 %d)
  %size.wanted = call i64 @word(ptr %dims.wanted, i64 %d)
  %size.right = icmp eq i64 %size, %size.wanted
  br i1 %size.right, label %dim.sized, label %no
dim.sized:
  %one = icmp eq i64 %size, 1
  %unordered = xor i1 %ordered, true
  %any.step = or i1 %one, %unordered
  br i1 %any.step, label %dim.right, label %dim.step
dim.step:
  %step = call i64 @word(ptr %steps, i64 %d)
  %step.wanted = call i64 @word(ptr %steps.wanted, i64 %d)
  %step.right = icmp eq i64 %step, %step.wanted
  br i1 %step.right, label %dim.right, label %no
dim.right:
  %d.next = add i64 %d, 1
  br label %dim
yes:
  ret i1 true
no:
  ret i1 false
}
; what an entry AHEAD of this one will read
define internal void @soon(ptr %hints) {
  %ahead = getelementptr i64, ptr %hints, i64 AHEAD
  %tensor = call ptr @pointer(ptr %ahead, i64 0)
  %row = call ptr @pointer(ptr %ahead, i64 1)
  %array = call ptr @pointer(ptr %ahead, i64 2)
  %sizes = call ptr @pointer(ptr %ahead, i64 3)
  %storage = call ptr @pointer(ptr %ahead, i64 4)
  %before = getelementptr i8, ptr %tensor, i64 -32
  %row.end = getelementptr i8, ptr %row, i64 64
  %array.end = getelementptr i8, ptr %array, i64 64
  %storage.end = getelementptr i8, ptr %storage, i64 64
  call void @llvm.prefetch.p0(ptr %before, i32 0, i32 3, i32 1)
  call void @llvm.prefetch.p0(ptr %tensor, i32 0, i32 3, i32 1)
  call void @llvm.prefetch.p0(ptr %row, i32 0, i32 3, i32 1)
  call void @llvm.prefetch.p0(ptr %row.end, i32 0, i32 3, i32 1)
  call void @llvm.prefetch.p0(ptr %array, i32 0, i32 3, i32 1)
  call void @llvm.prefetch.p0(ptr %array.end, i32 0, i32 3, i32 1)
  call void @llvm.prefetch.p0(ptr %sizes, i32 0, i32 3, i32 1)
  call void @llvm.prefetch.p0(ptr %storage, i32 0, i32 3, i32 1)
  call void @llvm.prefetch.p0(ptr %storage.end, i32 0, i32 3, i32 1)
  ret void
}
define internal void @found(
    ptr %hints, ptr %tensor, ptr %row, ptr %array, ptr %sizes, ptr %storage) {
  %hint.1 = getelementptr ptr, ptr %hints, i64 1
  %hint.2 = getelementptr ptr, ptr %hints, i64 2
  %hint.3 = getelementptr ptr, ptr %hints, i64 3
  %hint.4 = getelementptr ptr, ptr %hints, i64 4
  store ptr %tensor, ptr %hints
  store ptr %row, ptr %hint.1
  store ptr %array, ptr %hint.2
  store ptr %sizes, ptr %hint.3
  store ptr %storage, ptr %hint.4
  ret void
}
define internal i1 @fetch(ptr %table, ptr %entry, ptr %given, ptr %block, ptr %copies) {
  %none = call ptr @pointer(ptr %table, i64 14)
  %hints = call ptr @pointer(ptr %entry, i64 7)
  call void @soon(ptr %hints)
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
  %owner = phi ptr [ %arg, %argument ], [ %known, %captured ]
  %class = call ptr @pointer(ptr %owner, i64 1)
  %wanted = call ptr @pointer(ptr %entry, i64 3)
  %is.class = icmp eq ptr %class, %wanted
  br i1 %is.class, label %right, label %no
right:
  %of.owner = call ptr @indices(ptr %table, ptr %class)
  %bits = call i64 @word(ptr %entry, i64 6)
  %bit.grad = and i64 %bits, 256
  %of.grad = icmp ne i64 %bit.grad, 0
  br i1 %of.grad, label %gradient, label %itself
gradient:
  %grad = call ptr @fact(ptr %table, ptr %owner, ptr %of.owner, i64 8)
  %there = icmp ne ptr %grad, null
  br i1 %there, label %grad.is, label %no
grad.is:
  %grad.class = call ptr @pointer(ptr %grad, i64 1)
  %of.grad.is = call ptr @indices(ptr %table, ptr %grad.class)
  %grad.known = icmp ne ptr %of.grad.is, null
  br i1 %grad.known, label %itself, label %no
itself:
  %tensor = phi ptr [ %owner, %right ], [ %grad, %grad.is ]
  %indices = phi ptr [ %of.owner, %right ], [ %of.grad.is, %grad.is ]
  %row = call ptr @row(ptr %table, ptr %tensor, ptr %indices, ptr %copies)
  %array = call ptr @read(ptr %row, ptr %indices, ptr %none, i64 0)
  %its = call ptr @read(ptr %row, ptr %indices, ptr %none, i64 1)
  %asks = call ptr @read(ptr %row, ptr %indices, ptr %none, i64 2)
  %node = call ptr @read(ptr %row, ptr %indices, ptr %none, i64 3)
  %own.hooks = call ptr @read(ptr %row, ptr %indices, ptr %none, i64 4)
  %own.post = call ptr @read(ptr %row, ptr %indices, ptr %none, i64 5)
  %accumulator = call ptr @read(ptr %row, ptr %indices, ptr %none, i64 6)
  %base = call ptr @read(ptr %row, ptr %indices, ptr %none, i64 7)
  %bit.1 = and i64 %bits, 1
  %ask.1 = icmp ne i64 %bit.1, 0
  br i1 %ask.1, label %history, label %leaf
history:
  %seen = call ptr @read(ptr %row, ptr %indices, ptr %none, i64 9)
  %requires = call i64 @requires(
      ptr %table, ptr %node, ptr %asks, ptr %base, ptr %seen, ptr %its)
  %shifted = lshr i64 %bits, 1
  %requires.wanted = and i64 %shifted, 1
  %same.1 = icmp eq i64 %requires, %requires.wanted
  br i1 %same.1, label %leaf, label %no
leaf:
  %bit.2 = and i64 %bits, 4
  %ask.2 = icmp ne i64 %bit.2, 0
  br i1 %ask.2, label %leaf.ask, label %hooks
leaf.ask:
  %is.leaf = icmp eq ptr %node, null
  %bit.3 = and i64 %bits, 8
  %leaf.wanted = icmp ne i64 %bit.3, 0
  %same.2 = icmp eq i1 %is.leaf, %leaf.wanted
  br i1 %same.2, label %hooks, label %no
hooks:
  %bit.4 = and i64 %bits, 16
  %ask.4 = icmp ne i64 %bit.4, 0
  br i1 %ask.4, label %hooks.ask, label %storage
hooks.ask:
  %hookless = call i1 @hookless(
      ptr %table, ptr %own.hooks, ptr %own.post, ptr %accumulator)
  br i1 %hookless, label %storage, label %no
storage:
  %bits.5 = and i64 %bits, 160
  %ask.5 = icmp ne i64 %bits.5, 0
  br i1 %ask.5, label %storage.ask, label %memory
storage.ask:
  %has.storage = icmp ne ptr %its, null
  br i1 %has.storage, label %storage.is, label %no
storage.is:
  %storage.class = call ptr @pointer(ptr %its, i64 1)
  %storage.wanted = call ptr @pointer(ptr %table, i64 11)
  %storage.right = icmp eq ptr %storage.class, %storage.wanted
  br i1 %storage.right, label %inference, label %no
inference:
  %bit.5 = and i64 %bits, 32
  %ask.6 = icmp ne i64 %bit.5, 0
  br i1 %ask.6, label %inference.ask, label %memory
inference.ask:
  %inference.offset = call i64 @word(ptr %table, i64 12)
  %inference.at = getelementptr i8, ptr %its, i64 %inference.offset
  %inferred = load ptr, ptr %inference.at
  %true = call ptr @pointer(ptr %table, i64 15)
  %is.inference = icmp eq ptr %inferred, %true
  %bit.6 = and i64 %bits, 64
  %inference.wanted = icmp ne i64 %bit.6, 0
  %same.5 = icmp eq i1 %is.inference, %inference.wanted
  br i1 %same.5, label %memory, label %no
memory:
  %written.storage = phi ptr [ null, %storage ], [ %its, %inference ], [ %its, %inference.ask ]
  %has.array = icmp ne ptr %array, null
  br i1 %has.array, label %array.is, label %no
array.is:
  %array.class = call ptr @pointer(ptr %array, i64 1)
  %array.wanted = call ptr @pointer(ptr %table, i64 10)
  %array.right = icmp eq ptr %array.class, %array.wanted
  br i1 %array.right, label %header, label %no
header:
  %expected = call ptr @pointer(ptr %entry, i64 4)
  %right.memory = call i1 @laid_out(ptr %array, ptr %expected)
  br i1 %right.memory, label %yes, label %no
yes:
  %input = call i64 @word(ptr %entry, i64 5)
  %data.at = getelementptr i8, ptr %array, i64 16
  %data = load i64, ptr %data.at
  %first = call i64 @word(ptr %table, i64 3)
  %place = add i64 %first, %input
  %place.at = getelementptr i64, ptr %block, i64 %place
  store i64 %data, ptr %place.at
  %held = call i64 @word(ptr %table, i64 4)
  %keep = add i64 %held, %input
  %keep.at = getelementptr ptr, ptr %block, i64 %keep
  call void @Py_IncRef(ptr %array)
  store ptr %array, ptr %keep.at
  %sizes.at = getelementptr i8, ptr %array, i64 32
  %sizes = load ptr, ptr %sizes.at
  call void @found(ptr %hints, ptr %tensor, ptr %row, ptr %array, ptr %sizes, ptr %its)
  %bit.7 = and i64 %bits, 128
  %writes = icmp ne i64 %bit.7, 0
  br i1 %writes, label %keeps, label %fits
keeps:
  %inputs = call i64 @word(ptr %table, i64 2)
  %storage.at = getelementptr ptr, ptr %keep.at, i64 %inputs
  call void @Py_IncRef(ptr %written.storage)
  store ptr %written.storage, ptr %storage.at
  %version.offset = call i64 @word(ptr %table, i64 13)
  %version.at = getelementptr i8, ptr %written.storage, i64 %version.offset
  %version = load ptr, ptr %version.at
  call void @llvm.prefetch.p0(ptr %version, i32 0, i32 3, i32 1)
  br label %fits
fits:
  ret i1 true
no:
  ret i1 false
}
; whether memory that is written to is no other input's, where an address is another than before
define internal i1 @apart(ptr %table, ptr %block) {
  %places = call ptr @pointer(ptr %table, i64 7)
  %unasked = icmp eq ptr %places, null
  br i1 %unasked, label %yes, label %begin
begin:
  %count = call i64 @word(ptr %table, i64 2)
  %first = call i64 @word(ptr %table, i64 3)
  %now = getelementptr i64, ptr %block, i64 %first
  %spans = call ptr @pointer(ptr %table, i64 8)
  %written = call ptr @pointer(ptr %table, i64 9)
  br label %input
input:
  %i = phi i64 [ 0, %begin ], [ %i.next, %on ]
  %more = icmp slt i64 %i, %count
  br i1 %more, label %look, label %all
look:
  %place = call i64 @word(ptr %now, i64 %i)
  %before = call i64 @word(ptr %places, i64 %i)
  %span = call i64 @word(ptr %spans, i64 %i)
  %moved = icmp ne i64 %place, %before
  %some = icmp ne i64 %span, 0
  %asks = and i1 %moved, %some
  br i1 %asks, label %others, label %on
others:
  %end = add i64 %place, %span
  %own = call i64 @word(ptr %written, i64 %i)
  br label %other
other:
  %j = phi i64 [ 0, %others ], [ %j.next, %other.on ]
  %j.more = icmp slt i64 %j, %count
  br i1 %j.more, label %compare, label %on
compare:
  %its = call i64 @word(ptr %now, i64 %j)
  %its.span = call i64 @word(ptr %spans, i64 %j)
  %its.end = add i64 %its, %its.span
  %its.written = call i64 @word(ptr %written, i64 %j)
  %either = or i64 %own, %its.written
  %matters = icmp ne i64 %either, 0
  %below = icmp ult i64 %place, %its.end
  %above = icmp ult i64 %its, %end
  %meet = and i1 %below, %above
  %different = icmp ne i64 %i, %j
  %bad.1 = and i1 %meet, %different
  %bad = and i1 %bad.1, %matters
  br i1 %bad, label %no, label %other.on
other.on:
  %j.next = add i64 %j, 1
  br label %other
on:
  %i.next = add i64 %i, 1
  br label %input
all:
  %k.some = icmp sgt i64 %count, 0
  br i1 %k.some, label %keep, label %yes
keep:
  %k = phi i64 [ 0, %all ], [ %k.next, %keep ]
  %k.now = call i64 @word(ptr %now, i64 %k)
  %k.at = getelementptr i64, ptr %places, i64 %k
  store i64 %k.now, ptr %k.at
  %k.next = add i64 %k, 1
  %k.more = icmp slt i64 %k.next, %count
  br i1 %k.more, label %keep, label %yes
yes:
  ret i1 true
no:
  ret i1 false
}
"""
