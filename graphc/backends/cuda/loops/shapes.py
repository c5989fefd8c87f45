"""What a nest allows: scalars that no iteration of the parallel loop changes, and sums over serial
loops that lanes keep to themselves until the last."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeGuard

from graphc.ir import op
from graphc.ir.dim import Dim, Size
from graphc.ir.kernel import (
    Apply,
    Carry,
    IndexValue,
    Let,
    Literal,
    Load,
    Local,
    Loop,
    Scalar,
    Stmt,
    Store,
    Var,
    walk,
)
from graphc.ir.kernel.combine import STORES, identity


def invariants(body: Sequence[Stmt]) -> tuple[Let, ...]:
    """The Lets that a stage's parallel loop begins with and that are the same in all of its
    iterations. There are none where the stage has more than Lets and that loop."""
    rest = [stmt for stmt in body if not isinstance(stmt, Let)]
    loop = rest[0] if len(rest) == 1 else None
    if not isinstance(loop, Loop) or loop.kind != "parallel":
        return ()
    stored = {stmt.buffer for stmt in walk.statements(body) if isinstance(stmt, Store)}
    varying = {loop.var}
    found = []
    for stmt in loop.body:
        if isinstance(stmt, Local):
            continue
        if not isinstance(stmt, Let):
            break
        if _reads(stmt.value, stored) or names((stmt.value,)) & varying:
            varying.add(stmt.name)
        else:
            found.append(stmt)
    return tuple(found)


def is_dear(body: Sequence[Stmt]) -> bool:
    """Whether what each block of a stage computes first takes so long that there should be few."""
    lets = [stmt for stmt in body if isinstance(stmt, Let)]
    return bool(dear_lets((*lets, *invariants(body))))


def dear_lets(lets: Sequence[Let]) -> tuple[Let, ...]:
    """Those that take long, and those that are made of them."""
    found: dict[str, Let] = {}
    for let in lets:
        parts = list(walk.parts((let.value,)))
        costs = [op.REGISTRY[s.op].cost or 0 for s in parts if _is_operator(s)]
        if max(costs, default=0) >= op.FUNCTION or names((let.value,)) & found.keys():
            found[let.name] = let
    return tuple(found.values())


def read_by_others(body: Sequence[Stmt], lets: Sequence[Let]) -> frozenset[str]:
    """What is read in statements, but for these."""
    own = {id(let) for let in lets}
    scalars = [scalar for stmt, scalar in walk.evaluated(body) if id(stmt) not in own]
    return names(scalars) | _in_indices(body)


def _in_indices(body: Sequence[Stmt]) -> frozenset[str]:
    """The names that places of stores, and extents, are made of."""
    found: set[str] = set()
    for stmt in walk.statements(body):
        if isinstance(stmt, Store):
            found |= variables(stmt.index)
        elif isinstance(stmt, Loop):
            found |= variables(stmt.extent)
    return frozenset(found)


def _is_operator(scalar: Scalar) -> TypeGuard[Apply]:
    return isinstance(scalar, Apply) and scalar.op != "fma"


def _reads(root: Scalar, buffers: set[str]) -> bool:
    return any(isinstance(part, Load) and part.buffer in buffers for part in walk.parts((root,)))


def names(roots: Sequence[Scalar]) -> frozenset[str]:
    """What is read to compute scalars, integers in indices, too."""
    found: set[str] = set()
    for part in walk.parts(roots):
        if isinstance(part, Var):
            found.add(part.name)
        elif isinstance(part, (Load, IndexValue)):
            found |= variables(part.index)
    return frozenset(found)


def variables(index: Size) -> frozenset[str]:
    """Those of an index."""
    return index.variables() if isinstance(index, Dim) else frozenset()


def deferred(loop: Loop) -> tuple[Loop, ...]:
    """A serial loop over a reduction of lanes, whose results it combines alike: itself, serial
    loops inside, and the vector loop. Such lanes may be reduced once, behind it. Else nothing."""
    inside = [stmt for stmt in loop.body if isinstance(stmt, Loop)]
    if loop.kind != "serial" or not loop.carries or len(inside) != 1:
        return ()
    (inner,) = inside
    if len(inner.carries) != len(loop.carries):
        return ()
    own = {carry.name for carry in (*loop.carries, *inner.carries)}
    for carry, part in zip(loop.carries, inner.carries, strict=True):
        alike = carry.combine == part.combine and carry.combine in (*STORES, "or", "and")
        if not alike or carry.next != Var(part.name, part.dtype) or not _is_none(part):
            return ()
    if all_names(loop.body) & own:
        return ()
    if inner.kind == "vector":
        return loop, inner
    rest = deferred(inner)
    return (loop, *rest) if rest else ()


def _is_none(carry: Carry) -> bool:
    """Whether a carry starts from what changes nothing."""
    start = carry.init
    return isinstance(start, Literal) and start.value == identity(carry.combine, carry.dtype)


def all_names(body: Sequence[Stmt]) -> frozenset[str]:
    """What is read in statements."""
    return names([scalar for _, scalar in walk.evaluated(body)]) | _in_indices(body)
