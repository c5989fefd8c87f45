"""Symbolic sizes and index expressions: canonical integer expressions over named variables.

A `Dim` is a sum of integer multiples of products of atoms: a variable or a floor-division, modulo,
minimum or maximum of two expressions. Equal expressions of the polynomial part have one form:
equality is structural. It spells tensors' symbolic sizes and kernels' indices over loops.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterable, Mapping
from typing import TypeAlias

from .dim_bounds import decided, least
from .late import late
from .record import record

_text = late("graphc.ir.dim_text")  # which reads what this file prints


@record
class Atom:
    """`var` (name), or `floordiv` | `mod` | `min` | `max` of two expressions."""

    kind: str
    name: str
    args: tuple[Dim, ...]

    def text(self) -> str:
        if self.kind == "var":
            return self.name
        left, right = (a.text() for a in self.args)
        if self.kind in ("min", "max"):
            return f"{self.kind}({left}, {right})"
        if "*" in right and len(self.args[1].terms) == 1:
            right = f"({right})"  # a // (b*c)
        return f"({left} {'//' if self.kind == 'floordiv' else '%'} {right})"


Monomial: TypeAlias = tuple[tuple[Atom, int], ...]  # sorted (atom, power)


@record
class Dim:
    """A canonical integer expression. Make variables by `Dim.var(name)`; combine by operators.

    Operators fold to `int` where the value is constant. `==` is structural (hashable); what a
    trace decides about two Dims by their values goes through `DimEnv`.
    """

    terms: tuple[tuple[Monomial, int], ...]  # sorted by text, coefficient never 0

    @staticmethod
    def var(name: str) -> Dim:
        return Dim((((((Atom("var", name, ()), 1),), 1)),))

    def text(self) -> str:
        if not self.terms:
            return "0"
        parts: list[str] = []
        for monomial, coefficient in self.terms:
            factors = [a.text() for a, power in monomial for _ in range(power)]
            if coefficient != 1 or not factors:
                if coefficient == -1 and factors:
                    factors[0] = "-" + factors[0]
                else:
                    factors.insert(0, str(coefficient))
            parts.append("*".join(factors))
        return parts[0] if len(parts) == 1 else "(" + " + ".join(parts) + ")"

    def __str__(self) -> str:
        return self.text()

    def __repr__(self) -> str:
        return f"Dim({self.text()})"

    def __add__(self, other: Size) -> Size:
        return _from_terms(_terms(self) + _terms(other))

    def __sub__(self, other: Size) -> Size:
        return _from_terms(_terms(self) + [(m, -c) for m, c in _terms(other)])

    def __rsub__(self, other: int) -> Size:
        return _from_terms([(m, -c) for m, c in self.terms] + _terms(other))

    def __mul__(self, other: Size) -> Size:
        if type(other) is int and other:  # the order of terms stays
            return _canonical([(m, c * other) for m, c in self.terms])
        product: list[tuple[Monomial, int]] = []
        for m1, c1 in self.terms:
            for m2, c2 in _terms(other):
                product.append((_merge(m1, m2), c1 * c2))
        return _from_terms(product)

    __radd__ = __add__
    __rmul__ = __mul__

    def __neg__(self) -> Size:
        return self * -1

    def __floordiv__(self, other: Size) -> Size:
        return floordiv(self, other)

    def __rfloordiv__(self, other: int) -> Size:
        return floordiv(other, self)

    def __mod__(self, other: Size) -> Size:
        return mod(self, other)

    def __rmod__(self, other: int) -> Size:
        return mod(other, self)

    def variables(self) -> frozenset[str]:
        """Names of every variable in the expression."""
        names: set[str] = set()
        for monomial, _ in self.terms:
            for atom, _power in monomial:
                if atom.kind == "var":
                    names.add(atom.name)
                for arg in atom.args:
                    names |= arg.variables()
        return frozenset(names)


Size: TypeAlias = int | Dim


def _terms(value: Size) -> list[tuple[Monomial, int]]:
    if isinstance(value, Dim):
        return list(value.terms)
    return [((), int(value))] if value else []


def _merge(a: Monomial, b: Monomial) -> Monomial:
    if not a or not b:
        return a or b
    powers: dict[Atom, int] = dict(a)
    for atom, power in b:
        powers[atom] = powers.get(atom, 0) + power
    return tuple(sorted(powers.items(), key=lambda item: item[0].text()))


def _from_terms(terms: Iterable[tuple[Monomial, int]]) -> Size:
    total: dict[Monomial, int] = {}
    for monomial, coefficient in terms:
        total[monomial] = total.get(monomial, 0) + coefficient
    kept = [(m, c) for m, c in total.items() if c]
    if len(kept) > 1:  # constants last, so that text reads "n + 1"
        kept.sort(key=lambda t: (not t[0], [(a.text(), p) for a, p in t[0]]))
    return _canonical(kept)


def _canonical(kept: list[tuple[Monomial, int]]) -> Size:
    """Of sorted terms, none of which is 0."""
    if not kept:
        return 0
    if len(kept) == 1 and not kept[0][0]:
        return kept[0][1]
    return Dim(tuple(kept))


def _atom(kind: str, a: Size, b: Size) -> Size:
    return Dim(((((Atom(kind, "", (as_dim(a), as_dim(b))), 1),), 1),))


def rejoined(value: Size) -> Size:
    """The same, with k * c * (a // k) + c * (a % k) as c * a."""
    if not isinstance(value, Dim):
        return value
    terms = dict(value.terms)
    for monomial, factor in value.terms:
        if len(monomial) != 1 or monomial[0][1] != 1 or monomial[0][0].kind != "mod":
            continue
        whole, size = monomial[0][0].args
        quotient = ((Atom("floordiv", "", (whole, size)), 1),)
        count = _constant(size)
        if count is not None and terms.get(quotient) == factor * count:
            rest = _from_terms([t for t in value.terms if t[0] not in (monomial, quotient)])
            return rejoined(unwrap(rest + factor * whole))
    return value


def as_dim(value: Size) -> Dim:
    """Wrap an int as a constant Dim (only inside atoms, where arguments are uniform)."""
    if isinstance(value, Dim):
        return value
    constant = operator.index(value)
    return Dim(((((), constant)),) if constant else ())


def _constant(value: Size) -> int | None:
    if type(value) is int:
        return value
    if not isinstance(value, Dim):
        return operator.index(value)  # a number object: its value, which its trace then guards
    if not value.terms:
        return 0
    if len(value.terms) == 1 and not value.terms[0][0]:
        return value.terms[0][1]
    return None


def floordiv(a: Size, b: Size) -> Size:
    """Floor division. Exact multiples are split off: (4*n + r) // 4 = n + r // 4."""
    a, b = unwrap(a), unwrap(b)
    if isinstance(a, int) and isinstance(b, int):
        return a // b
    if b == 1 or a == 0:
        return a
    if a == b:
        return 1
    if isinstance(b, int) and isinstance(a, Dim):
        exact = [(m, c // b) for m, c in a.terms if c % b == 0]
        rest = [(m, c) for m, c in a.terms if c % b]
        if exact:
            return _from_terms(exact) + floordiv(_from_terms(rest), b)
    if isinstance(a, Dim) and isinstance(b, Dim):
        quotient = _exact_quotient(a, b)
        if quotient is not None:
            return quotient
    return _atom("floordiv", a, b)


def _exact_quotient(a: Dim, b: Dim) -> Size | None:
    """a / b when b is one monomial that divides every term of a."""
    if len(b.terms) != 1:
        return None
    divisor, scale = b.terms[0]
    out: list[tuple[Monomial, int]] = []
    for monomial, coefficient in a.terms:
        powers = dict(monomial)
        for atom, power in divisor:
            if powers.get(atom, 0) < power:
                return None
            powers[atom] -= power
        if coefficient % scale:
            return None
        out.append((tuple((x, p) for x, p in powers.items() if p), coefficient // scale))
    return _from_terms(out)


def mod(a: Size, b: Size) -> Size:
    """Modulo with the sign of the divisor. Multiples of the divisor vanish."""
    a, b = unwrap(a), unwrap(b)
    if isinstance(a, int) and isinstance(b, int):
        return a % b
    if b == 1 or a == 0 or a == b:
        return 0
    if isinstance(b, int) and isinstance(a, Dim):
        rest = _from_terms([(m, c) for m, c in a.terms if c % b])
        if rest != a:
            return mod(rest, b)
    if isinstance(a, Dim) and isinstance(b, Dim) and _exact_quotient(a, b) is not None:
        return 0
    return _atom("mod", a, b)


def recombined(value: Size) -> Size:
    """The same with a number's digits put together: c * (x % k) + c * k * (x // k) is c * x."""
    if not isinstance(value, Dim):
        return value
    for monomial, scale in value.terms:
        if len(monomial) != 1 or monomial[0][0].kind != "mod" or monomial[0][1] != 1:
            continue
        x, divisor = monomial[0][0].args
        by, upper = _constant(divisor), floordiv(x, divisor)
        if by is None or not isinstance(upper, Dim) or len(upper.terms) != 1:
            continue
        if (upper.terms[0][0], scale * by) in value.terms:
            return recombined(value - scale * mod(x, divisor) - scale * by * upper + scale * x)
    return value


def minimum(a: Size, b: Size) -> Size:
    """The smaller of two sizes."""
    a, b = unwrap(a), unwrap(b)
    if isinstance(a, int) and isinstance(b, int):
        return min(a, b)
    return a if a == b else _atom("min", *_ordered(a, b))


def maximum(a: Size, b: Size) -> Size:
    """The larger of two sizes."""
    a, b = unwrap(a), unwrap(b)
    if isinstance(a, int) and isinstance(b, int):
        return max(a, b)
    return a if a == b else _atom("max", *_ordered(a, b))


def _ordered(a: Size, b: Size) -> tuple[Size, Size]:
    return (a, b) if as_dim(a).text() <= as_dim(b).text() else (b, a)


def unwrap(value: Size) -> Size:
    """A constant Dim as its int."""
    constant = _constant(value)
    return value if constant is None else constant


def product(sizes: Iterable[Size]) -> Size:
    """The product of sizes: the number of elements of a shape."""
    total: Size = 1
    for size in sizes:
        total = total * size
    return total


def is_static(sizes: Iterable[Size]) -> bool:
    """True if no size is symbolic."""
    return all(isinstance(size, int) for size in sizes)


def substitute(value: Size, env: Mapping[str, Size]) -> Size:
    """Replace variables by sizes; gives an int when all are given as ints."""
    if isinstance(value, int):
        return value
    total: Size = 0
    for monomial, coefficient in value.terms:
        term: Size = coefficient
        for atom, power in monomial:
            factor = _substitute_atom(atom, env)
            for _ in range(power):
                term = term * factor
        total = total + term
    return total


COMBINE: dict[str, Callable[[Size, Size], Size]] = {
    "floordiv": floordiv,
    "mod": mod,
    "min": minimum,
    "max": maximum,
}


def _substitute_atom(atom: Atom, env: Mapping[str, Size]) -> Size:
    if atom.kind == "var":
        return env.get(atom.name, Dim.var(atom.name))
    return COMBINE[atom.kind](*(substitute(a, env) for a in atom.args))


def evaluate(value: Size, env: Mapping[str, int]) -> int:
    """The value of a size for given variables. Raises KeyError naming a missing one."""
    result = substitute(value, env)
    if isinstance(result, Dim):
        raise KeyError(f"size {value} needs a value for {sorted(result.variables())}")
    return result


def parse(text: str) -> Size:
    """Read back `str(dim)`. Raises ValueError, SyntaxError or KeyError for other texts."""
    found: Size = _text.parse(text)
    return found


@record
class Guard:
    """A fact about named dims that a trace relied on: `left relation right` was `holds`."""

    relation: str  # "eq" | "le" | "divides" (left divides right)
    left: Size
    right: Size
    holds: bool

    def check(self, env: Mapping[str, int]) -> bool:
        """True if the fact still holds for these dim values."""
        left, right = evaluate(self.left, env), evaluate(self.right, env)
        return _RELATIONS[self.relation](left, right) == self.holds

    def text(self) -> str:
        sign = {"eq": "==", "le": "<=", "divides": "divides"}[self.relation]
        return f"{'' if self.holds else 'not '}{self.left} {sign} {self.right}"


_RELATIONS: dict[str, Callable[[int, int], bool]] = {
    "eq": lambda a, b: a == b,
    "le": lambda a, b: a <= b,
    "divides": lambda a, b: b % a == 0,
}


class DimEnv:
    """What is known of the named dims of one trace: an example value each, and the facts used.

    Every decision about a symbolic size goes through here and is remembered as a Guard.
    A named dim is at least 2: sizes 0 and 1 are always specialised.
    """

    def __init__(self) -> None:
        self.hints: dict[str, int] = {}
        self.guards: dict[Guard, None] = {}
        self.final = False  # others rely on the guards: more are decided on a copy alone

    def copy(self) -> DimEnv:
        """The same dims and facts; what is decided on the one is not decided on the other."""
        copy = DimEnv()
        copy.hints.update(self.hints)
        copy.guards.update(self.guards)
        return copy

    def new(self, name: str, hint: int) -> Dim:
        """Declare a named dim whose size in this trace's example is `hint` (>= 2)."""
        if hint < 2:
            raise ValueError(f"dim {name} has size {hint}: sizes 0 and 1 are specialised")
        self.hints[name] = hint
        return Dim.var(name)

    def hint(self, value: Size) -> int:
        """The example value of a size."""
        return evaluate(value, self.hints)

    def _decide(self, relation: str, left: Size, right: Size) -> bool:
        left, right = unwrap(left), unwrap(right)
        known = decided(relation, left, right)
        if known is not None:
            return known
        holds = _RELATIONS[relation](self.hint(left), self.hint(right))
        if isinstance(left, Dim) or isinstance(right, Dim):
            self._rely(Guard(relation, left, right, holds))
        return holds

    def _rely(self, guard: Guard) -> None:
        if guard not in self.guards:
            assert not self.final, f"{guard.text()} is decided of a graph that is final"
            self.guards[guard] = None

    def equal(self, left: Size, right: Size) -> bool:
        """Decide left == right; a guard unless it is so for every value."""
        if left == right:
            return True
        if isinstance(left, int) and isinstance(right, int):
            return False
        for one, other in ((left, right), (right, left)):
            # a named dim is never 0 or 1
            if one in (0, 1) and isinstance(other, Dim) and is_variable(other):
                return False
        equal = self._decide("eq", left, right)
        if equal and not self.final and 1 in (left, right):
            # what is 1 is shared by all rows of what it meets, and is to be seen to be 1
            for side in (left, right):
                for name in side.variables() if isinstance(side, Dim) else ():
                    self.specialise(Dim.var(name))
        return equal

    def at_most(self, left: Size, right: Size) -> bool:
        """Decide left <= right."""
        if isinstance(left, int) and isinstance(right, Dim) and left <= 2 and is_variable(right):
            return True
        if isinstance(right, int) and right < 2 and isinstance(left, Dim) and is_variable(left):
            return False
        return self._decide("le", left, right)

    def not_negative(self, value: Size) -> bool:
        """Decide 0 <= value; a guard unless it is plainly so."""
        value = unwrap(value)
        if isinstance(value, int):
            return value >= 0
        return least(value) >= 0 or self.at_most(0, value)

    def divides(self, divisor: Size, value: Size) -> bool:
        """Decide whether `divisor` divides `value`."""
        if mod(value, divisor) == 0:
            return True
        return self._decide("divides", divisor, value)

    def specialise(self, value: Size) -> int:
        """The size as a plain int, kept true by an equality guard."""
        hint = self.hint(value)
        if isinstance(value, Dim):
            self._rely(Guard("eq", value, hint, True))
        return hint


def is_variable(value: Dim) -> bool:
    return (
        len(value.terms) == 1
        and value.terms[0][1] == 1
        and len(value.terms[0][0]) == 1
        and value.terms[0][0][0][0].kind == "var"
        and value.terms[0][0][0][1] == 1
    )


def ceil_div(a: Size, b: Size) -> Size:
    """Division rounded up."""
    if isinstance(a, int) and isinstance(b, int):
        return math.ceil(a / b) if b == 0 else -(-a // b)
    return floordiv(a + b - 1, b)
