"""Native code for rows of few numbers, in the steps of backends/numpy/bound.py, each of which is
the inner loop of NumPy's own ufunc (inner_loops.py): the bits are NumPy's, without the cost of its
calls.

Each function is one for Python, `(record, arrays)`: it gives the last array, or None where one is
not row-major, or its numbers are not for this code. A record: None; the table of loops, (code,
data) of each, and behind them where there is room for ROOMS times all numbers (one such room is
enough: the GIL is kept); how many parts, rows in a part, and numbers in a row; then its own.
"""

from __future__ import annotations

from collections.abc import Callable

from .layouts import DATA, FLAGS

ROOMS = 3
LOOPS = (
    "subtract", "exp", "divide", "add", "maximum", "log", "multiply", "sqrt", "negative", "minimum",
)
NONE, TABLE, PARTS, ROWS, WIDTH, OWN = range(6)  # words of a record; OWN is the first of its own
KINDS = {"f": ("float", 4), "d": ("double", 8)}
NAMES = (
    "softmax", "log_softmax", "sigmoid", "cross_entropy", "norm", "max_pool", "sum", "amax", "amin",
)
_AT = {name: 2 * i for i, name in enumerate(LOOPS)}
_FIT = 0x101  # flags: row-major, aligned


def text(most: int) -> str:
    """The module, for so many numbers at most."""
    parts = [_COMMON]
    for char, (kind, size) in KINDS.items():
        for name, body in _BODIES.items():
            parts.append(_function(f"{name}_{char}", body(_Body(kind, size, most))))
    return "\n".join(parts)


_COMMON = f"""
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
define internal void @one(
    ptr %table, i64 %which, ptr %a, i64 %by.a, ptr %out, i64 %by, i64 %count) noinline {{
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
}}
define internal void @two(
    ptr %table, i64 %which, ptr %a, i64 %by.a, ptr %b, i64 %by.b, ptr %out, i64 %by, i64 %count
) noinline {{
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
}}
"""


class _Body:
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

    def number(self) -> str:
        """Memory for one number."""
        self._count += 1
        self.memory.append(f"%m{self._count} = alloca {self.kind}")
        return f"%m{self._count}"

    def room(self) -> str:
        """Memory for as many numbers as there may be."""
        assert self._rooms < ROOMS
        place = self.let(f"getelementptr i64, ptr %table, i64 {2 * len(LOOPS)}")
        room = self.load(place, "ptr")
        self._rooms += 1
        return self.let(f"getelementptr i64, ptr {room}, i64 {(self._rooms - 1) * self.most}")

    def given(self, number: int) -> str:
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

    def gives(self, number: int) -> _Body:
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


def _function(name: str, body: _Body) -> str:
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


def _softmax(b: _Body) -> _Body:
    x, out, number = b.given(0), b.given(1), b.number()
    r = b.each("%rows")
    first = b.times(r, "%width")
    row, to = b.at(x, first), b.at(out, first)
    b.peak(row, number)
    b.two("subtract", row, number, to, "%width", "rnr")
    b.end()
    b.one("exp", out, out, b.all)
    r = b.each("%rows")
    row = b.at(out, b.times(r, "%width"))
    b.store("0.0", number)
    b.total(row, number)
    b.two("divide", row, number, row, "%width", "rnr")
    b.end()
    return b.gives(1)


def _log_softmax(b: _Body) -> _Body:
    x, out, number, e, sums = b.given(0), b.given(1), b.number(), b.room(), b.room()
    r = b.each("%rows")
    first = b.times(r, "%width")
    row, to = b.at(x, first), b.at(out, first)
    b.peak(row, number)
    b.two("subtract", row, number, to, "%width", "rnr")
    b.end()
    b.one("exp", out, e, b.all)
    r = b.each("%rows")
    to = b.at(sums, r)
    b.store("0.0", to)
    b.total(b.at(e, b.times(r, "%width")), to)
    b.end()
    b.one("log", sums, sums, "%rows")
    r = b.each("%rows")
    row = b.at(out, b.times(r, "%width"))
    b.two("subtract", row, b.at(sums, r), row, "%width", "rnr")
    b.end()
    return b.gives(1)


def _sigmoid(b: _Body) -> _Body:
    """Its own number: 1."""
    x, out, one = b.given(0), b.given(1), b.own(0)
    b.one("negative", x, out, b.all)
    b.one("exp", out, out, b.all)
    b.two("add", one, out, out, b.all, "nrr")
    b.two("divide", one, out, out, b.all, "nrr")
    return b.gives(1)


def _cross_entropy(b: _Body) -> _Body:
    """Its own: 0 for each row's loss, 1 for their sum, which is divided by a number."""
    x, target, out = b.given(0), b.given(1), b.given(2)
    e, peaks, losses = b.room(), b.room(), b.room()
    r = b.each("%rows")
    b.unless(b.let(f"icmp uge i64 {b.load(b.at(target, r, 'i64'), 'i64')}, %width"))
    b.end()
    r = b.each("%rows")
    first = b.times(r, "%width")
    row, peak = b.at(x, first), b.at(peaks, r)
    b.peak(row, peak)
    b.two("subtract", row, peak, b.at(e, first), "%width", "rnr")
    b.end()
    b.one("exp", e, e, b.all)
    r = b.each("%rows")
    to = b.at(losses, r)
    b.store("0.0", to)
    b.total(b.at(e, b.times(r, "%width")), to)
    b.end()
    b.one("log", losses, losses, "%rows")
    r = b.each("%rows")
    place = b.plus(b.times(r, "%width"), b.load(b.at(target, r, "i64"), "i64"))
    to = b.at(losses, r)
    picked = b.let(f"fsub {b.kind} {b.load(b.at(x, place))}, {b.load(b.at(peaks, r))}")
    b.store(b.let(f"fsub {b.kind} {b.load(to)}, {picked}"), to)
    b.end()
    each = b.let(f"icmp eq i64 {b.word(0)}, 0")
    r = b.each(b.let(f"select i1 {each}, i64 %rows, i64 0"))
    b.store(b.load(b.at(losses, r)), b.at(out, r))
    b.end()
    b.each(b.let(f"select i1 {each}, i64 0, i64 1"))
    b.store("0.0", out)
    b.total(losses, out, "%rows")
    b.store(b.let(f"fdiv {b.kind} {b.load(out)}, {b.load(b.own(1))}"), out)
    b.end()
    return b.gives(2)


def _norm(b: _Body) -> _Body:
    """Arrays: x, weight, bias, mean, variance, the result. Its own: how many numbers a mean is of,
    eps, 1; whether there is a weight, a bias, and whether these are along a row."""
    x, weight, bias, mean, variance, out = [b.given(i) for i in range(6)]
    squares, scale = b.room(), b.room()

    def moments(source: str, to: str) -> None:
        """Means of each row's numbers in all parts, added in the order of memory."""
        r = b.each("%rows")
        b.store("0.0", b.at(to, r))
        b.end()
        p = b.each("%parts")
        r = b.each("%rows")
        b.total(b.at(source, b.times(b.plus(b.times(p, "%rows"), r), "%width")), b.at(to, r))
        b.end()
        b.end()
        b.two("divide", to, b.own(0), to, "%rows", "rnr")

    def rows() -> tuple[str, str]:
        """Begin a loop over all rows: which, and its first number."""
        p = b.each("%parts")
        r = b.each("%rows")
        return r, b.times(b.plus(b.times(p, "%rows"), r), "%width")

    moments(x, mean)
    r, first = rows()
    b.two("subtract", b.at(x, first), b.at(mean, r), b.at(out, first), "%width", "rnr")
    b.end()
    b.end()
    b.two("multiply", out, out, squares, b.all, "rrr")
    moments(squares, variance)
    b.two("add", variance, b.own(1), scale, "%rows", "rnr")
    b.one("sqrt", scale, scale, "%rows")
    b.two("divide", b.own(2), scale, scale, "%rows", "nrr")
    r, first = rows()
    row = b.at(out, first)
    b.two("multiply", row, b.at(scale, r), row, "%width", "rnr")
    along = b.let(f"icmp ne i64 {b.word(5)}, 0")
    for which, (name, parameter) in enumerate((("multiply", weight), ("add", bias))):
        there = b.word(3 + which)
        b.each(b.let(f"select i1 {along}, i64 {there}, i64 0"))
        b.two(name, row, parameter, row, "%width", "rrr")
        b.end()
        b.each(b.let(f"select i1 {along}, i64 0, i64 {there}"))
        b.two(name, row, b.at(parameter, r), row, "%width", "rnr")
        b.end()
    b.end()
    b.end()
    return b.gives(5)


def _max_pool(b: _Body) -> _Body:
    """Arrays: x, the largest, their places. Rows and width are a plane's. Its own: rows and width
    of the result, then of a window, steps, and distances in it. The last NaN stays."""
    x, out, places = b.given(0), b.given(1), b.given(2)
    down, right, tall, wide, step_down, step_right, far_down, far_right = [
        b.word(i) for i in range(8)
    ]
    plane = b.times("%rows", "%width")
    p = b.each("%parts")
    image = b.at(x, b.times(p, plane))
    i = b.each(down)
    j = b.each(right)
    corner = b.plus(
        b.times(b.times(i, step_down), "%width"), b.times(j, step_right)
    )
    to = b.plus(b.times(b.plus(b.times(p, down), i), right), j)
    best, place = b.at(out, to), b.at(places, to, "i64")
    b.store(b.load(b.at(image, corner)), best)
    b.store(corner, place, "i64")
    k = b.each(tall)
    m = b.each(wide)
    here = b.plus(corner, b.plus(
        b.times(b.times(k, far_down), "%width"), b.times(m, far_right)
    ))
    cell, so_far = b.load(b.at(image, here)), b.load(best)
    more = b.let(f"fcmp ogt {b.kind} {cell}, {so_far}")
    nan = b.let(f"fcmp uno {b.kind} {cell}, {cell}")
    larger = b.let(f"or i1 {more}, {nan}")
    b.store(b.let(f"select i1 {larger}, {b.kind} {cell}, {b.kind} {so_far}"), best)
    was = b.load(place, "i64")
    b.store(b.let(f"select i1 {larger}, i64 {here}, i64 {was}"), place, "i64")
    for _ in range(5):
        b.end()
    return b.gives(2)


def _sum(b: _Body) -> _Body:
    x, out = b.given(0), b.given(1)
    r = b.each("%rows")
    to = b.at(out, r)
    b.store("0.0", to)
    b.total(b.at(x, b.times(r, "%width")), to)
    b.end()
    return b.gives(1)


def _extremum(name: str) -> Callable[[_Body], _Body]:
    def make(b: _Body) -> _Body:
        x, out = b.given(0), b.given(1)
        r = b.each("%rows")
        b.peak(b.at(x, b.times(r, "%width")), b.at(out, r), name)
        b.end()
        return b.gives(1)

    return make


_BODIES: dict[str, Callable[[_Body], _Body]] = {
    "sum": _sum, "amax": _extremum("maximum"), "amin": _extremum("minimum"),
    "softmax": _softmax, "log_softmax": _log_softmax, "sigmoid": _sigmoid,
    "cross_entropy": _cross_entropy, "norm": _norm, "max_pool": _max_pool,
}
