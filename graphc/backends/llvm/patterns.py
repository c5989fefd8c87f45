"""Operators that are quicker together than one by one: erf(x) + 1 in float32, as gelu has it."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import TypeGuard

from graphc.ir import dtypes
from graphc.ir.kernel import Apply, Let, Literal, Loop, Scalar, Stmt, Var, walk
from graphc.ir.record import replaced

ERF_PLUS_ONE = "erf_plus_one"  # the method of VectorMath


def erf_plus_one(scalar: Scalar) -> Scalar | None:
    """The x of erf(x) + 1, written as one expression."""
    function = _plus_one(scalar)
    return function.args[0] if function is not None and _is_erf(function) else None


def joined(body: Sequence[Stmt]) -> tuple[Stmt, ...]:
    """Statements in which erf(x) + 1 is one expression wherever 1 is added to all uses of a Let
    erf(x), by Lets beside it."""
    found = list[Stmt]()
    sums = dict[str, Scalar]()  # the erf that waits to be part of them
    for place, stmt in enumerate(body):
        if isinstance(stmt, Loop):
            inside = joined(stmt.body)
            same = len(inside) == len(stmt.body) and all(map(operator.is_, inside, stmt.body))
            found.append(stmt if same else replaced(stmt, body=inside))
        elif isinstance(stmt, Let) and _is_erf(stmt.value):
            if _only_in_sums(stmt.name, body[place + 1 :]):
                    sums[stmt.name] = stmt.value
            else:
                found.append(stmt)
        elif isinstance(stmt, Let) and (name := _summed(stmt.value)) in sums:
            erf_and_one = (sums[name], Literal(1.0, dtypes.f32))
            found.append(Let(stmt.name, replaced(stmt.value, args=erf_and_one)))
        else:
            found.append(stmt)
    return tuple(found)


def _is_erf(scalar: Scalar) -> TypeGuard[Apply]:
    return isinstance(scalar, Apply) and scalar.op == "erf" and scalar.dtype is dtypes.f32


def _plus_one(scalar: Scalar) -> Scalar | None:
    """What 1 is added to."""
    if not isinstance(scalar, Apply) or scalar.op != "add" or scalar.dtype is not dtypes.f32:
        return None
    x, one = scalar.args if isinstance(scalar.args[1], Literal) else reversed(scalar.args)
    return x if isinstance(one, Literal) and one.value == 1 else None


def _summed(scalar: Scalar) -> str:
    """The name of what 1 is added to."""
    x = _plus_one(scalar)
    return x.name if isinstance(x, Var) else ""


def _only_in_sums(name: str, rest: Sequence[Stmt]) -> bool:
    """Whether all that is made of a name is a Let name + 1 among these statements themselves."""
    others = [s for s in rest if not (isinstance(s, Let) and _summed(s.value) == name)]
    return len(others) < len(rest) and not any(
        isinstance(part, Var) and part.name == name for part in walk.parts(walk.roots(others))
    )
