"""What a function of a template is given: sizes and strides as numbers at run time, so that one
text is for many shapes."""

from __future__ import annotations

from collections.abc import Sequence

from graphc.backends.cuda.scalar import c_type
from graphc.ir.dim import Atom, Dim, Size
from graphc.ir.kernel import Kernel, Operand
from graphc.ir.kernel.templates.operand import strides_of

_FUNCTIONS = {
    "floordiv": "floordiv", "mod": "floormod", "min": "take_min<i64>", "max": "take_max<i64>"
}


class Arguments:
    """See Source.sizes: these, by name, as they are asked for."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self.sizes: list[Size] = []

    def number(self, name: str, size: Size) -> str:
        """The name of an i64 that has this size."""
        self.names.append(name)
        self.sizes.append(size)
        return name

    def index(self, name: str, size: Size, inside: frozenset[str]) -> str:
        """An expression in C over the variables `inside`; what has none of them is a number, also
        where it is 0 or 1: the text follows the form of the index alone."""
        terms = size.terms if isinstance(size, Dim) else (((), size),)
        free: Size = 0
        parts: list[str] = []
        for monomial, coefficient in terms:
            factor: Size = coefficient
            bound: list[str] = []
            for atom, power in monomial:
                if Dim((((((atom, 1),), 1)),)).variables() & inside:
                    bound += [self._atom(name, atom, inside)] * power
                else:
                    factor = factor * _power(atom, power)
            if bound:
                parts.append(" * ".join((self._fresh(name, factor), *bound)))
            else:
                free = free + factor
        return " + ".join((self._fresh(name, free), *parts))

    def _atom(self, name: str, atom: Atom, inside: frozenset[str]) -> str:
        if atom.kind == "var":
            return atom.name
        left, right = (self.index(name, arg, inside) for arg in atom.args)
        return f"{_FUNCTIONS[atom.kind]}({left}, {right})"

    def _fresh(self, name: str, size: Size) -> str:
        return self.number(f"{name}_{len(self.names)}", size)

    def place(self, name: str, operand: Operand, variables: Sequence[str]) -> tuple[str, ...]:
        """(the address of an operand's first element of b, the stride along each variable)."""
        found = strides_of(operand.index, tuple(variables))
        if found is None:
            raise ValueError(f"index {operand.index} is not affine in {', '.join(variables)}")
        base = self.index(name, found[0], frozenset("b"))
        strides = (
            self.number(f"{name}_by_{variable}", stride)
            for variable, stride in zip(variables, found[1:], strict=True)
        )
        return f"{operand.buffer} + ({base})", *strides

    def parameters(self, kernel: Kernel, scratch: bool) -> str:
        """Of a function: see Source."""
        buffers = [
            f"{'const ' * (p.access == 'in')}{c_type(p.dtype)}* {p.name}" for p in kernel.params
        ]
        numbers = [f"i64 {name}" for name in (*kernel.dims, *self.names)]
        memory = ["unsigned char* scratch"] if scratch else []
        return ", ".join((*buffers, *numbers, "i64* status", *memory))


def _power(atom: Atom, power: int) -> Size:
    return Dim((((((atom, power),), 1)),))
