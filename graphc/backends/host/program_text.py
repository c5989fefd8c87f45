"""Native code that runs a program on few numbers: loops of NumPy's (inner_loops.py) and of
steps_text.py, each over numbers of its own, and moves of numbers between known places.

`graphc_program` is a function for Python, `(record, arrays)`: it gives the last array, or None
where one is not row-major, or a position is out of range. A record: None; the address of a program.
That: how many arrays there are, places that addresses in them are written to, and entries; a word
that a lookup sets which is out of range; then these. A place: the word, which array, how many bytes
behind its first. An entry: code, data, how many numbers, four operands, the strides of each.

Moves, lookups and products are called as loops are; what they move is in their data. Of each
number, a move has the distances, in bytes, from its operand and from the result; a lookup, behind
the word to set, the size and the step of a dim, those from the operand, its position and the
result. A product has code and data of NumPy's loop, the sizes and the steps that it is called with.
"""

from __future__ import annotations

from .listed_text import each, function, put, word
from .small_rows_body import ARRAYS
from .steps_text import loops

HEAD, ENTRY = 4, 11  # words
SIZES = (1, 2, 4, 8)  # bytes of the numbers that are moved


def text() -> str:
    """The module."""
    return "\n".join([
        ARRAYS, *loops(), *[_move(size) for size in SIZES], *[_lookup(size) for size in SIZES],
        _PRODUCT, _PROGRAM,
    ])


_BEGIN = f"""  %from = load ptr, ptr %operands
{word("second", "%operands", 1, "ptr")}"""


def _move(size: int) -> str:
    kind = f"i{8 * size}"
    return each(f"move{size}", _BEGIN, f"""  %pair.words = mul i64 %i, 2
  %pair = getelementptr i64, ptr %data, i64 %pair.words
{word("off", "%pair", 0)}
{word("on", "%pair", 1)}
  %source = getelementptr i8, ptr %from, i64 %off
  %x = load {kind}, ptr %source
  %target = getelementptr i8, ptr %second, i64 %on
  store {kind} %x, ptr %target""")


def _lookup(size: int) -> str:
    kind = f"i{8 * size}"
    begin = f"""{_BEGIN}
{word("third", "%operands", 2, "ptr")}
  %wrong = load ptr, ptr %data
{word("size", "%data", 1)}
{word("step", "%data", 2)}
  %table = getelementptr i64, ptr %data, i64 3"""
    return each(f"lookup{size}", begin, f"""  %triple.words = mul i64 %i, 3
  %triple = getelementptr i64, ptr %table, i64 %triple.words
{word("off", "%triple", 0)}
{word("by", "%triple", 1)}
{word("on", "%triple", 2)}
  %place.at = getelementptr i8, ptr %second, i64 %by
  %place = load i64, ptr %place.at
  %fits = icmp ult i64 %place, %size
  %used = select i1 %fits, i64 %place, i64 0
  %miss = xor i1 %fits, true
  %miss.word = zext i1 %miss to i64
  %before = load i64, ptr %wrong
  %now = or i64 %before, %miss.word
  store i64 %now, ptr %wrong
  %along = mul i64 %used, %step
  %away = add i64 %off, %along
  %source = getelementptr i8, ptr %from, i64 %away
  %x = load {kind}, ptr %source
  %target = getelementptr i8, ptr %third, i64 %on
  store {kind} %x, ptr %target""")


_PRODUCT = """
define void @graphc_product(ptr %operands, ptr %counts, ptr %strides, ptr %data) {
  %code = load ptr, ptr %data
  %own.at = getelementptr i64, ptr %data, i64 1
  %own = load ptr, ptr %own.at
  %dims = getelementptr i64, ptr %data, i64 2
  %steps = getelementptr i64, ptr %data, i64 6
  call void %code(ptr %operands, ptr %dims, ptr %steps, ptr %own)
  ret void
}"""
_PROGRAM = function("program", HEAD, f"""  %strides = alloca [4 x i64]
{word("wrong", "%list", 3)}
  store i64 0, ptr %wrong.at""", f"""  br label %put
{put("fit", "add i64 %third, 0")}
step:
  %s = phi i64 [ 0, %put ], [ %s.next, %run ]
  %s.more = icmp slt i64 %s, %entries
  br i1 %s.more, label %run, label %ran
run:
  %s.words = mul i64 %s, {ENTRY}
  %entry = getelementptr i64, ptr %first.entry, i64 %s.words
  %code = load ptr, ptr %entry
{word("data", "%entry", 1, "ptr")}
{word("count", "%entry", 2)}
  store i64 %count, ptr %counts
  %given.at = getelementptr i64, ptr %entry, i64 3
  %four = load [4 x ptr], ptr %given.at
  store [4 x ptr] %four, ptr %operands
  %strides.at = getelementptr i64, ptr %entry, i64 7
  %steps = load [4 x i64], ptr %strides.at
  store [4 x i64] %steps, ptr %strides
  call void %code(ptr %operands, ptr %counts, ptr %strides, ptr %data)
  %s.next = add i64 %s, 1
  br label %step
ran:
  %set = load i64, ptr %wrong.at
  %right = icmp eq i64 %set, 0
  br i1 %right, label %yes, label %no""")
