"""Sizes of a contraction as i64 values at run time."""

from collections.abc import Mapping

from graphc.backends.llvm.text import Function, Value
from graphc.ir.dim import Atom, Size, unwrap


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
