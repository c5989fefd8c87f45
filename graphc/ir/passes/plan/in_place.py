"""Whether a kernel may write a result over one of its inputs, and the kernel that does."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import pairwise

from ...dim import Dim, Size, unwrap
from ...kernel import Attention, Kernel, Load, Loop, Param, Scalar, Stmt, Store, walk
from ...record import replaced


def safe_in_place(kernel: Kernel, source: str, result: str) -> bool:
    """True if `source` is only read at the element where `result` is about to be stored: each
    load has the index of the next store, and none comes after the last. No element is stored
    twice."""
    order = [item for body in walk.bodies(kernel) for item in _in_order(body)]
    stores = [(at, s) for at, s in enumerate(order) if isinstance(s, Store) and s.buffer == result]
    if not stores or any(store.mask is not None or store.combine for _, store in stores):
        return False
    if len(stores) > 1 and not _apart(kernel, result):
        return False
    t = kernel.template
    if t is not None and any(source == operand.buffer for operand in t.operands):
        return False
    if len(kernel.stages) > 1:
        return False
    loads = [(i, s) for i, s in enumerate(order) if isinstance(s, Load) and s.buffer == source]
    return all(
        next((s.index for at, s in stores if i < at), None) == load.index for i, load in loads
    )


def _apart(kernel: Kernel, result: str) -> bool:
    """Whether the stores into a buffer go along stretches of it beside each other."""
    found = [item for body in walk.bodies(kernel) for item in _stores(body, result, None)]
    spans: list[tuple[int, int]] = []
    base: Size | None = None
    for loop, store in found:
        if loop is None or not isinstance(loop.extent, int):
            return False
        start = unwrap(store.index - Dim.var(loop.var))
        base = start if base is None else base
        shift = unwrap(start - base)
        if not isinstance(shift, int):
            return False
        spans.append((shift, shift + loop.extent))
    return all(a[1] <= b[0] for a, b in pairwise(sorted(spans)))


def _stores(
    body: Iterable[Stmt], result: str, inside: Loop | None
) -> Iterator[tuple[Loop | None, Store]]:
    """The stores into a buffer, each with the loop right around it."""
    for stmt in body:
        if isinstance(stmt, Store) and stmt.buffer == result:
            yield inside, stmt
        elif isinstance(stmt, Loop):
            yield from _stores(stmt.body, result, stmt)


def _in_order(body: Iterable[Stmt]) -> Iterator[Load | Store]:
    """Every load and store of one iteration, in program order: a store after what it stores."""
    for stmt in body:
        for scalar in walk.parts(walk.scalars(stmt)):
            if isinstance(scalar, Load):
                yield scalar
        if isinstance(stmt, Store):
            yield stmt
        elif isinstance(stmt, Loop):
            yield from _in_order(stmt.body)
            for scalar in walk.parts(carry.next for carry in stmt.carries):
                if isinstance(scalar, Load):
                    yield scalar


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
            params.append(replaced(p, access="inout"))
        elif p.name not in names:
            params.append(p)

    def renamed(scalar: Scalar) -> Scalar:
        if isinstance(scalar, Load) and scalar.buffer in names:
            return replaced(scalar, buffer=names[scalar.buffer])
        return scalar

    stages = tuple(walk.rewrite(stage, renamed) for stage in kernel.stages)
    template = kernel.template
    if template is not None and not isinstance(template, Attention):
        template = replaced(template, epilogue=walk.rewrite(template.epilogue, renamed))
    result = replaced(kernel, params=tuple(params), stages=stages, template=template)
    _MERGED[key] = (kernel, result)
    return result
