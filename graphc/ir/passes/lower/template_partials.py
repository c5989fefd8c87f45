"""Partials of a template that becomes loops: their values go to scratch, and stages behind the
template's own reduce them."""

from __future__ import annotations

from ... import dtypes
from ...dim import Dim, Size, ceil_div, floordiv, minimum, mod, product, unwrap
from ...kernel import (
    Apply,
    Carry,
    IndexValue,
    Kernel,
    Let,
    Literal,
    Load,
    Loop,
    Param,
    Partial,
    Product,
    Scalar,
    Stmt,
    Store,
    SumTemplate,
    Var,
)
from ...machine import Machine
from ...record import replaced


def set_aside(template: SumTemplate) -> tuple[tuple[Stmt, ...], list[Partial]]:
    """The epilogue with a store to scratch for each Partial, and these."""
    partials = [stmt for stmt in template.epilogue if isinstance(stmt, Partial)]
    if not partials:
        return template.epilogue, partials
    b, m, n = (Dim.var(name) for name in "bmn")
    if isinstance(template, Product):
        place = unwrap((b * template.m + m) * template.n + n)
    else:
        place = unwrap((b * template.n + n) * template.m + m)
    names = {stmt: _name(i) for i, stmt in enumerate(partials)}
    return tuple([
        Store(names[stmt], place, stmt.value) if isinstance(stmt, Partial) else stmt
        for stmt in template.epilogue
    ]), partials


def with_partials(
    kernel: Kernel, template: SumTemplate, partials: list[Partial], machine: Machine
) -> Kernel:
    """A template's kernel of loops, and a stage for each Partial."""
    if not partials or template.place is None:
        return kernel
    rows, columns = template.place
    size = unwrap(product((rows, columns)))
    scratch = [
        Param(_name(i), stmt.value.dtype, size, "scratch") for i, stmt in enumerate(partials)
    ]
    stages = [_stage(i, stmt, rows, columns, machine) for i, stmt in enumerate(partials)]
    return replaced(
        kernel, params=(*kernel.params, *scratch), stages=(*kernel.stages, *stages)
    )


def _name(number: int) -> str:
    return f"s{number}"


def _stage(
    number: int, stmt: Partial, rows: Size, columns: Size, machine: Machine
) -> tuple[Stmt, ...]:
    """Each lane goes along the rows of a block in one column."""
    wide, dtype = machine.columns, stmt.value.dtype
    parts = unwrap(ceil_div(columns, wide))
    total = unwrap(product((ceil_div(rows, stmt.rows), parts)))
    p = Dim.var("p")
    block, part = (p, 0) if parts == 1 else (unwrap(floordiv(p, parts)), unwrap(mod(p, parts)))
    column = unwrap(part * wide + Dim.var("lane"))
    extent = minimum(stmt.rows, unwrap(rows - block * stmt.rows))
    value = Load(
        _name(number), unwrap((block * stmt.rows + Dim.var("row")) * columns + column), dtype
    )
    body: list[Stmt] = [_sum("row", extent, "total", value)]
    found: Scalar = Var("total", dtype)
    if stmt.kind != "sum":
        count = Apply("cast", (IndexValue(extent, dtypes.i64),), dtype)
        body.append(Let("mean", Apply("div", (found, count), dtype)))
        found = Var("mean", dtype)
    if stmt.kind == "squares":
        left = Apply("sub", (value, found), dtype)
        body.append(_sum("row", extent, "squares", Apply("mul", (left, left), dtype)))
        found = Var("squares", dtype)
    body.append(Store(stmt.buffer, unwrap(block * columns + column), found))
    lanes = minimum(wide, unwrap(columns - part * wide))
    return (Loop("parallel", "p", total, (Loop("vector", "lane", lanes, tuple(body)),)),)


def _sum(variable: str, extent: Size, name: str, value: Scalar) -> Loop:
    start = Literal(0.0, value.dtype)
    return Loop("serial", variable, extent, (), (Carry(name, value.dtype, start, "add", value),))
