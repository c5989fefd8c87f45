"""What operators on few numbers come to as entries of a program (backends/host/program_text.py).

What goes number by number is followed (backends/numpy/recorded.py); what moves numbers is tried on
their positions, which says where each comes from; sums are added in NumPy's order. The entries are
for arrays that stay where they are, but for those that are given and the results.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from ..backends.host.program_text import SIZES
from ..backends.numpy.common import plain
from ..backends.numpy.ops import TABLE
from ..backends.numpy.recorded import SELECT, in_order, recorded
from ..ir.graph import attrs_key
from ..ir.op import Attrs, Op
from .program_code import Code, Entry

Array = np.ndarray[Any, Any]
_MOST_BYTES = 1 << 18  # of all values
_MOST_ENTRIES = 2000
_MOVED_TO_ROWS = 4  # loops that take as long as moving an operand to rows
_MOVES = frozenset(
    "reshape permute expand slice as_strided flip pad concat slice_update as_strided_update".split()
)
_TOTALS = {
    "sum": (np.add, 0), "prod": (np.multiply, 1), "amax": (np.maximum, None),
    "amin": (np.minimum, None), "any": (np.logical_or, False), "all": (np.logical_and, True),
}


class Unwritten(Exception):
    """There is no such program."""


class Writer:
    """Entries that compute values from values."""

    def __init__(self, code: Code, given: Sequence[Array]) -> None:
        self.code, self.entries, self.given = code, list[Entry](), list(given)
        self.flag = np.zeros(1, np.int64)  # the address of the word that lookups set
        self.tables: list[Array] = []
        self.kept: list[Array] = []  # operands
        self.constants: list[Array] = []
        self.lookups: list[Array] = []
        self.filled: list[Array] = []  # values of which no entry writes all
        self.in_order = False  # bits hang on the order of sums, and so on layouts
        self._rows: dict[Any, Array] = {}
        self._bytes = 0

    def is_constant(self, a: Array) -> bool:
        """Whether its numbers never change."""
        return any(a is c for c in self.constants)

    def new(self, shape: Sequence[int], dtype: Any) -> Array:
        made = np.empty(tuple(shape), dtype)
        self._grown(made.nbytes)
        return made

    def like(self, other: Array, dtype: Any) -> Array:
        """A value that lies in memory as another does."""
        made = np.empty_like(other, dtype)
        self._grown(made.nbytes)
        return made

    def _grown(self, size: int) -> None:
        self._bytes += size
        if self._bytes > _MOST_BYTES:
            raise Unwritten

    def _entry(
        self, loop: tuple[int, int], count: int, operands: Sequence[Array], steps: Sequence[int],
        off: Sequence[int] = (0, 0, 0, 0),
    ) -> None:
        """`off`: how far behind an operand's first number it begins, in bytes."""
        self.kept += operands
        addresses = [a.ctypes.data + o for a, o in zip(operands, off, strict=False)]
        self.entries.append(Entry(loop, count, addresses, steps))
        if len(self.entries) > _MOST_ENTRIES:
            raise Unwritten

    def loop(self, function: Any, types: str, operands: Sequence[Array], out: Array) -> None:
        """A ufunc's loop, or one of steps_text.py, over operands spread to a result's shape."""
        found = self.code.loop(function, types)
        if found is None or out.size == 0 or len(operands) > 3:
            raise Unwritten
        spread = [np.broadcast_to(a, out.shape) for a in operands]
        dims = _merged(out, spread)
        if len(dims) > 1 and out.size // dims[-1][0] > _MOVED_TO_ROWS:
            spread = [self.rows(a, out) for a in spread]
            dims = _merged(out, spread)
        arrays = [*spread, out]
        count, steps = dims[-1] if dims else (1, (0,) * len(arrays))
        outer = dims[:-1]
        for place in np.ndindex(*[n for n, _ in outer]):
            off = [0] * len(arrays)
            for i, (_, by) in zip(place, outer, strict=True):
                off = [o + i * s for o, s in zip(off, by, strict=True)]
            self._entry(found, count, arrays, steps, off)

    def rows(self, a: Array, like: Array) -> Array:
        """The same numbers as `like` lies in memory; one number stays as it is."""
        if not any(s for n, s in zip(a.shape, a.strides, strict=True) if n > 1):
            return a
        if _same_steps(a, like):
            return a
        key = a.ctypes.data, a.strides, a.shape, a.dtype.char, like.strides
        if key not in self._rows:
            made = self.like(like, a.dtype)
            self.move(a, made)
            self._rows[key] = made
        return self._rows[key]

    def move(self, source: Array, out: Array) -> None:
        """out = source, of one shape."""
        self.moved(source, out, distances(source).ravel(), distances(out).ravel())

    def moved(self, source: Array, out: Array, off: Array, on: Array) -> None:
        """Numbers at these distances to those."""
        if not off.size:
            return
        table = np.stack([off, on], 1).astype(np.int64)
        self.tables.append(table)
        self._grown(table.nbytes // 4)
        if source.itemsize not in SIZES:
            raise Unwritten
        loop = self.code.own(f"move{source.itemsize}", table.ctypes.data)
        self._entry(loop, off.size, [source, out], [0, 0])

    def lookup(self, x: Array, places: Array, dim: int, out: Array, off: Array, by: Array) -> None:
        """out = numbers of x at these distances, and so many steps along a dim as `places` says,
        at those distances of it."""
        if x.itemsize not in SIZES or places.dtype != np.int64:
            raise Unwritten
        table = np.empty(3 + 3 * out.size, np.int64)
        table[:3] = 0, x.shape[dim], x.strides[dim]
        table[3:].reshape(-1, 3)[:] = np.stack(
            [a.ravel() for a in (off, by, distances(out))], 1
        )
        self.lookups.append(table)
        self._grown(table.nbytes // 4)
        loop = self.code.own(f"lookup{x.itemsize}", table.ctypes.data)
        self._entry(loop, out.size, [x, places, out], [0, 0, 0])

    def product(self, a: Array, b: Array, out: Array) -> None:
        """np.matmul(a, b, out), by NumPy's loop for matrices."""
        self.in_order = True
        char = out.dtype.char
        found = self.code.loop(np.matmul, f"{char}{char}->{char}")
        if found is None or char not in "fd" or {a.dtype, b.dtype} != {out.dtype} or out.size == 0:
            raise Unwritten
        outer = out.shape[:-2]
        a, b = (np.broadcast_to(x, (*outer, *x.shape[-2:])) for x in (a, b))
        arrays = [a, b, out]
        last = outer[-1] if outer else 1
        by = [x.strides[-3] if outer else 0 for x in arrays]
        # NumPy's own says 0 of a dim of one number
        core = [
            s if n != 1 else 0
            for x in arrays for n, s in zip(x.shape[-2:], x.strides[-2:], strict=True)
        ]
        table = np.array([*found, last, *a.shape[-2:], b.shape[-1], *by, *core], np.int64)
        self.tables.append(table)
        loop = self.code.own("product", table.ctypes.data)
        for place in np.ndindex(*outer[:-1]):
            off = [
                sum(i * s for i, s in zip(place, x.strides[: len(place)], strict=True))
                for x in arrays
            ]
            self._entry(loop, 1, arrays, [0, 0, 0], off)

    def total(self, function: Any, first: Any, x: Array, dims: Sequence[int], out: Array) -> None:
        """function.reduce over dims of row-major numbers, in NumPy's order: that of memory, the
        numbers of a run at once. `first`: what it begins with; None: with the first number."""
        self.in_order = True
        char = x.dtype.char
        found = self.code.loop(function, f"{char}{char}->{char}")
        if found is None or not x.flags.c_contiguous or not out.flags.c_contiguous or (
            out.dtype != x.dtype or x.size == 0
        ):
            raise Unwritten
        kept = out.reshape([1 if d in dims else n for d, n in enumerate(x.shape)])
        rows = np.broadcast_to(kept, x.shape)
        runs = _merged(x, [rows])
        if first is not None:
            self.move(np.broadcast_to(_kept(first, x.dtype), kept.shape), kept)
            runs = runs or [(1, (0, 0))]
        else:
            part = tuple([slice(0, 1) if d in dims else slice(None) for d in range(x.ndim)])
            self.move(x[part], kept)
            reduced = sum(by == 0 for _, (by, _) in runs)
            if reduced > 1:
                raise Unwritten
            if not reduced:
                return
        *outer, (count, (by, step)) = runs
        for place in np.ndindex(*[n for n, _ in outer]):
            at, off = (
                sum(i * steps[k] for i, (_, steps) in zip(place, outer, strict=True))
                for k in range(2)
            )
            left, begins = count, first is None
            if first is None and by == 0:  # the first of a run is there
                left, off, begins = count - 1, off + step, False
            if left and not (begins and _is_first(place, outer)):
                self._entry(found, left, [kept, x, kept], [by, step, by], (at, off, at))

    def finish(self, results: Sequence[Array]) -> Callable[..., Any]:
        """The function of what is given and of new arrays for the results."""
        made = self.code.function(
            self.entries, [*self.given, *results], self.flag,
            (self.tables, self.lookups, self.kept),
        )
        for table in self.lookups:
            table[0] = self.flag[0]
        return made


def distances(a: Array) -> Array:
    """Of each number, in bytes from the first."""
    found = np.zeros(a.shape, np.int64)
    for d, (n, step) in enumerate(zip(a.shape, a.strides, strict=True)):
        found += (np.arange(n) * step).reshape([-1 if e == d else 1 for e in range(a.ndim)])
    return found


def _is_first(place: Sequence[int], outer: Sequence[tuple[int, tuple[int, ...]]]) -> bool:
    """Whether this is the first of the numbers that are added up outside of runs."""
    return not any(i for i, (_, (step, _)) in zip(place, outer, strict=True) if step == 0)


def _kept(value: Any, dtype: Any) -> Array:
    return np.asarray(value, dtype)


def _same_steps(a: Array, b: Array) -> bool:
    return all(n == 1 or s == t for n, s, t in zip(a.shape, a.strides, b.strides, strict=True))


def _merged(out: Array, operands: Sequence[Array]) -> list[tuple[int, tuple[int, ...]]]:
    """Dims in the order of a result's memory, those that all arrays step through as one joined:
    how many numbers, and the step of each operand and of the result."""
    strides = [*[a.strides for a in operands], out.strides]
    order = sorted([d for d, n in enumerate(out.shape) if n != 1], key=lambda d: -out.strides[d])
    found: list[tuple[int, tuple[int, ...]]] = []
    for d in order:
        n, steps = out.shape[d], tuple([s[d] for s in strides])
        if found and all(s == n * t for s, t in zip(found[-1][1], steps, strict=True)):
            found[-1] = found[-1][0] * n, steps
        else:
            found.append((n, steps))
    return found


# --- operators -----------------------------------------------------------------------------------


def _pointwise(w: Writer, op: Op, attrs: Attrs, given: Sequence[Array], out: Array) -> None:
    """What it does to each number (recorded.py)."""
    if op.name == "cast" and given[0].dtype == out.dtype:
        w.move(given[0], out)
        return
    fixed = {i: a for i, a in enumerate(given) if w.is_constant(a) and not a.ndim}
    open_ = [a for i, a in enumerate(given) if i not in fixed]
    if op.name == "pow" and 1 not in fixed:
        raise Unwritten  # one 2 is a square
    values, result = _followed(op, attrs, tuple([
        ("", fixed[i].dtype.char, fixed[i].tobytes()) if i in fixed else (a.dtype.char,)
        for i, a in enumerate(given)
    ]))
    arrays: dict[int, Array] = dict(enumerate(open_))
    for number in in_order(values, result):
        if type(number) is not int:
            continue  # what may be left out
        step = values[number]
        operands = []
        for source in step.operands:
            if source not in arrays:
                arrays[source] = values[source]
            operands.append(arrays[source])
        if number == result:
            to = out
        else:
            dtype = np.dtype(step.types[-1])
            to = w.like(out, dtype)
        if to.dtype.char != step.types[-1]:
            raise Unwritten
        w.loop(step.function, step.types, operands, to)
        arrays[number] = to


_known: dict[Any, tuple[list[Any], int] | None] = {}
_LIMIT = 4096


def _followed(op: Op, attrs: Attrs, kinds: Sequence[Any]) -> tuple[list[Any], int]:
    key = op.name, attrs_key(attrs), kinds
    if key not in _known:
        if len(_known) >= _LIMIT:
            _known.clear()
        _known[key] = _follow(op, attrs, kinds)
    found = _known[key]
    if found is None:
        raise Unwritten
    return found


def _follow(op: Op, attrs: Attrs, kinds: Sequence[Any]) -> tuple[list[Any], int] | None:
    function = TABLE.get(op.name)
    if function is None:
        return None
    run = partial(plain(function), **attrs)

    def of_open(*arrays: Any) -> Any:
        rest = iter(arrays)
        return run(*[
            np.frombuffer(kind[2], kind[1]).reshape(()) if len(kind) > 1 else next(rest)
            for kind in kinds
        ])

    found = recorded(of_open, *[np.dtype(kind[0]) for kind in kinds if len(kind) == 1])
    if found is None:
        return None
    recording, result = found
    return recording.values, result.number


def _moved(w: Writer, op: Op, attrs: Attrs, given: Sequence[Array], out: Array) -> None:
    """By where each number of the result comes from."""
    numbers, first = [], 1
    for a in given:
        numbers.append(np.arange(first, first + a.size).reshape(a.shape))
        first += a.size
    sources = TABLE[op.name](*numbers, **({**attrs, "value": 0} if "value" in attrs else attrs))
    on, first = distances(out), 1
    for a in given:
        mine = (sources >= first) & (sources < first + a.size)
        w.moved(a, out, distances(a).ravel()[sources[mine] - first], on[mine])
        first += a.size
    if not sources.all():
        w.filled.append(out)


def _gather(w: Writer, attrs: Attrs, given: Sequence[Array], out: Array) -> None:
    (x, places), dim = given, attrs["dim"]
    if x.ndim != places.ndim or not x.ndim or out.shape != places.shape:
        raise Unwritten
    part = tuple([slice(0, 1 if d == dim else n) for d, n in enumerate(places.shape)])
    off = np.broadcast_to(distances(x)[part], places.shape)
    w.lookup(x, places, dim, out, off, distances(places))


def _index(w: Writer, attrs: Attrs, given: Sequence[Array], out: Array) -> None:
    if len(given) != 2:
        raise Unwritten
    (x, places), dim = given, attrs["dim"]
    before, behind = x.shape[:dim], x.shape[dim + 1 :]
    if out.shape != (*before, *places.shape, *behind):
        raise Unwritten
    rows = distances(x).take([0], dim).reshape((*before, *[1] * places.ndim, *behind))
    by = distances(places).reshape((*[1] * len(before), *places.shape, *[1] * len(behind)))
    w.lookup(
        x, places, dim, out, np.broadcast_to(rows, out.shape), np.broadcast_to(by, out.shape)
    )


def _total(w: Writer, op: Op, attrs: Attrs, given: Sequence[Array], out: Array) -> None:
    function, first = _TOTALS[op.name]
    if not attrs["dims"]:
        raise Unwritten
    w.total(function, first, given[0], attrs["dims"], out)


def _logsumexp(w: Writer, attrs: Attrs, given: Sequence[Array], out: Array) -> None:
    """As backends/numpy/composite.py has it."""
    (x,), dim = given, attrs["dim"]
    c = x.dtype.char
    row = (*x.shape[:dim], 1, *x.shape[dim + 1 :])
    peak, shift, sums, logs = (w.new(row, x.dtype) for _ in range(4))
    wrong, e, f = w.new(row, "?"), w.new(x.shape, x.dtype), w.new(x.shape, x.dtype)
    w.total(np.maximum, None, x, (dim,), peak)
    w.loop(np.isinf, f"{c}->?", [peak], wrong)
    w.loop(SELECT, f"?{c}{c}->{c}", [wrong, _kept(0, x.dtype), peak], shift)
    w.loop(np.subtract, f"{c}{c}->{c}", [x, shift], e)
    w.loop(np.exp, f"{c}->{c}", [e], f)
    w.total(np.add, 0, f, (dim,), sums)
    w.loop(np.log, f"{c}->{c}", [sums], logs)
    w.loop(np.add, f"{c}{c}->{c}", [logs, shift], out.reshape(row))


@functools.cache
def products() -> dict[str, Callable[..., None]]:
    """The rules of what multiplies matrices."""
    found: dict[str, Callable[..., None]] = importlib.import_module(
        ".program_products", __package__
    ).RULES
    return found


def _exponentials(w: Writer, dim: int, given: Sequence[Array]) -> tuple[Array, Array, Array]:
    """What is left of x without the greatest of each row, its exponentials, and their sums."""
    (x,) = given
    if not x.ndim:
        raise Unwritten
    c = x.dtype.char
    peak, sums = (w.new((*x.shape[:dim], 1, *x.shape[dim + 1 :]), x.dtype) for _ in range(2))
    away, e = w.new(x.shape, x.dtype), w.new(x.shape, x.dtype)
    w.total(np.maximum, None, x, (dim,), peak)
    w.loop(np.subtract, f"{c}{c}->{c}", [x, peak], away)
    w.loop(np.exp, f"{c}->{c}", [away], e)
    w.total(np.add, 0, e, (dim,), sums)
    return away, e, sums


def _softmax(w: Writer, attrs: Attrs, given: Sequence[Array], out: Array) -> None:
    """As backends/numpy/bound.py has it."""
    _, e, sums = _exponentials(w, attrs["dim"], given)
    c = e.dtype.char
    w.loop(np.true_divide, f"{c}{c}->{c}", [e, sums], out)


def _log_softmax(w: Writer, attrs: Attrs, given: Sequence[Array], out: Array) -> None:
    """As backends/numpy/bound.py has it."""
    away, e, sums = _exponentials(w, attrs["dim"], given)
    c = e.dtype.char
    w.loop(np.log, f"{c}->{c}", [sums], sums)
    w.loop(np.subtract, f"{c}{c}->{c}", [away, sums], out)


def _layer_norm(w: Writer, attrs: Attrs, given: Sequence[Array], out: Array) -> None:
    """As backends/numpy/bound.py has it."""
    (x, *parameters), axes = given, tuple(attrs["normalized_dims"])
    if len(axes) != 1 or x.dtype.char not in "fd" or {p.dtype for p in given} != {x.dtype}:
        raise Unwritten
    axis, one, two = axes[0], f"{x.dtype.char}->{x.dtype.char}", f"{2 * x.dtype.char}->"
    two += x.dtype.char
    mean, scale = (w.new((*x.shape[:axis], 1, *x.shape[axis + 1 :]), x.dtype) for _ in range(2))
    y, squares = w.new(x.shape, x.dtype), w.new(x.shape, x.dtype)
    count, small, unit = (_kept(n, x.dtype) for n in (x.shape[axis], attrs["eps"], 1))
    w.total(np.add, 0, x, axes, mean)
    w.loop(np.true_divide, two, [mean, count], mean)
    w.loop(np.subtract, two, [x, mean], y)
    w.loop(np.multiply, two, [y, y], squares)
    w.total(np.add, 0, squares, axes, scale)
    w.loop(np.true_divide, two, [scale, count], scale)
    w.loop(np.add, two, [scale, small], scale)
    w.loop(np.sqrt, one, [scale], scale)
    w.loop(np.true_divide, two, [unit, scale], scale)
    steps = [(np.multiply, scale), *zip((np.multiply, np.add), parameters, strict=False)]
    for i, (function, operand) in enumerate(steps):
        w.loop(function, two, [y, operand], out if i + 1 == len(steps) else y)


_ROWS = {
    "logsumexp": _logsumexp, "softmax": _softmax, "log_softmax": _log_softmax,
    "layer_norm": _layer_norm,
}


def write(w: Writer, op: Op, attrs: Attrs, given: Sequence[Array], out: Array) -> None:
    """The entries of one operator. Raises Unwritten where there are none."""
    name = op.name
    if name in _MOVES:
        _moved(w, op, attrs, given, out)
    elif name == "gather":
        _gather(w, attrs, given, out)
    elif name == "index":
        _index(w, attrs, given, out)
    elif name in _TOTALS:
        _total(w, op, attrs, given, out)
    elif name in _ROWS:
        _ROWS[name](w, attrs, given, out)
    elif name in products():
        products()[name](w, attrs, given, out)
    elif op.pointwise and "graphs" not in attrs:
        _pointwise(w, op, attrs, given, out)
    else:
        raise Unwritten
