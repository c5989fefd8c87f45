"""Native code that reads what a tensor has: a part of entry_text.py."""

from __future__ import annotations

# a pointer to an object's attributes, or null where they are in a dict; the same, but null where
# there may be a dict beside them, which would have to be told of a write
VALUES = {
    (3, 11): """
define internal ptr @values(ptr %object) alwaysinline {
  %at = getelementptr i8, ptr %object, i64 -32
  %values = load ptr, ptr %at
  ret ptr %values
}
define internal ptr @undivided(ptr %object) {
  %values = call ptr @values(ptr %object)
  ret ptr %values
}
""",
    (3, 12): """
define internal ptr @values(ptr %object) alwaysinline {
  %at = getelementptr i8, ptr %object, i64 -24
  %tagged = load ptr, ptr %at
  %bits = ptrtoint ptr %tagged to i64
  %low = and i64 %bits, 1
  %together = icmp ne i64 %low, 0
  %found = getelementptr i8, ptr %tagged, i64 1
  %values = select i1 %together, ptr %found, ptr null
  ret ptr %values
}
define internal ptr @undivided(ptr %object) {
  %values = call ptr @values(ptr %object)
  ret ptr %values
}
""",
    (3, 13): """
define internal ptr @values(ptr %object) alwaysinline {
  %class.at = getelementptr i8, ptr %object, i64 8
  %class = load ptr, ptr %class.at
  %size.at = getelementptr i8, ptr %class, i64 32
  %size = load i64, ptr %size.at
  %sizes = getelementptr i8, ptr %object, i64 %size
  %valid.at = getelementptr i8, ptr %sizes, i64 3
  %valid = load i8, ptr %valid.at
  %together = icmp ne i8 %valid, 0
  %found = getelementptr i8, ptr %sizes, i64 8
  %values = select i1 %together, ptr %found, ptr null
  ret ptr %values
}
define internal ptr @undivided(ptr %object) {
  ret ptr null
}
""",
}

ATTRIBUTE = """
; the attributes of a tensor side by side: its own, or those of its `__dict__`, which still shares
; the keys of its class; null: neither
define internal ptr @side_by_side(ptr %tensor, ptr %indices) {
  %own = call ptr @values(ptr %tensor)
  %together = icmp ne ptr %own, null
  br i1 %together, label %end, label %dict.is
dict.is:
  %dict.at = getelementptr i8, ptr %tensor, i64 -24
  %dict = load ptr, ptr %dict.at
  %keys = call ptr @pointer(ptr %indices, i64 10)
  %some = icmp ne ptr %dict, null
  %shares = icmp ne ptr %keys, null
  %both = and i1 %some, %shares
  br i1 %both, label %look, label %nothing
look:
  %its.keys = call ptr @pointer(ptr %dict, i64 4)
  %its.values = call ptr @pointer(ptr %dict, i64 5)
  %same = icmp eq ptr %its.keys, %keys
  %found = select i1 %same, ptr %its.values, ptr null
  br label %end
nothing:
  br label %end
end:
  %values = phi ptr [ %own, %0 ], [ %found, %look ], [ null, %nothing ]
  ret ptr %values
}
; what a tensor holds under a name in a dict of its own, null where nothing (borrowed)
define internal ptr @in_dict(ptr %tensor, ptr %name) {
  %dict.at = getelementptr i8, ptr %tensor, i64 -24
  %dict = load ptr, ptr %dict.at
  %empty = icmp eq ptr %dict, null
  br i1 %empty, label %nothing, label %look
look:
  %found = call ptr @PyDict_GetItemWithError(ptr %dict, ptr %name)
  ret ptr %found
nothing:
  ret ptr null
}
"""

FACTS = """
; where the attributes of a class of tensors are: one of two, or null
define internal ptr @indices(ptr %table, ptr %class) {
  %classes = call ptr @pointer(ptr %table, i64 5)
  %first = load ptr, ptr %classes
  %is.first = icmp eq ptr %first, %class
  %first.indices = getelementptr i64, ptr %classes, i64 1
  br i1 %is.first, label %one, label %other
one:
  ret ptr %first.indices
other:
  %second.at = getelementptr i64, ptr %classes, i64 12
  %second = load ptr, ptr %second.at
  %is.second = icmp eq ptr %second, %class
  %second.indices = getelementptr i64, ptr %second.at, i64 1
  %found = select i1 %is.second, ptr %second.indices, ptr null
  ret ptr %found
}
; an attribute of a tensor, null for None
define internal ptr @fact(ptr %table, ptr %tensor, ptr %indices, i64 %i) {
  %values = call ptr @side_by_side(ptr %tensor, ptr %indices)
  %together = icmp ne ptr %values, null
  br i1 %together, label %read, label %look
read:
  %index = call i64 @word(ptr %indices, i64 %i)
  %held = call ptr @pointer(ptr %values, i64 %index)
  br label %is
look:
  %names = call ptr @pointer(ptr %table, i64 6)
  %name = call ptr @pointer(ptr %names, i64 %i)
  %item = call ptr @in_dict(ptr %tensor, ptr %name)
  br label %is
is:
  %value = phi ptr [ %held, %read ], [ %item, %look ]
  %none = call ptr @pointer(ptr %table, i64 14)
  %is.none = icmp eq ptr %value, %none
  %found = select i1 %is.none, ptr null, ptr %value
  ret ptr %found
}
; whether a tensor has a node, or requires a gradient
define internal i1 @recorded(ptr %table, ptr %tensor, ptr %indices) {
  %node = call ptr @fact(ptr %table, ptr %tensor, ptr %indices, i64 3)
  %made = icmp ne ptr %node, null
  %asks = call ptr @fact(ptr %table, ptr %tensor, ptr %indices, i64 2)
  %true = call ptr @pointer(ptr %table, i64 15)
  %asked = icmp eq ptr %asks, %true
  %is = or i1 %made, %asked
  ret i1 %is
}
; by what its attributes are read: where they lie side by side, or copies of them at the same places
define internal ptr @row(ptr %table, ptr %tensor, ptr %indices, ptr %copies) {
  %values = call ptr @side_by_side(ptr %tensor, ptr %indices)
  %together = icmp ne ptr %values, null
  br i1 %together, label %own, label %name
own:
  ret ptr %values
name:
  %i = phi i64 [ 0, %0 ], [ %i.next, %name ]
  %value = call ptr @fact(ptr %table, ptr %tensor, ptr %indices, i64 %i)
  %index = call i64 @word(ptr %indices, i64 %i)
  %at = getelementptr ptr, ptr %copies, i64 %index
  store ptr %value, ptr %at
  %i.next = add i64 %i, 1
  %more = icmp slt i64 %i.next, 10
  br i1 %more, label %name, label %end
end:
  ret ptr %copies
}
; 1 or 0: whether a tensor requires a gradient; 2: not for native code to say
define internal i64 @requires(
    ptr %table, ptr %node, ptr %asks, ptr %base, ptr %seen, ptr %storage) {
  %made = icmp ne ptr %node, null
  %true = call ptr @pointer(ptr %table, i64 15)
  %asked = icmp eq ptr %asks, %true
  %own = or i1 %made, %asked
  %own.is = zext i1 %own to i64
  %alone = icmp eq ptr %base, null
  br i1 %alone, label %known, label %view
known:
  ret i64 %own.is
view:
  %class = call ptr @pointer(ptr %base, i64 1)
  %of.base = call ptr @indices(ptr %table, ptr %class)
  %strange = icmp eq ptr %of.base, null
  br i1 %strange, label %unknown, label %base.is
base.is:
  br i1 %made, label %has.node, label %base.ask
has.node:
  %has.storage = icmp ne ptr %storage, null
  br i1 %has.storage, label %writes, label %unknown
writes:
  %storage.class = call ptr @pointer(ptr %storage, i64 1)
  %storage.wanted = call ptr @pointer(ptr %table, i64 11)
  %storage.right = icmp eq ptr %storage.class, %storage.wanted
  br i1 %storage.right, label %counted, label %unknown
counted:
  %version.offset = call i64 @word(ptr %table, i64 13)
  %version.at = getelementptr i8, ptr %storage, i64 %version.offset
  %version = load ptr, ptr %version.at
  %followed = icmp eq ptr %version, %seen
  br i1 %followed, label %own.node, label %unknown
own.node:
  ret i64 1
base.ask:
  %further = call ptr @fact(ptr %table, ptr %base, ptr %of.base, i64 7)
  %deep = icmp ne ptr %further, null
  %its = call i1 @recorded(ptr %table, ptr %base, ptr %of.base)
  %some = or i1 %own, %its
  %hard = or i1 %some, %deep
  br i1 %hard, label %unknown, label %plain
plain:
  ret i64 0
unknown:
  ret i64 2
}
; whether a tensor has no hooks, neither its own nor its accumulator's
define internal i1 @hookless(ptr %table, ptr %hooks, ptr %post, ptr %reference) {
  %has.hooks = icmp ne ptr %hooks, null
  %has.post = icmp ne ptr %post, null
  %has = or i1 %has.hooks, %has.post
  br i1 %has, label %no, label %further
further:
  %never = icmp eq ptr %reference, null
  br i1 %never, label %yes, label %refers
refers:
  %at = getelementptr i8, ptr %reference, i64 16
  %node = load ptr, ptr %at
  %none = call ptr @pointer(ptr %table, i64 14)
  %gone = icmp eq ptr %node, %none
  br i1 %gone, label %yes, label %asks
asks:
  %names = call ptr @pointer(ptr %table, i64 6)
  %name.1 = call ptr @pointer(ptr %names, i64 10)
  %name.2 = call ptr @pointer(ptr %names, i64 11)
  call void @Py_IncRef(ptr %node)
  %first = call ptr @PyObject_GetAttr(ptr %node, ptr %name.1)
  %second = call ptr @PyObject_GetAttr(ptr %node, ptr %name.2)
  call void @Py_DecRef(ptr %first)
  call void @Py_DecRef(ptr %second)
  call void @Py_DecRef(ptr %node)
  %no.first = icmp eq ptr %first, %none
  %no.second = icmp eq ptr %second, %none
  %neither = and i1 %no.first, %no.second
  ret i1 %neither
yes:
  ret i1 true
no:
  ret i1 false
}
"""
