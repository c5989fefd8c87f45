"""How far apart the places of adjacent lanes are."""

from __future__ import annotations

from graphc.ir.dim import Atom, Dim, Size, substitute, unwrap


def step(index: Size, var: str, width: int) -> int | None:
    """How far apart the places of adjacent lanes are, within a pack of `width` lanes that begins at
    a multiple of it; None where that is not the same all along."""
    if isinstance(index, int) or var not in index.variables():
        return 0
    total = 0
    for monomial, coefficient in index.terms:
        varying = [(atom, power) for atom, power in monomial if _has(atom, var)]
        if not varying:
            continue
        found = _atom_step(varying[0][0], var, width)
        if found is None or (found and (len(monomial) > 1 or varying[0][1] > 1)):
            return None
        if len(varying) > 1 and any(_atom_step(atom, var, width) != 0 for atom, _ in varying):
            return None
        total += coefficient * found
    return total


def _has(atom: Atom, var: str) -> bool:
    if atom.kind == "var":
        return atom.name == var
    return any(var in arg.variables() for arg in atom.args)


def _atom_step(atom: Atom, var: str, width: int) -> int | None:
    if atom.kind == "var":
        return 1
    first, second = map(unwrap, atom.args)
    by = step(first, var, width)
    if by is None or step(second, var, width) != 0:
        return None
    if by == 0:
        return 0
    if by < 0 or atom.kind not in ("floordiv", "mod"):
        return None
    reach = by * width  # a pack stays between two multiples of it
    if not (divides(reach, second) and divides(reach, pack_start(first, var, width))):
        return None
    return by if atom.kind == "mod" else 0


def pack_start(index: Size, var: str, width: int) -> Size:
    """Of a pack's first lane."""
    return unwrap(substitute(index, {var: width * Dim.var(var)}))


def divides(number: int, index: Size) -> bool:
    """Whether an index is a multiple of a number, whatever its variables are."""
    if isinstance(index, int):
        return index % number == 0
    return all(
        coefficient % number == 0 or any(_divides_atom(number, atom) for atom, _ in monomial)
        for monomial, coefficient in index.terms
    )


def _divides_atom(number: int, atom: Atom) -> bool:
    whole = atom.kind in ("min", "max", "mod")
    return whole and all(divides(number, unwrap(a)) for a in atom.args)
