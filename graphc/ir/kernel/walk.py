"""The one walk over kernels: statements, the scalars in them, and rewriting."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from ..record import replaced
from .nest import Apply, Carry, Check, Kernel, Let, Load, Loop, Partial, Scalar, Stmt, Store


def bodies(kernel: Kernel) -> Iterator[tuple[Stmt, ...]]:
    """The stages of a kernel, or the epilogue of its template."""
    yield from kernel.stages
    if kernel.template is not None:
        yield kernel.template.epilogue


def statements(body: Iterable[Stmt]) -> Iterator[Stmt]:
    """Every statement in the order of the text: a loop, then what is inside it."""
    stack = [iter(body)]
    while stack:
        for stmt in stack[-1]:
            yield stmt
            if isinstance(stmt, Loop):
                stack.append(iter(stmt.body))
                break
        else:
            stack.pop()


def scalars(stmt: Stmt | Carry) -> tuple[Scalar, ...]:
    """The scalars that a statement evaluates itself, in order: for a loop, what its carries start
    from; what they become (Carry.next) belongs to the end of its body."""
    if isinstance(stmt, (Let, Partial)):
        return (stmt.value,)
    if isinstance(stmt, Store):
        return (stmt.value,) if stmt.mask is None else (stmt.value, stmt.mask)
    if isinstance(stmt, Check):
        return (stmt.ok, stmt.value)
    if isinstance(stmt, Loop):
        return tuple(carry.init for carry in stmt.carries)
    if isinstance(stmt, Carry):
        return (stmt.next,)
    return ()


def children(scalar: Scalar) -> tuple[Scalar, ...]:
    """The scalars that a scalar is made of."""
    if isinstance(scalar, Apply):
        return scalar.args
    if isinstance(scalar, Load):
        return tuple(part for part in (scalar.mask, scalar.other) if part is not None)
    return ()


def parts(roots: Iterable[Scalar]) -> Iterator[Scalar]:
    """Every scalar inside `roots` and they themselves; one that is shared comes once."""
    seen: set[int] = set()
    stack = list(roots)
    stack.reverse()
    while stack:
        scalar = stack.pop()
        if id(scalar) not in seen:
            seen.add(id(scalar))
            yield scalar
            stack.extend(reversed(children(scalar)))


def roots(body: Iterable[Stmt]) -> Iterator[Scalar]:
    """The scalars that statements and carries evaluate, without what those are made of."""
    for stmt in statements(body):
        yield from scalars(stmt)
        if isinstance(stmt, Loop):
            for carry in stmt.carries:
                yield from scalars(carry)


def evaluated(body: Iterable[Stmt]) -> Iterator[tuple[Stmt | Carry, Scalar]]:
    """Every scalar with the statement or carry that evaluates it, in the order of evaluation."""
    for stmt in body:
        for scalar in parts(scalars(stmt)):
            yield stmt, scalar
        if isinstance(stmt, Loop):
            yield from evaluated(stmt.body)
            for carry in stmt.carries:
                for scalar in parts(scalars(carry)):
                    yield carry, scalar


def rewrite(
    body: tuple[Stmt, ...], function: Callable[[Scalar], Scalar]
) -> tuple[Stmt, ...]:
    """The statements with `function` applied to every scalar, innermost first."""
    return tuple(_statement(stmt, function) for stmt in body)


def _statement(stmt: Stmt, function: Callable[[Scalar], Scalar]) -> Stmt:
    def new(scalar: Scalar) -> Scalar:
        return rewrite_scalar(scalar, function)

    if isinstance(stmt, Let):
        return Let(stmt.name, new(stmt.value))
    if isinstance(stmt, Store):
        mask = None if stmt.mask is None else new(stmt.mask)
        return replaced(stmt, value=new(stmt.value), mask=mask)
    if isinstance(stmt, Partial):
        return replaced(stmt, value=new(stmt.value))
    if isinstance(stmt, Check):
        return replaced(stmt, ok=new(stmt.ok), value=new(stmt.value))
    if isinstance(stmt, Loop):
        carries = tuple(replaced(c, init=new(c.init), next=new(c.next)) for c in stmt.carries)
        return replaced(stmt, body=rewrite(stmt.body, function), carries=carries)
    return stmt


def rewrite_scalar(scalar: Scalar, function: Callable[[Scalar], Scalar]) -> Scalar:
    """A scalar with `function` applied to all it is made of, and then to itself."""
    if isinstance(scalar, Apply):
        args = tuple(rewrite_scalar(arg, function) for arg in scalar.args)
        if any(new is not old for new, old in zip(args, scalar.args, strict=True)):
            scalar = replaced(scalar, args=args)
    elif isinstance(scalar, Load) and scalar.mask is not None:
        assert scalar.other is not None
        mask, other = (rewrite_scalar(part, function) for part in (scalar.mask, scalar.other))
        if mask is not scalar.mask or other is not scalar.other:
            scalar = replaced(scalar, mask=mask, other=other)
    return function(scalar)
