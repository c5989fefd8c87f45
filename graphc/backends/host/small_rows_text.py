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

from . import small_places_text as places
from .small_rows_body import ARRAYS, CALLS, Body, function
from .small_windows_text import max_pool, window_sum

KINDS = {"f": ("float", 4), "d": ("double", 8)}
NAMES = (
    "softmax", "log_softmax", "sigmoid", "cross_entropy", "nll_loss", "norm", "max_pool",
    "window_sum", "sum", "amax", "amin", "cummax", "cummin", "add_rows", "gather", "scatter",
    "topk", "join",
)


def text(most: int) -> str:
    """The module, for so many numbers at most."""
    parts = [ARRAYS, CALLS, places.DECLARED]
    for char, (kind, size) in KINDS.items():
        for name, body in _BODIES.items():
            parts.append(function(f"{name}_{char}", body(Body(kind, size, most))))
    return "\n".join(parts)


def _softmax(b: Body) -> Body:
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


def _log_softmax(b: Body) -> Body:
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


def _sigmoid(b: Body) -> Body:
    """Its own number: 1."""
    x, out, one = b.given(0), b.given(1), b.own(0)
    b.one("negative", x, out, b.all)
    b.one("exp", out, out, b.all)
    b.two("add", one, out, out, b.all, "nrr")
    b.two("divide", one, out, out, b.all, "nrr")
    return b.gives(1)


def _cross_entropy(b: Body) -> Body:
    """Of scores. Its own: 0 for each row's loss, 1 for their sum, 2 for their mean; which class is
    left out."""
    x, target, e, peaks, losses = b.given(0), b.given(1), b.room(), b.room(), b.room()
    _classes(b, target)
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

    def loss(r: str, score: str) -> str:
        picked = b.let(f"fsub {b.kind} {score}, {b.load(b.at(peaks, r))}")
        return b.let(f"fsub {b.kind} {b.load(b.at(losses, r))}, {picked}")

    return _reduced(b, x, target, losses, loss)


def _nll_loss(b: Body) -> Body:
    """The same of log-probabilities."""
    x, target, losses = b.given(0), b.given(1), b.room()
    _classes(b, target)
    return _reduced(b, x, target, losses, lambda r, score: b.let(f"fneg {b.kind} {score}"))


def _class(b: Body, target: str, r: str) -> tuple[str, str]:
    """Whether a row counts, and its class; of others the first."""
    found = b.load(b.at(target, r, "i64"), "i64")
    counts = b.let(f"icmp ne i64 {found}, {b.word(1)}")
    return counts, b.let(f"select i1 {counts}, i64 {found}, i64 0")


def _classes(b: Body, target: str) -> None:
    """None where a row has no such class."""
    r = b.each("%rows")
    b.unless(b.let(f"icmp uge i64 {_class(b, target, r)[1]}, %width"))
    b.end()


def _reduced(
    b: Body, x: str, target: str, losses: str, loss: Callable[[str, str], str]
) -> Body:
    """What `loss` makes of each row's score, and what becomes of these."""
    out, mode, counted = b.given(2), b.word(0), b.number("i64")
    b.store("0", counted, "i64")
    r = b.each("%rows")
    counts, found = _class(b, target, r)
    score = b.load(b.at(x, b.plus(b.times(r, "%width"), found)))
    value = b.let(f"select i1 {counts}, {b.kind} {loss(r, score)}, {b.kind} 0.0")
    b.store(value, b.at(losses, r))
    one = b.let(f"zext i1 {counts} to i64")
    b.store(b.plus(b.load(counted, "i64"), one), counted, "i64")
    b.end()
    each = b.let(f"icmp eq i64 {mode}, 0")
    r = b.each(b.let(f"select i1 {each}, i64 %rows, i64 0"))
    b.store(b.load(b.at(losses, r)), b.at(out, r))
    b.end()
    b.each(b.let(f"select i1 {each}, i64 0, i64 1"))
    b.store("0.0", out)
    b.total(losses, out, "%rows")
    b.each(b.let(f"select i1 {b.let(f'icmp eq i64 {mode}, 2')}, i64 1, i64 0"))
    count = b.let(f"sitofp i64 {b.load(counted, 'i64')} to {b.kind}")
    b.store(b.let(f"fdiv {b.kind} {b.load(out)}, {count}"), out)
    b.end()
    b.end()
    return b.gives(2)


def _norm(b: Body) -> Body:
    """Arrays: x, weight, bias, mean, variance, the result. Its own: how many numbers a mean is of,
    eps, 1; whether there is a weight, a bias, and whether these are along a row."""
    x, weight, bias, mean, variance, out = [b.given(i) for i in range(6)]
    squares, scale, left = b.room(), b.room(), b.room()

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
    for source, centre in ((x, mean), (out, left)):  # and what rounding has kept out of the mean
        if source is out:
            moments(out, left)
            b.two("add", mean, left, mean, "%rows", "rrr")
        r, first = rows()
        b.two("subtract", b.at(source, first), b.at(centre, r), b.at(out, first), "%width", "rnr")
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


def _sum(b: Body) -> Body:
    x, out = b.given(0), b.given(1)
    r = b.each("%rows")
    to = b.at(out, r)
    b.store("0.0", to)
    b.total(b.at(x, b.times(r, "%width")), to)
    b.end()
    return b.gives(1)


def _extremum(name: str) -> Callable[[Body], Body]:
    def make(b: Body) -> Body:
        x, out = b.given(0), b.given(1)
        r = b.each("%rows")
        b.peak(b.at(x, b.times(r, "%width")), b.at(out, r), name)
        b.end()
        return b.gives(1)

    return make


def _running(name: str) -> Callable[[Body], Body]:
    """Arrays: x, the extrema so far, where each is: the last of equals, or of NaNs."""

    def make(b: Body) -> Body:
        x, out, places, held = b.given(0), b.given(1), b.given(2), b.number("i64")
        r = b.each("%rows")
        first = b.times(r, "%width")
        row, to = b.at(x, first), b.at(out, first)
        b.store(b.load(row), to)
        rest = b.let("sub i64 %width, 1")
        b.two(name, to, b.at(row, "1"), b.at(to, "1"), rest, "rrr")  # as `accumulate` does
        b.store("0", held, "i64")
        j = b.each("%width")
        cell, value = b.load(b.at(row, j)), b.load(b.at(to, j))
        same = b.let(f"fcmp oeq {b.kind} {cell}, {value}")
        nan = b.let(f"fcmp uno {b.kind} {cell}, {cell}")
        here = b.let(f"or i1 {same}, {nan}")
        place = b.let(f"select i1 {here}, i64 {j}, i64 {b.load(held, 'i64')}")
        b.store(place, held, "i64")
        b.store(place, b.at(places, b.plus(first, j), "i64"), "i64")
        b.end()
        b.end()
        return b.gives(2)

    return make


def _add_rows(b: Body) -> Body:
    """Arrays: rows, the place that each goes to, what they are added to. Its own: how many places
    there are. None where one is out of range."""
    rows, places, out, size = b.given(0), b.given(1), b.given(2), b.word(0)
    r = b.each("%rows")
    b.unless(b.let(f"icmp uge i64 {b.load(b.at(places, r, 'i64'), 'i64')}, {size}"))
    b.end()
    p = b.each("%parts")
    r = b.each("%rows")
    row = b.at(rows, b.times(b.plus(b.times(p, "%rows"), r), "%width"))
    place = b.plus(b.times(p, size), b.load(b.at(places, r, "i64"), "i64"))
    to = b.at(out, b.times(place, "%width"))
    b.two("add", to, row, to, "%width", "rrr")
    b.end()
    b.end()
    return b.gives(2)


_BODIES: dict[str, Callable[[Body], Body]] = {
    "sum": _sum, "amax": _extremum("maximum"), "amin": _extremum("minimum"),
    "softmax": _softmax, "log_softmax": _log_softmax, "sigmoid": _sigmoid,
    "cross_entropy": _cross_entropy, "nll_loss": _nll_loss, "norm": _norm, "max_pool": max_pool,
    "window_sum": window_sum, "cummax": _running("maximum"), "cummin": _running("minimum"),
    "add_rows": _add_rows, "gather": places.gather, "scatter": places.scatter,
    "topk": places.topk, "join": places.join,
}
