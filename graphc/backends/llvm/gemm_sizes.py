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


def strides_of(index: Size, names: tuple[str, ...]) -> tuple[Size, ...] | None:
    """(offset where all `names` are 0, the stride of each), or None if it is not affine in them."""
    origin = substitute(index, dict.fromkeys(names, 0))
    result, total = [origin], origin
    for name in names:
        step = substitute(index, {other: int(other == name) for other in names})
        result.append(unwrap(step - origin))
        total = total + result[-1] * Dim.var(name)
    return tuple(result) if total == index else None


def base_and_strides(operand: Operand, first: str, second: str) -> tuple[Size, Size, Size]:
    """An operand's offset at (0, 0) and its strides along two of m, n and k.

    Raises ValueError if the index is not affine in them.
    """
    strides = strides_of(operand.index, (first, second))
    if strides is None:
        raise ValueError(f"index {operand.index} is not affine in {first} and {second}")
    return strides[0], strides[1], strides[2]
