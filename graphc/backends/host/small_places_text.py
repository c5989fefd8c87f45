"""Native code for few numbers at places that are given, found or side by side: see
small_rows_text.py. Nothing is computed but sums in memory, in the order of the places."""

from __future__ import annotations

from .small_rows_body import Body

DECLARED = "declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)"


def _each_place(b: Body, places: str) -> tuple[str, str, str]:
    """Begin loops over the places of all parts, none of which is out of range: the number of each,
    where it is of memory that has so many rows as the record's own 0, and the innermost index."""
    size = b.word(0)
    i = b.each(b.all)
    b.unless(b.let(f"icmp uge i64 {b.load(b.at(places, i, 'i64'), 'i64')}, {size}"))
    b.end()
    p = b.each("%parts")
    r = b.each("%rows")
    j = b.each("%width")
    number = b.plus(b.times(b.plus(b.times(p, "%rows"), r), "%width"), j)
    place = b.load(b.at(places, number, "i64"), "i64")
    where = b.plus(b.times(b.plus(b.times(p, size), place), "%width"), j)
    return number, where, j


def gather(b: Body) -> Body:
    """Arrays: numbers, the row that each comes from, the result. Its own: how many rows there
    are."""
    x, places, out = b.given(0), b.given(1), b.given(2)
    number, where, _ = _each_place(b, places)
    b.store(b.load(b.at(x, where)), b.at(out, number))
    for _ in range(3):
        b.end()
    return b.gives(2)


def scatter(b: Body) -> Body:
    """Arrays: the row that each number goes to, numbers, what they are written to. Its own: how
    many rows there are; 1, or 0 where one number goes everywhere; whether they are added."""
    places, source, out = b.given(0), b.given(1), b.given(2)
    step, adds = b.word(1), b.let(f"icmp ne i64 {b.word(2)}, 0")
    number, where, _ = _each_place(b, places)
    new, to = b.load(b.at(source, b.times(number, step))), b.at(out, where)
    total = b.let(f"fadd {b.kind} {b.load(to)}, {new}")
    b.store(b.let(f"select i1 {adds}, {b.kind} {total}, {b.kind} {new}"), to)
    for _ in range(3):
        b.end()
    return b.gives(2)


def topk(b: Body) -> Body:
    """Arrays: rows, the first of each in order, where these are: of equals the first. Its own: how
    many they are, and whether they are the largest. None where there is a NaN."""
    x, out, places = b.given(0), b.given(1), b.given(2)
    k, largest = b.word(0), b.let(f"icmp ne i64 {b.word(1)}, 0")
    held, at, moved = b.number(), b.number("i64"), b.number("i1")

    def better(mine: str, theirs: str) -> str:
        more, less = (b.let(f"fcmp {c} {b.kind} {mine}, {theirs}") for c in ("ogt", "olt"))
        return b.let(f"select i1 {largest}, i1 {more}, i1 {less}")

    r = b.each("%rows")
    row = b.at(x, b.times(r, "%width"))
    first = b.times(r, k)
    kept, kept_at = b.at(out, first), b.at(places, first, "i64")
    last = b.at(kept, b.let(f"sub i64 {k}, 1"))
    j = b.each("%width")
    number = b.load(b.at(row, j))
    b.unless(b.let(f"fcmp uno {b.kind} {number}, {number}"))
    b.store(number, held)
    b.store(j, at, "i64")
    b.store("0", moved, "i1")
    room = b.let(f"icmp slt i64 {j}, {k}")  # what lies in the last place is no number yet
    enters = b.let(f"or i1 {room}, {better(number, b.load(last))}")
    # a better one takes the place, and what was there goes on, as does what is behind: equals, too
    i = b.each(b.let(f"select i1 {enters}, i64 {k}, i64 0"))
    slot, slot_at = b.at(kept, i), b.at(kept_at, i, "i64")
    mine, theirs = b.load(held), b.load(slot)
    my_place, their_place = b.load(at, "i64"), b.load(slot_at, "i64")
    takes = b.let(f"or i1 {better(mine, theirs)}, {b.load(moved, 'i1')}")
    takes = b.let(f"or i1 {takes}, {b.let(f'icmp sge i64 {i}, {j}')}")  # nobody was there yet
    b.store(takes, moved, "i1")
    for one, other, kind, to, on in (
        (mine, theirs, b.kind, slot, held), (my_place, their_place, "i64", slot_at, at),
    ):
        b.store(b.let(f"select i1 {takes}, {kind} {one}, {kind} {other}"), to, kind)
        b.store(b.let(f"select i1 {takes}, {kind} {other}, {kind} {one}"), on, kind)
    b.end()
    b.end()
    b.end()
    return b.gives(2)


def join(b: Body) -> Body:
    """Arrays: any number of one size, in parts of `width` numbers, then what has them side by
    side."""
    last = b.let("sub i64 %n, 1")
    out = b.given(last)
    size = b.let(f"mul i64 %width, {b.size}")
    i = b.each(last)
    part = b.given(i)
    p = b.each("%parts")
    to = b.at(out, b.times(b.plus(b.times(p, last), i), "%width"))
    b.call(f"@llvm.memcpy.p0.p0.i64(ptr {to}, ptr {b.at(part, b.times(p, '%width'))}, "
           f"i64 {size}, i1 false)")
    b.end()
    b.end()
    return b.gives(last)
