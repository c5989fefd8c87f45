"""Whether a kernel may write a result over one of its inputs, and the kernel that does."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from ...kernel import Apply, Carry, Check, Kernel, Let, Load, Loop, Param, Scalar, Stmt, Store


def safe_in_place(kernel: Kernel, source: str, result: str) -> bool:
    """True if `source` is only read at the element where `result` is about to be stored: each
    load has the store's index, and none comes after it."""
    stores = [
        (at, s) for at, s in _accesses(kernel) if isinstance(s, Store) and s.buffer == result
    ]
    if len(stores) != 1:
        return False
    at, store = stores[0]
    assert isinstance(store, Store)
    if store.mask is not None or store.combine:
        return False
    c = kernel.contraction
    if c is not None and source in (c.left.buffer, c.right.buffer):
        return False
    if len(kernel.stages) > 1:
        return False
    loads = [
        (i, s) for i, s in _accesses(kernel) if isinstance(s, Load) and s.buffer == source
    ]
    return all(i < at and s.index == store.index for i, s in loads)


def _accesses(kernel: Kernel) -> Iterator[tuple[int, Load | Store]]:
    """Every load and store, numbered in program order."""
    body: list[Stmt] = [s for stage in kernel.stages for s in stage]
    if kernel.contraction is not None:
        body += kernel.contraction.epilogue
    number = 0
    stack: list[Any] = list(reversed(body))
    while stack:
        item = stack.pop()
        number += 1
        if isinstance(item, Store):
            yield from ((number, load) for load in _loads(item.value))
            yield number + 1, item
            number += 1
        elif isinstance(item, Let):
            yield from ((number, load) for load in _loads(item.value))
        elif isinstance(item, Check):
            yield from ((number, load) for load in (*_loads(item.ok), *_loads(item.value)))
        elif isinstance(item, Carry):
            yield from ((number, load) for load in _loads(item.next))
        elif isinstance(item, Loop):
            stack.extend(item.carries)
            stack.extend(reversed(item.body))


def _loads(value: Scalar) -> list[Load]:
    found: list[Load] = []
    stack: list[Scalar] = [value]
    while stack:
        item = stack.pop()
        if isinstance(item, Load):
            found.append(item)
            stack += [x for x in (item.mask, item.other) if x is not None]
        elif isinstance(item, Apply):
            stack.extend(item.args)
    return found


_MERGED: dict[tuple[int, tuple[tuple[str, str], ...]], tuple[Kernel, Kernel]] = {}


def merged(kernel: Kernel, pairs: tuple[tuple[str, str], ...]) -> Kernel:
    """The kernel with each input `a` of a pair (a, o) replaced by the result buffer `o`, which
    then is read and written."""
    key = (id(kernel), pairs)
    found = _MERGED.get(key)
    if found is not None and found[0] is kernel:
        return found[1]
    if len(_MERGED) > 4096:
        _MERGED.clear()
    names = dict(pairs)
    written = set(names.values())
    params: list[Param] = []
    for p in kernel.params:
        if p.name in written:
            params.append(replace(p, access="inout"))
        elif p.name not in names:
            params.append(p)
    stages = tuple(_renamed(stage, names) for stage in kernel.stages)
    contraction = kernel.contraction
    if contraction is not None:
        contraction = replace(contraction, epilogue=_renamed(contraction.epilogue, names))
    result = replace(kernel, params=tuple(params), stages=stages, contraction=contraction)
    _MERGED[key] = (kernel, result)
    return result


def _renamed(body: tuple[Stmt, ...], names: dict[str, str]) -> tuple[Stmt, ...]:
    return tuple(_statement(stmt, names) for stmt in body)


def _statement(stmt: Stmt, names: dict[str, str]) -> Stmt:
    if isinstance(stmt, Let):
        return Let(stmt.name, _scalar(stmt.value, names))
    if isinstance(stmt, Store):
        return replace(stmt, value=_scalar(stmt.value, names))
    if isinstance(stmt, Loop):
        carries = tuple(replace(c, next=_scalar(c.next, names)) for c in stmt.carries)
        return replace(stmt, body=_renamed(stmt.body, names), carries=carries)
    return stmt


def _scalar(value: Scalar, names: dict[str, str]) -> Scalar:
    if isinstance(value, Load) and value.buffer in names:
        return replace(value, buffer=names[value.buffer])
    if isinstance(value, Apply):
        return replace(value, args=tuple(_scalar(a, names) for a in value.args))
    return value

