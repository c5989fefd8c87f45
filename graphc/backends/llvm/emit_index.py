"""Index expressions: `Dim` polynomials as i64 arithmetic, split by what they depend on.

In a vector loop an index is base + stride * lane + general: the base is one scalar, the stride a
constant, and `general` a vector of offsets where lanes differ in another way (a gather).
"""

from __future__ import annotations

from typing import NamedTuple

from graphc.backends.llvm.emit_context import Context, Index
from graphc.backends.llvm.values import lane_numbers
from graphc.ir.dim import Atom, Dim, Monomial, Size

# The bound of a non-negative variable of unknown range: its arithmetic needs i64.
UNKNOWN = 1 << 31


class Part(NamedTuple):
    """A uniform summand of an index and the level it belongs to."""

    level: int
    value: Index


class Affine(NamedTuple):
    """base (the sum of `parts` and `constant`) + stride * lane + general."""

    parts: tuple[Part, ...]
    constant: int
    stride: int
    general: str | None  # a vector of `general_type` integers
    general_type: str
    level: int

    @property
    def uniform(self) -> bool:
        """All lanes have one index."""
        return self.stride == 0 and self.general is None


class Indices(Context):
    """Emits index arithmetic."""

    # Uniform expressions

    def index(self, size: Size) -> Index:
        """The value of an expression that is the same in all lanes."""
        return self.index_part(size).value

    def index_part(self, size: Size) -> Part:
        """The same, with its level."""
        if isinstance(size, int):
            return Part(0, size)
        return self._sum([self._term(m, c) for m, c in size.terms])

    def _sum(self, parts: list[Part]) -> Part:
        """Adds summands outermost first, so that partial sums are hoisted and shared."""
        known = [p for p in parts if isinstance(p.value, int)]
        constant = sum(p.value for p in known if isinstance(p.value, int))
        level = max((p.level for p in known), default=0)
        total: Part | None = None
        for part in sorted((p for p in parts if isinstance(p.value, str)), key=lambda p: p.level):
            total = part if total is None else self._arithmetic("add", total, part)
        if total is None:
            return Part(level, constant)
        return self._arithmetic("add", total, Part(level, constant)) if constant else total

    def _arithmetic(self, op: str, a: Part, b: Part) -> Part:
        """fn.add, fn.mul, fn.floordiv, fn.mod, fn.smin or fn.smax, once at its level."""
        method = getattr(self.fn, op)
        x, y = a.value, b.value
        level = max(a.level, b.level)
        if isinstance(x, int) and isinstance(y, int):
            return Part(level, method(x, y))
        if op in ("add", "mul") and isinstance(x, int):
            x, y = y, x
        if (op == "mul" and y == 1) or (op == "add" and y == 0):
            return Part(level, x)
        text = self.compute(level, (op, x, y), lambda: str(method(x, y)))
        return Part(level, text if text.startswith("%") else int(text))

    def _term(self, monomial: Monomial, coefficient: int) -> Part:
        product: Part | None = None
        for atom, power in monomial:
            factor = self._atom(atom)
            for _ in range(power):
                product = factor if product is None else self._arithmetic("mul", product, factor)
        if product is None:
            return Part(0, coefficient)
        return self._arithmetic("mul", product, Part(0, coefficient))

    def _atom(self, atom: Atom) -> Part:
        if atom.kind == "var":
            value = self.lookup(atom.name)
            text = value.text
            return Part(value.level, text if text.startswith("%") else int(text))
        a, b = (self.index_part(_unwrapped(arg)) for arg in atom.args)
        name = {"floordiv": "floordiv", "mod": "mod", "min": "smin", "max": "smax"}[atom.kind]
        if name in ("floordiv", "mod") and isinstance(b.value, int) and b.value > 0:
            return self._divide(name, atom, a, b)
        return self._arithmetic(name, a, b)

    def _divide(self, name: str, atom: Atom, a: Part, b: Part) -> Part:
        """Division of what cannot be negative needs no correction of its rounding."""
        divisor, value = b.value, a.value
        assert isinstance(divisor, int)
        if isinstance(value, str) and divisor & (divisor - 1) and self._non_negative(atom.args[0]):
            op = "udiv" if name == "floordiv" else "urem"
            key = (op, value, divisor)
            text = self.compute(a.level, key, lambda: self.fn.let(f"{op} i64 {value}, {divisor}"))
            return Part(a.level, text)
        return self._arithmetic(name, a, b)

    def _non_negative(self, size: Size) -> bool:
        """Sums of non-negative multiples of what is non-negative (loop variables, dims, ...)."""
        if isinstance(size, int):
            return size >= 0
        return all(c >= 0 and all(self._atom_non_negative(a) for a, _ in m) for m, c in size.terms)

    def _atom_non_negative(self, atom: Atom) -> bool:
        if atom.kind == "var":
            return atom.name in self.upper
        if atom.kind == "max":
            return any(self._non_negative(arg) for arg in atom.args)
        return all(self._non_negative(arg) for arg in atom.args)

    # Lanes

    def varies(self, size: Size) -> bool:
        """Does the expression differ between lanes."""
        if self.lanes == 1 or isinstance(size, int):
            return False
        return any(self._atom_varies(a) for m, _ in size.terms for a, _ in m)

    def _atom_varies(self, atom: Atom) -> bool:
        if atom.kind == "var":
            return atom.name == self.vector_var or self.lookup(atom.name).lanes > 1
        return any(self.varies(arg) for arg in atom.args)

    def affine(self, size: Size) -> Affine:
        """An index as base, stride and general part."""
        if isinstance(size, int):
            return Affine((), size, 0, None, "", 0)
        parts: list[Part] = []
        constant, stride, level = 0, 0, 0
        rest: list[tuple[Monomial, int]] = []
        for monomial, coefficient in size.terms:
            if not monomial:
                constant += coefficient
                continue
            lane = self._lane_term(monomial)
            if lane is None:
                rest.append((monomial, coefficient))
                continue
            part = self._arithmetic("mul", lane[0], Part(0, coefficient))
            if isinstance(part.value, int):
                constant += part.value
                level = max(level, part.level)  # of a vector whose place is known, that alone
            else:
                parts.append(part)
            stride += lane[1] * coefficient
        general, kind = None, ""
        if rest:
            offsets = Dim(tuple(rest))
            kind = "i32" if self._magnitude(offsets) < UNKNOWN else "i64"
            general, spread = self._spread(offsets, kind)
            level = max(level, spread)
        return Affine(tuple(parts), constant, stride, general, kind, level)

    def _lane_term(self, monomial: Monomial) -> tuple[Part, int] | None:
        """A term as (value in lane 0, increment per lane), or None if it is not that simple."""
        varying = [a for a, _ in monomial if self._atom_varies(a)] if self.lanes > 1 else []
        if not varying:
            return self._term(monomial, 1), 0
        if len(monomial) > 1 or monomial[0][1] > 1:
            return None
        atom = varying[0]
        if atom.kind == "var":
            return (self._atom(atom), 1) if atom.name == self.vector_var else None
        if atom.kind in ("floordiv", "mod"):
            return self._aligned_division(atom)
        return None

    def _aligned_division(self, atom: Atom) -> tuple[Part, int] | None:
        """a // d and a % d where no vector straddles a multiple of d.

        Vectors start at multiples of `lanes`, so it is enough that stride * lanes divides d and
        every other term of a.
        """
        a, divisor = atom.args[0], _unwrapped(atom.args[1])
        stride = self._plain_stride(a)
        if not isinstance(divisor, int) or stride <= 0 or not self.aligned:
            return None
        unit = stride * self.lanes
        if divisor % unit or not self._starts_at_multiple(a, unit):
            return None
        start = self.index_part(a)
        divided = self._divide(atom.kind, atom, start, Part(0, divisor))
        return divided, 0 if atom.kind == "floordiv" else stride

    def _plain_stride(self, size: Dim) -> int:
        """The coefficient of the vector variable if nothing else in the expression varies."""
        stride = 0
        for monomial, coefficient in size.terms:
            if not any(self._atom_varies(a) for a, _ in monomial):
                continue
            atom, power = monomial[0]
            if len(monomial) > 1 or power > 1 or atom.name != self.vector_var:
                return 0
            stride = coefficient
        return stride

    def _starts_at_multiple(self, size: Dim, unit: int) -> bool:
        return all(
            c % unit == 0 or (len(m) == 1 and m[0][0].name == self.vector_var)
            for m, c in size.terms
        )

    # General offsets

    def _magnitude(self, size: Size) -> int:
        """A bound on every intermediate value, or 2^31 where none is known."""
        if isinstance(size, int):
            return abs(size)
        total = 0
        for monomial, coefficient in size.terms:
            product = abs(coefficient)
            for atom, power in monomial:
                product *= self._atom_magnitude(atom) ** power
            total += product
        return min(total, UNKNOWN)

    def _atom_magnitude(self, atom: Atom) -> int:
        if atom.kind == "var":
            return self.upper.get(atom.name, UNKNOWN)
        bounds = [self._magnitude(arg) for arg in atom.args]
        if max(bounds) >= UNKNOWN or not self._atom_non_negative(atom):
            return UNKNOWN
        return max(bounds)

    def _spread(self, size: Size, kind: str) -> tuple[str, int]:
        """An expression in every lane, as a vector of i32 or i64, and its level."""
        if isinstance(size, int):
            return f"splat ({kind} {size})", 0
        total: tuple[str, int] | None = None
        for monomial, coefficient in size.terms:
            term: tuple[str, int] | None = None
            for atom, power in monomial:
                factor = self._vector_atom(atom, kind)
                for _ in range(power):
                    term = factor if term is None else self._lanewise("mul", kind, term, factor)
            scale = (f"splat ({kind} {coefficient})", 0)
            if term is None:
                term = scale
            elif coefficient != 1:
                term = self._lanewise("mul", kind, term, scale)
            total = term if total is None else self._lanewise("add", kind, total, term)
        assert total is not None
        return total

    def _lanewise(
        self, op: str, kind: str, a: tuple[str, int], b: tuple[str, int]
    ) -> tuple[str, int]:
        level = max(a[1], b[1])
        text = f"{op} <{self.lanes} x {kind}> {a[0]}, {b[0]}"
        return self.compute(level, (text,), lambda: self.fn.let(text)), level

    def _vector_atom(self, atom: Atom, kind: str) -> tuple[str, int]:
        if atom.kind == "var":
            return self._vector_variable(atom.name, kind)
        a, b = (self._spread(_unwrapped(arg), kind) for arg in atom.args)
        if atom.kind in ("floordiv", "mod"):
            # i32 is only chosen where nothing is negative; what is not negative in i64 may be so
            # in masked-off lanes, and only must not trap there
            op = {"floordiv": "div", "mod": "rem"}[atom.kind]
            if kind == "i32":
                return self._lanewise("u" + op, kind, a, b)
            truncated = self._lanewise("s" + op, kind, a, b)
            if self._non_negative(atom.args[0]):
                return truncated
            return self._floored(atom.kind, truncated, a, b)
        name = f"@llvm.s{atom.kind}.v{self.lanes}{kind}"
        vector = f"<{self.lanes} x {kind}>"
        self.module.declare(f"declare {vector} {name}({vector}, {vector})")
        level = max(a[1], b[1])
        text = f"call {vector} {name}({vector} {a[0]}, {vector} {b[0]})"
        return self.compute(level, (text,), lambda: self.fn.let(text)), level

    def _floored(
        self, kind: str, truncated: tuple[str, int], a: tuple[str, int], b: tuple[str, int]
    ) -> tuple[str, int]:
        """a // b or a % b of i64 lanes from the result rounded toward 0; b is positive."""
        rest = truncated if kind == "mod" else self._lanewise("srem", "i64", a, b)
        signs = self._lanewise("ashr", "i64", rest, ("splat (i64 63)", 0))  # -1 where rest < 0
        if kind == "floordiv":
            return self._lanewise("add", "i64", truncated, signs)
        return self._lanewise("add", "i64", rest, self._lanewise("and", "i64", signs, b))

    def _vector_variable(self, name: str, kind: str) -> tuple[str, int]:
        value = self.lookup(name)
        wide = f"<{self.lanes} x i64>"
        if value.lanes > 1:
            if kind == "i64":
                return value.text, value.level
            text = f"trunc {wide} {value.text} to <{self.lanes} x i32>"
            return self.compute(value.level, (text,), lambda: self.fn.let(text)), value.level
        scalar = value.text
        if kind == "i32" and scalar.startswith("%"):
            narrow = f"trunc i64 {scalar} to i32"
            scalar = self.compute(value.level, (narrow,), lambda: self.fn.let(narrow))
        splat = self.splat_text(scalar, kind, 1, self.lanes, value.level), value.level
        if name != self.vector_var:
            return splat
        return self._lanewise("add", kind, splat, (lane_numbers(self.lanes, kind), 0))

    def _unknown(self, text: str, level: int) -> str:
        """An i64 that the code generator takes for unknown, though it is a constant.

        LLVM 22 folds some expressions of whole constant vectors wrongly: 0 / where(x == 0, 1, y)
        becomes 0 / y, which is NaN where y is 0 ("angles of constants" in the parity cases).
        """
        if text.startswith("%"):
            return text
        hidden = f'call i64 asm "", "=r,0"(i64 {text})'
        return self.compute(level, (hidden,), lambda: self.fn.let(hidden))

    def index_lanes(self, size: Size) -> tuple[str, int, int]:
        """An index expression as i64 values: (text, lanes, level)."""
        if not self.varies(size):
            part = self.index_part(size)
            return str(part.value), 1, part.level
        found = self.affine(size)
        base = self._sum([*found.parts, Part(found.level, found.constant)])
        start = self._unknown(str(base.value), base.level)
        splat = self.splat_text(start, "i64", 1, self.lanes, base.level)
        total = splat, base.level
        if found.stride:
            steps = lane_numbers(self.lanes, "i64", found.stride)
            total = self._lanewise("add", "i64", total, (steps, self.vector_level))
        if found.general is not None:
            general, level = found.general, found.level
            if found.general_type == "i32":
                text = f"sext <{self.lanes} x i32> {general} to <{self.lanes} x i64>"
                general = self.compute(level, (text,), lambda: self.fn.let(text))
            total = self._lanewise("add", "i64", total, (general, level))
        return total[0], self.lanes, max(total[1], self.vector_level)


def _unwrapped(size: Size) -> Size:
    """An argument of an atom: constants are wrapped Dims there."""
    if isinstance(size, Dim):
        if not size.terms:
            return 0
        if len(size.terms) == 1 and not size.terms[0][0]:
            return size.terms[0][1]
    return size
