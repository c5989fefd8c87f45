"""Native code that runs a list of loops over few numbers: NumPy's inner loops (inner_loops.py),
and those of this file, which are called as they are.

`graphc_steps` is a function for Python, `(record, arrays)`: it gives the last array, or None where
one is not row-major. A record: None; the address of a list; how many numbers an array has. They are
taken in stretches of CHUNK, so that what is between the steps stays in the cache. A list: how many
arrays there are, places that addresses in them are written to, and entries; then these. A place:
the word, which array, how many bytes its numbers have. An entry: code, data, four operands, the
strides of each. Where the code is 0, `data` entries are left out if all numbers of a mask, the
first operand, are the first stride, 0 or 1.
"""

from __future__ import annotations

from .listed_text import each, function, put, word
from .small_rows_body import ARRAYS

CHUNK = 256
HEAD, ENTRY = 3, 10  # words
OWN = {  # (the operands' types, the result)
    "select": (("i8", "i64", "i64"), "i64"), "select_small": (("i8", "i32", "i32"), "i32"),
    "select_bool": (("i8", "i8", "i8"), "i8"),
    "widen": (("float",), "double"), "narrow": (("double",), "float"),
    "of_bool_small": (("i8",), "float"), "of_bool": (("i8",), "double"),
    "of_integer_small": (("i64",), "float"), "of_integer": (("i64",), "double"),
    "to_integer_small": (("float",), "i64"), "to_integer": (("double",), "i64"),
    "integer_of_bool": (("i8",), "i64"),
}


def _least_of_others(kind: str) -> str:
    """The integer of a float; the least, of what none holds (numpy/elementwise.py)."""
    return f"""%low = fcmp oge {kind} %x0, 0xC3E0000000000000
  %high = fcmp olt {kind} %x0, 0x43E0000000000000
  %held = and i1 %low, %high
  %whole = fptosi {kind} %x0 to i64
  %y = select i1 %held, i64 %whole, i64 -9223372036854775808"""


_MAKES = {
    "select": "%picked = icmp ne i8 %x0, 0\n  %y = select i1 %picked, i64 %x1, i64 %x2",
    "select_small": "%picked = icmp ne i8 %x0, 0\n  %y = select i1 %picked, i32 %x1, i32 %x2",
    "select_bool": "%picked = icmp ne i8 %x0, 0\n  %y = select i1 %picked, i8 %x1, i8 %x2",
    "widen": "%y = fpext float %x0 to double",
    "narrow": "%y = fptrunc double %x0 to float",
    "of_bool_small": "%y = uitofp i8 %x0 to float", "of_bool": "%y = uitofp i8 %x0 to double",
    "of_integer_small": "%y = sitofp i64 %x0 to float",
    "of_integer": "%y = sitofp i64 %x0 to double",
    "integer_of_bool": "%y = zext i8 %x0 to i64",
    **{name: _least_of_others(kind) for name, kind in (
        ("to_integer_small", "float"), ("to_integer", "double"),
    )},
}


def text() -> str:
    """The module."""
    return "\n".join([ARRAYS, *loops(), _STEPS])


def loops() -> list[str]:
    """This file's own."""
    return [_loop(name) for name in OWN]


def _loop(name: str) -> str:
    """One that is called as NumPy's are."""
    given, result = OWN[name]
    setup, loads = [], []
    for at, kind in enumerate([*given, result]):
        setup += [word(f"p{at}", "%operands", at, "ptr"), word(f"s{at}", "%strides", at)]
        loads.append(f"""  %o{at} = mul i64 %i, %s{at}
  %q{at} = getelementptr i8, ptr %p{at}, i64 %o{at}""")
        if at < len(given):
            loads.append(f"  %x{at} = load {kind}, ptr %q{at}")
    store = f"  {_MAKES[name]}\n  store {result} %y, ptr %q{len(given)}"
    return each(name, "\n".join(setup), "\n".join([*loads, store]))


_STEPS = function("steps", HEAD, word("all", "%record", 2), f"""  br label %stretch
stretch:
  %done = phi i64 [ 0, %fit ], [ %done.next, %step ]
  %rest = sub i64 %all, %done
  %some = icmp sgt i64 %rest, 0
  br i1 %some, label %stretches, label %yes
stretches:
  %short = icmp slt i64 %rest, {CHUNK}
  %count = select i1 %short, i64 %rest, i64 {CHUNK}
  %done.next = add i64 %done, %count
  store i64 %count, ptr %counts
  br label %put
{put("stretches", "mul i64 %done, %third")}
step:
  %s = phi i64 [ 0, %put ], [ %s.next, %ran ], [ %s.behind, %masked ]
  %s.more = icmp slt i64 %s, %entries
  br i1 %s.more, label %steps, label %stretch
steps:
  %s.words = mul i64 %s, {ENTRY}
  %entry = getelementptr i64, ptr %first.entry, i64 %s.words
  %code = load ptr, ptr %entry
{word("data", "%entry", 1, "ptr")}
  %given.at = getelementptr i64, ptr %entry, i64 2
  %strides = getelementptr i64, ptr %entry, i64 6
  %skips = icmp eq ptr %code, null
  br i1 %skips, label %skip, label %run
run:
  %four = load [4 x ptr], ptr %given.at
  store [4 x ptr] %four, ptr %operands
  call void %code(ptr %operands, ptr %counts, ptr %strides, ptr %data)
  br label %ran
ran:
  %s.next = add i64 %s, 1
  br label %step
skip:
  %mask = load ptr, ptr %given.at
  %unwanted = load i64, ptr %strides
  br label %ask
ask:
  %m = phi i64 [ 0, %skip ], [ %m.next, %asks ]
  %found = phi i64 [ 0, %skip ], [ %found.next, %asks ]
  %m.more = icmp slt i64 %m, %count
  br i1 %m.more, label %asks, label %masked
asks:
  %bit.at = getelementptr i8, ptr %mask, i64 %m
  %bit = load i8, ptr %bit.at
  %wide = zext i8 %bit to i64
  %other = xor i64 %wide, %unwanted
  %found.next = add i64 %found, %other
  %m.next = add i64 %m, 1
  br label %ask
masked:
  %none = icmp eq i64 %found, 0
  %data.number = ptrtoint ptr %data to i64
  %left = select i1 %none, i64 %data.number, i64 0
  %past = add i64 %s, 1
  %s.behind = add i64 %past, %left
  br label %step""")
