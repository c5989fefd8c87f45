"""What native code for rows of few numbers is written in: see small_rows_text.py."""

from __future__ import annotations

from .layouts import DATA, FLAGS

ROOMS = 3
LOOPS = (
    "subtract", "exp", "divide", "add", "maximum", "log", "multiply", "sqrt", "negative", "minimum",
)
NONE, TABLE, PARTS, ROWS, WIDTH, OWN = range(6)  # words of a record; OWN is the first of its own
_AT = {name: 2 * i for i, name in enumerate(LOOPS)}
_FIT = 0x101  # flags: row-major, aligned

# the memory of an array among the arguments, or null
ARRAYS = f"""
declare void @Py_IncRef(ptr)
declare ptr @PyLong_AsVoidPtr(ptr)
define internal ptr @numbers(ptr %args, i64 %i) noinline {{
  %in = getelementptr ptr, ptr %args, i64 %i
  %array = load ptr, ptr %in
  %flags.at = getelementptr i8, ptr %array, i64 {FLAGS}
  %flags = load i32, ptr %flags.at
  %some = and i32 %flags, {_FIT}
  %fits = icmp eq i32 %some, {_FIT}
  %data.at = getelementptr i8, ptr %array, i64 {DATA}
  %data = load ptr, ptr %data.at
  %found = select i1 %fits, ptr %data, ptr null
  ret ptr %found
}}
"""
# loops over one operand and over two
CALLS = """
declare i64 @llvm.smax.i64(i64, i64)
declare i64 @llvm.smin.i64(i64, i64)
define internal void @one(
    ptr %table, i64 %which, ptr %a, i64 %by.a, ptr %out, i64 %by, i64 %count) noinline {
  %operands = alloca [2 x ptr]
  %strides = alloca [2 x i64]
  %counts = alloca i64
  store ptr %a, ptr %operands
  %second = getelementptr ptr, ptr %operands, i64 1
  store ptr %out, ptr %second
  store i64 %by.a, ptr %strides
  %stride = getelementptr i64, ptr %strides, i64 1
  store i64 %by, ptr %stride
  store i64 %count, ptr %counts
  %loop.at = getelementptr ptr, ptr %table, i64 %which
  %loop = load ptr, ptr %loop.at
  %data.at = getelementptr ptr, ptr %loop.at, i64 1
  %data = load ptr, ptr %data.at
  call void %loop(ptr %operands, ptr %counts, ptr %strides, ptr %data)
  ret void
}
define internal void @two(
    ptr %table, i64 %which, ptr %a, i64 %by.a, ptr %b, i64 %by.b, ptr %out, i64 %by, i64 %count
) noinline {
  %operands = alloca [3 x ptr]
  %strides = alloca [3 x i64]
  %counts = alloca i64
  store ptr %a, ptr %operands
  %second = getelementptr ptr, ptr %operands, i64 1
  store ptr %b, ptr %second
  %third = getelementptr ptr, ptr %operands, i64 2
  store ptr %out, ptr %third
  store i64 %by.a, ptr %strides
  %stride.2 = getelementptr i64, ptr %strides, i64 1
  store i64 %by.b, ptr %stride.2
  %stride.3 = getelementptr i64, ptr %strides, i64 2
  store i64 %by, ptr %stride.3
  store i64 %count, ptr %counts
  %loop.at = getelementptr ptr, ptr %table, i64 %which
  %loop = load ptr, ptr %loop.at
  %data.at = getelementptr ptr, ptr %loop.at, i64 1
  %data = load ptr, ptr %data.at
  call void %loop(ptr %operands, ptr %counts, ptr %strides, ptr %data)
  ret void
}
"""


class Body:
    """Instructions of one function, on numbers of one kind."""

    def __init__(self, kind: str, size: int, most: int) -> None:
        self.kind, self.size, self.most = kind, size, most
        self.memory: list[str] = []
        self._rooms = 0
        self.lines: list[str] = []
        self._count = 0
        self._loops: list[str] = []
        words = {"table": TABLE, "parts": PARTS, "rows": ROWS, "width": WIDTH}
        for name, at in words.items():
            self.lines.append(f"%{name}.at = getelementptr i64, ptr %record, i64 {at}")
            kind = "ptr" if name == "table" else "i64"
            self.lines.append(f"%{name} = load {kind}, ptr %{name}.at")
        self.all = self.times(self.times("%parts", "%rows"), "%width")

    def let(self, value: str) -> str:
        """A new name for a value."""
        self._count += 1
        self.lines.append(f"%v{self._count} = {value}")
        return f"%v{self._count}"

    def times(self, a: str, b: str) -> str:
        return self.let(f"mul i64 {a}, {b}")

    def plus(self, a: str, b: str) -> str:
        return self.let(f"add i64 {a}, {b}")

    def own(self, at: int) -> str:
        """The address of a word of the record's own."""
        return self.let(f"getelementptr i64, ptr %record, i64 {OWN + at}")

    def word(self, at: int) -> str:
        """Such a word."""
        return self.let(f"load i64, ptr {self.own(at)}")

    def number(self, kind: str = "") -> str:
        """Memory for one number."""
        self._count += 1
        self.memory.append(f"%m{self._count} = alloca {kind or self.kind}")
        return f"%m{self._count}"

    def room(self) -> str:
        """Memory for as many numbers as there may be."""
        assert self._rooms < ROOMS
        place = self.let(f"getelementptr i64, ptr %table, i64 {2 * len(LOOPS)}")
        room = self.load(place, "ptr")
        self._rooms += 1
        return self.let(f"getelementptr i64, ptr {room}, i64 {(self._rooms - 1) * self.most}")

    def call(self, function: str) -> None:
        self.lines.append(f"call void {function}")

    def given(self, number: int | str) -> str:
        """An array's memory."""
        found = self.let(f"call ptr @numbers(ptr %args, i64 {number})")
        self.unless(self.let(f"icmp eq ptr {found}, null"))
        return found

    def unless(self, wrong: str) -> None:
        """Give None if so."""
        self._count += 1
        self.lines.append(f"br i1 {wrong}, label %no, label %on{self._count}")
        self.lines.append(f"on{self._count}:")

    def at(self, memory: str, number: str, kind: str = "") -> str:
        """The address of a number."""
        return self.let(f"getelementptr {kind or self.kind}, ptr {memory}, i64 {number}")

    def load(self, memory: str, kind: str = "") -> str:
        return self.let(f"load {kind or self.kind}, ptr {memory}")

    def store(self, value: str, memory: str, kind: str = "") -> None:
        self.lines.append(f"store {kind or self.kind} {value}, ptr {memory}")

    def one(self, name: str, a: str, out: str, count: str) -> None:
        """A loop over numbers side by side."""
        self.lines.append(
            f"call void @one(ptr %table, i64 {_AT[name]}, ptr {a}, i64 {self.size}, ptr {out}, "
            f"i64 {self.size}, i64 {count})"
        )

    def two(self, name: str, a: str, b: str, out: str, count: str, strides: str) -> None:
        """The same of two operands; `strides`: "r" for a row, "n" for one number, of each."""
        by = [self.size if s == "r" else 0 for s in strides]
        self.lines.append(
            f"call void @two(ptr %table, i64 {_AT[name]}, ptr {a}, i64 {by[0]}, ptr {b}, "
            f"i64 {by[1]}, ptr {out}, i64 {by[2]}, i64 {count})"
        )

    def each(self, count: str) -> str:
        """Begin a loop; its index."""
        self._count += 1
        i = f"%i{self._count}"
        self.memory.append(f"{i}.at = alloca i64")
        self.lines += [
            f"store i64 0, ptr {i}.at", f"br label {i}.test", f"{i[1:]}.test:",
            f"{i} = load i64, ptr {i}.at", f"{i}.more = icmp slt i64 {i}, {count}",
            f"br i1 {i}.more, label {i}.body, label {i}.end", f"{i[1:]}.body:",
        ]
        self._loops.append(i)
        return i

    def end(self) -> None:
        """End the innermost loop."""
        i = self._loops.pop()
        self.lines += [
            f"{i}.next = add i64 {i}, 1", f"store i64 {i}.next, ptr {i}.at",
            f"br label {i}.test", f"{i[1:]}.end:",
        ]

    def gives(self, number: int | str) -> Body:
        """The end: an array."""
        found = self.let(f"getelementptr ptr, ptr %args, i64 {number}")
        found = self.let(f"load ptr, ptr {found}")
        self.lines += [f"call void @Py_IncRef(ptr {found})", f"ret ptr {found}"]
        return self

    # what several have in common

    def peak(self, row: str, to: str, name: str = "maximum") -> None:
        """The largest of a row, as np.maximum.reduce finds it: from the first number on."""
        self.store(self.load(row), to)
        rest = self.let("sub i64 %width, 1")
        self.two(name, to, self.at(row, "1"), to, rest, "nrn")

    def total(self, row: str, to: str, count: str = "%width") -> None:
        """A row added to a number, as np.add.reduce does."""
        self.two("add", to, row, to, count, "nrn")


def function(name: str, body: Body) -> str:
    """One for Python."""
    lines = "\n  ".join([
        "%record = call ptr @PyLong_AsVoidPtr(ptr %self)", *body.memory, *body.lines,
    ])
    return f"""
define ptr @graphc_rows_{name}(ptr %self, ptr %args, i64 %n) {{
  {lines}
no:
  %none = load ptr, ptr %record
  call void @Py_IncRef(ptr %none)
  ret ptr %none
}}"""
