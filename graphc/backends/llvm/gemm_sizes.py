"""Sizes and operand offsets of a contraction as i64 values at run time."""

from collections.abc import Mapping

from graphc.backends.llvm.text import Function, Value
from graphc.ir.dim import Atom, Dim, Size, substitute, unwrap
from graphc.ir.kernel import Operand


def emit_size(f: Function, size: Size, names: Mapping[str, Value]) -> Value:
    """The value of an expression over `names` (named dims, b)."""
    if isinstance(size, int):
        return size
    total: Value = 0
    for monomial, coefficient in size.terms:
        term: Value = coefficient
        for atom, power in monomial:
            factor = _emit_atom(f, atom, names)
            for _ in range(power):
                term = f.mul(term, factor)
        total = f.add(total, term)
    return total


def _emit_atom(f: Function, atom: Atom, names: Mapping[str, Value]) -> Value:
    if atom.kind == "var":
        return names[atom.name]
    a, b = (emit_size(f, unwrap(arg), names) for arg in atom.args)
    if atom.kind == "floordiv":
        return f.floordiv(a, b)
    if atom.kind == "mod":
        return f.mod(a, b)
    return f.smin(a, b) if atom.kind == "min" else f.smax(a, b)


def base_and_strides(operand: Operand, first: str, second: str) -> tuple[Size, Size, Size]:
    """An operand's offset at (0, 0) and its strides along two of m, n and k.

    Raises ValueError if the index is not affine in them.
    """
    origin = substitute(operand.index, {first: 0, second: 0})
    strides = []
    for name, other in ((first, second), (second, first)):
        step = substitute(operand.index, {name: 1, other: 0})
        strides.append(unwrap(step - origin))
    expected = origin + strides[0] * Dim.var(first) + strides[1] * Dim.var(second)
    if expected != operand.index:
        raise ValueError(f"index {operand.index} is not affine in {first} and {second}")
    return origin, strides[0], strides[1]
