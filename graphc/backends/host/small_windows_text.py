"""Native code for windows of few numbers: see small_rows_text.py."""

from __future__ import annotations

from .small_rows_body import Body


class _Windows:
    """The loops over windows of planes, whose cells are so many numbers. Rows and width are a
    plane's. A record's own: rows and width of the result, then of a window, steps, distances in it,
    how many rows and columns of padding come first, and how many numbers a cell has."""

    def __init__(self, b: Body, x: str) -> None:
        self._b = b
        (
            self._down, self._right, self._tall, self._wide, self._step_down, self._step_right,
            self._far_down, self._far_right, self._above, self._before, self._cell,
        ) = [b.word(i) for i in range(11)]
        self._x = x

    def each(self) -> str:
        """Begin four loops, over the results; which it is."""
        b = self._b
        p = b.each("%parts")
        plane = b.times(b.times("%rows", "%width"), self._cell)
        self._image = b.at(self._x, b.times(p, plane))
        i = b.each(self._down)
        j = b.each(self._right)
        self._c = b.each(self._cell)
        self._top = b.let(f"sub i64 {b.times(i, self._step_down)}, {self._above}")
        self._left = b.let(f"sub i64 {b.times(j, self._step_right)}, {self._before}")
        window = b.plus(b.times(b.plus(b.times(p, self._down), i), self._right), j)
        return b.plus(b.times(window, self._cell), self._c)

    def row(self) -> str:
        """Begin a loop over rows of a window; which it is."""
        b = self._b
        k = b.each(self._tall)
        self._row = b.plus(self._top, b.times(k, self._far_down))
        return k

    def column(self) -> str:
        """Begin a loop over columns of a window; which it is."""
        b = self._b
        m = b.each(self._wide)
        self._column = b.plus(self._left, b.times(m, self._far_right))
        return m

    def cell(self) -> tuple[str, str]:
        """A number's place in its plane, and whether it is there, not in the padding."""
        b = self._b
        place = b.plus(
            b.times(b.plus(b.times(self._row, "%width"), self._column), self._cell), self._c
        )
        in_row = b.let(f"icmp ult i64 {self._row}, %rows")
        in_column = b.let(f"icmp ult i64 {self._column}, %width")
        return place, b.let(f"and i1 {in_row}, {in_column}")

    def number(self, place: str) -> str:
        """The address of the number at a place."""
        return self._b.at(self._image, place)


def max_pool(b: Body) -> Body:
    """Arrays: x, the largest, their places: of the first, or of the last NaN. Its own: see
    _Windows. Cell after cell of a window, of all windows of a row of the result: along the row
    where a cell is one number, or windows are next to each other, else along the cell."""
    x, out, places = b.given(0), b.given(1), b.given(2)
    down, right, tall, wide, step_down, step, far_down, far_right, above, before, size = [
        b.word(i) for i in range(11)
    ]

    def minus(a: str, other: str) -> str:
        return b.let(f"sub i64 {a}, {other}")

    def limited(value: str, most: str) -> str:
        """Not below 0, nor above this."""
        low = b.let(f"call i64 @llvm.smax.i64(i64 {value}, i64 0)")
        return b.let(f"call i64 @llvm.smin.i64(i64 {low}, i64 {most})")

    def up(value: str) -> str:
        """Of a distance, how many steps it takes."""
        return b.let(f"sdiv i64 {b.plus(value, minus(step, '1'))}, {step}")

    one = b.let(f"icmp eq i64 {size}, 1")
    close = b.let(f"icmp eq i64 {step}, 1")
    row_size = b.times(right, size)
    plane = b.times(b.times("%rows", "%width"), size)
    p = b.each("%parts")
    image = b.at(x, b.times(p, plane))
    i = b.each(down)
    to = b.times(b.plus(b.times(p, down), i), row_size)
    e = b.each(row_size)
    b.store("-1", b.at(places, b.plus(to, e), "i64"), "i64")
    b.end()
    k = b.each(tall)
    row = b.plus(minus(b.times(i, step_down), above), b.times(k, far_down))
    inside = b.let(f"icmp ult i64 {row}, %rows")
    m = b.each(b.let(f"select i1 {inside}, i64 {wide}, i64 0"))
    left = minus(b.times(m, far_right), before)  # where this cell of the first window is
    first = limited(up(minus("0", left)), right)  # windows whose cell is in the row
    behind = limited(up(minus("%width", left)), right)
    count = limited(minus(behind, first), right)
    source = b.times(
        b.plus(b.times(row, "%width"), b.plus(left, b.times(first, step))), size
    )
    target = b.plus(to, b.times(first, size))
    # stretches, numbers in each, and how far apart these are
    together = b.let(f"or i1 {one}, {close}")
    stretches = b.let(f"select i1 {together}, i64 1, i64 {count}")
    length = b.let(f"select i1 {together}, i64 {b.times(count, size)}, i64 {size}")
    by = b.let(f"select i1 {one}, i64 {step}, i64 1")
    j = b.each(stretches)
    begin = b.plus(source, b.times(b.times(j, step), size))
    end = b.plus(target, b.times(j, size))

    def along(by: str, count: str) -> None:
        n = b.each(count)
        here = b.plus(begin, b.times(n, by) if by else n)
        best = b.at(out, b.plus(end, n))
        place = b.at(places, b.plus(end, n), "i64")
        cell, so_far, was = b.load(b.at(image, here)), b.load(best), b.load(place, "i64")
        more = b.let(f"fcmp ogt {b.kind} {cell}, {so_far}")
        nan = b.let(f"fcmp uno {b.kind} {cell}, {cell}")
        none = b.let(f"icmp slt i64 {was}, 0")
        larger = b.let(f"or i1 {b.let(f'or i1 {more}, {nan}')}, {none}")
        b.store(b.let(f"select i1 {larger}, {b.kind} {cell}, {b.kind} {so_far}"), best)
        b.store(b.let(f"select i1 {larger}, i64 {here}, i64 {was}"), place, "i64")
        b.end()

    side_by_side = b.let(f"icmp eq i64 {by}, 1")
    along("", b.let(f"select i1 {side_by_side}, i64 {length}, i64 0"))
    along(by, b.let(f"select i1 {side_by_side}, i64 0, i64 {length}"))
    for _ in range(5):
        b.end()
    return b.gives(2)


def window_sum(b: Body) -> Body:
    """Arrays: x, the sums: of columns first, then of these. Its own: see _Windows."""
    x, out = b.given(0), b.given(1)
    windows, nothing, column, total = _Windows(b, x), b.number(), b.number(), b.number()
    b.store("0.0", nothing)
    to = windows.each()

    def add(to: str, value: str, which: str) -> None:
        """Added to a number, or the first of it."""
        first = b.let(f"icmp eq i64 {which}, 0")
        more = b.let(f"fadd {b.kind} {b.load(to)}, {value}")
        b.store(b.let(f"select i1 {first}, {b.kind} {value}, {b.kind} {more}"), to)

    b.store("0.0", total)
    m = windows.column()
    b.store("0.0", column)
    k = windows.row()
    place, there = windows.cell()
    source = b.let(f"select i1 {there}, ptr {windows.number(place)}, ptr {nothing}")
    add(column, b.load(source), k)
    b.end()
    add(total, b.load(column), m)
    b.end()
    b.store(b.load(total), b.at(out, to))
    for _ in range(4):
        b.end()
    return b.gives(1)


