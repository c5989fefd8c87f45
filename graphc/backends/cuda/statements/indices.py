"""Index expressions in C: as int where what is known of loops proves that every step of one fits,
as i64 otherwise.

An index into a buffer of known size is an int, too, where parts of it depend on data: it is in
range (the kernel has checked it), so sums and products may wrap on the way there, unsigned.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from graphc.ir import dtypes
from graphc.ir.dim import Atom, Dim, Size, unwrap
from graphc.ir.kernel import IndexValue, Let, Loop
from graphc.ir.kernel.bounds import Interval, Scope, interval

MOST = (1 << 30) - 1  # of what is an int; a step of a loop behind it fits as well
_FUNCTIONS = {"floordiv": "floordiv", "mod": "floormod", "min": "take_min", "max": "take_max"}


class Indices:
    """The integers in scope at a place of a kernel: what C type each has, and its bounds."""

    def __init__(self) -> None:
        self.scope = Scope()
        self.ints: set[str] = set()  # names that are ints in C; others are i64
        self.spelled: dict[str, str] = {}  # names that are elements of something
        self._known: dict[Size, bool] = {}  # what fits here

    # What is in scope

    @contextmanager
    def loop(self, loop: Loop) -> Iterator[str]:
        """A loop's variable is in scope; gives its C type."""
        self.scope.extents[loop.var] = self.scope.resolve(loop.extent)
        fits = self.fits(loop.extent)
        most = interval(loop.extent, self.scope)
        self._bind(loop.var, fits and most is not None and most[1] <= MOST)
        if not fits:  # bounded, though it is made of what is not
            upper = self.most(loop.extent)
            self._bind(loop.var, upper is not None and upper <= MOST)
        yield "int" if loop.var in self.ints else "i64"
        del self.scope.extents[loop.var]
        self._known.clear()
        for carry in loop.carries:
            if carry.dtype is dtypes.i64:
                self.unknown(carry.name)

    def let(self, stmt: Let) -> str:
        """An i64 Let is in scope; gives its C type."""
        self.scope.lets.pop(stmt.name, None)
        self.scope.unknown.discard(stmt.name)
        if not isinstance(stmt.value, IndexValue):
            self.unknown(stmt.name)
            return "i64"
        fits = self.fits(stmt.value.index)
        self.scope.lets[stmt.name] = self.scope.resolve(stmt.value.index)
        self._bind(stmt.name, fits)
        return "int" if fits else "i64"

    def unknown(self, name: str) -> None:
        """A name's value depends on data."""
        self.scope.lets.pop(name, None)
        self.scope.unknown.add(name)
        self._bind(name, False)

    def _bind(self, name: str, is_int: bool) -> None:
        self._known.clear()
        (self.ints.add if is_int else self.ints.discard)(name)

    # What is known

    def bounds(self, index: Size) -> Interval | None:
        """The smallest and largest value, where they are known."""
        return interval(index, self.scope)

    def most(self, index: Size) -> int | None:
        """An upper bound, also where the lower one hangs on a symbolic size."""
        index = self.scope.resolve(index)
        found = self.bounds(index)
        if found is not None:
            return found[1]
        if isinstance(index, Dim) and len(index.terms) == 1:
            ((monomial, coefficient),) = index.terms
            if coefficient == 1 and len(monomial) == 1 and monomial[0][0].kind == "min":
                sides = [self.most(unwrap(arg)) for arg in monomial[0][0].args]
                return min((side for side in sides if side is not None), default=None)
        return None

    def fits(self, index: Size) -> bool:
        """Whether an int has room for the value, and for every step on the way to it."""
        found = self._known.get(index)
        if found is None:
            found = self._known[index] = self._fits(index)
        return found

    def _fits(self, index: Size) -> bool:
        if isinstance(index, int):
            return abs(index) <= MOST
        total = 0
        for monomial, coefficient in index.terms:
            found = self.bounds(unwrap(Dim(((monomial, coefficient),))))
            if found is None:
                return False
            total += max(abs(found[0]), abs(found[1]))
            for atom, _ in monomial:
                if not all(self.fits(unwrap(arg)) for arg in atom.args):
                    return False
        return total <= MOST

    def _is_natural(self, index: Size) -> bool:
        """Whether it is known to be no less than 0. Loop variables and dims are."""
        if isinstance(index, int):
            return index >= 0
        index = self.scope.resolve(index)
        if isinstance(index, int):
            return index >= 0
        if all(c >= 0 and all(self._is_natural_atom(a) for a, _ in m) for m, c in index.terms):
            return True
        found = self.bounds(index)
        return found is not None and found[0] >= 0

    def _is_natural_atom(self, atom: Atom) -> bool:
        if atom.kind == "var":
            return atom.name not in self.scope.unknown
        if atom.kind == "mod":
            return self._is_natural(unwrap(atom.args[1]))
        return all(self._is_natural(unwrap(arg)) for arg in atom.args)

    # C

    def value(self, index: Size) -> tuple[str, str]:
        """An expression, and its C type."""
        kind = "int" if self.fits(index) else "i64"
        return self.text(index, kind), kind

    def place(self, index: Size, size: Size | None) -> str:
        """An index into a buffer of so many elements, if that is known."""
        if self.fits(index):
            return self.text(index, "int")
        if isinstance(size, int) and size <= MOST:
            return f"(int){self.text(index, 'unsigned')}"
        return self.text(index, "i64")

    def text(self, index: Size, kind: str) -> str:
        """An expression of a C type, with Python's rounding in divisions."""
        if isinstance(index, int):
            return _number(index, kind)
        terms = []
        for monomial, coefficient in index.terms:
            factors = [] if coefficient == 1 and monomial else [_number(coefficient, kind)]
            for atom, power in monomial:
                if atom.kind == "var":
                    text = self.name(atom.name, kind)
                else:
                    text = self._call(atom.kind, atom.args, kind)
                factors += [text] * power
            terms.append(" * ".join(factors))
        return f"({' + '.join(terms)})" if terms else _number(0, kind)

    def name(self, name: str, kind: str) -> str:
        """One in scope, as a C type."""
        text = self.spelled.get(name, name)
        own = "int" if name in self.ints else "i64"
        return text if own == kind else f"({kind}){text}"

    def _call(self, function: str, args: tuple[Dim, ...], kind: str) -> str:
        sizes = [unwrap(arg) for arg in args]
        inner = "int" if all(self.fits(size) for size in sizes) else "i64"
        a, b = (self.text(size, inner) for size in sizes)
        sign = {"floordiv": "/", "mod": "%"}.get(function)
        positive = isinstance(sizes[1], int) and sizes[1] > 0
        if sign and positive and self._is_natural(sizes[0]):
            text = f"({a} {sign} {b})"
        else:
            text = f"{_FUNCTIONS[function]}<{inner}>({a}, {b})"
        return text if inner == kind else f"({kind}){text}"


def _number(value: int, kind: str) -> str:
    if kind == "unsigned":
        return f"{value % (1 << 32)}u"
    text = f"{value}LL" if kind == "i64" else str(value)
    return text if value >= 0 else f"({text})"


def index_text(index: Size) -> str:
    """An expression over i64s that are no less than 0 where they are divided."""
    return Indices().text(index, "i64")
