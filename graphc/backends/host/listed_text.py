"""What native code for a list of calls is written in: loops that are called as NumPy's are, and the
ends of a function for Python that runs them (steps_text.py, program_text.py)."""

from __future__ import annotations

PLACE = 3  # words: one that an address is written to, which array, and one more


def word(name: str, source: str, at: int, kind: str = "i64") -> str:
    """A word of memory, as `%name`."""
    return f"""  %{name}.at = getelementptr i64, ptr {source}, i64 {at}
  %{name} = load {kind}, ptr %{name}.at"""


def each(name: str, begin: str, body: str) -> str:
    """A loop over `%count` numbers, `%i` of them done, that is called as NumPy's are."""
    return f"""
define void @graphc_{name}(ptr %operands, ptr %counts, ptr %strides, ptr %data) {{
begin:
  %count = load i64, ptr %counts
{begin}
  br label %test
test:
  %i = phi i64 [ 0, %begin ], [ %next, %body ]
  %more = icmp slt i64 %i, %count
  br i1 %more, label %body, label %end
body:
{body}
  %next = add i64 %i, 1
  br label %test
end:
  ret void
}}"""


def function(name: str, head: int, begin: str, body: str) -> str:
    """One for Python, of a record and arrays: the last array, or None. A list has `head` words
    before its `%places`, from `%first.place` on, and its `%entries`, from `%first.entry` on. `body`
    begins in the block `fit`, where all arrays have been looked at; it ends at `yes` or `no`."""
    return f"""
define ptr @graphc_{name}(ptr %self, ptr %args, i64 %n) {{
begin:
  %record = call ptr @PyLong_AsVoidPtr(ptr %self)
{word("list", "%record", 1, "ptr")}
  %arrays = load i64, ptr %list
{word("places", "%list", 1)}
{word("entries", "%list", 2)}
  %first.place = getelementptr i64, ptr %list, i64 {head}
  %place.words = mul i64 %places, {PLACE}
  %first.entry = getelementptr i64, ptr %first.place, i64 %place.words
  %operands = alloca [4 x ptr]
  %counts = alloca i64
{begin}
  br label %look
look:
  %a = phi i64 [ 0, %begin ], [ %a.next, %looked ]
  %a.more = icmp slt i64 %a, %arrays
  br i1 %a.more, label %looks, label %fit
looks:
  %given = call ptr @numbers(ptr %args, i64 %a)
  %unfit = icmp eq ptr %given, null
  br i1 %unfit, label %no, label %looked
looked:
  %a.next = add i64 %a, 1
  br label %look
fit:
{body}
yes:
  %last = sub i64 %arrays, 1
  %out.at = getelementptr ptr, ptr %args, i64 %last
  %out = load ptr, ptr %out.at
  call void @Py_IncRef(ptr %out)
  ret ptr %out
no:
  %nothing = load ptr, ptr %record
  call void @Py_IncRef(ptr %nothing)
  ret ptr %nothing
}}"""


def put(before: str, behind: str) -> str:
    """A loop that comes from the block `before` and goes on to `step`: each place's word gets an
    address, which lies `%bytes` behind an array's first number. `behind`: that of the place's
    third word, `%third`."""
    return f"""put:
  %p = phi i64 [ 0, %{before} ], [ %p.next, %puts ]
  %p.more = icmp slt i64 %p, %places
  br i1 %p.more, label %puts, label %step
puts:
  %p.words = mul i64 %p, {PLACE}
  %place = getelementptr i64, ptr %first.place, i64 %p.words
  %word = load ptr, ptr %place
{word("which", "%place", 1)}
{word("third", "%place", 2)}
  %bytes = {behind}
  %memory = call ptr @numbers(ptr %args, i64 %which)
  %now = getelementptr i8, ptr %memory, i64 %bytes
  store ptr %now, ptr %word
  %p.next = add i64 %p, 1
  br label %put"""
