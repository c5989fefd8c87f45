"""A template as loops: what a kernel becomes for a backend that has no code for its template.

Rows (b, m) and blocks of columns n are the parallel iterations; each lane of a block goes along
the terms of its own sum, and then through the epilogue.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence

from ... import dtypes
from ...dim import Dim, Size, ceil_div, floordiv, minimum, mod, product, unwrap
from ...dtypes import DType
from ...kernel import (
    Apply,
    Attention,
    Carry,
    IndexValue,
    Kernel,
    Let,
    Literal,
    Load,
    Loop,
    Operand,
    Scalar,
    Stmt,
    SumTemplate,
    Var,
)
from ...machine import Machine
from ...record import replaced
from .template_partials import set_aside, with_partials


@functools.lru_cache(1024)  # equal kernels give the identical one
def as_loops(kernel: Kernel, machine: Machine) -> Kernel:
    """The kernel, its template replaced by loops: one stage, and one for each Partial."""
    template = kernel.template
    if template is None or isinstance(template, Attention):
        raise ValueError(f"kernel {kernel.name} is not made of sums")
    columns = machine.columns
    rows, blocks = unwrap(template.batch * template.m), ceil_div(template.n, columns)
    iterations = unwrap(rows * blocks)
    row, block = _split(Dim.var("p"), iterations, blocks)
    b, m = _split(row, rows, template.m)
    start = unwrap(block * columns)
    lanes = minimum(columns, unwrap(template.n - start))
    epilogue, partials = set_aside(template)
    column = Let("n", _index(unwrap(start + Dim.var("lane"))))
    body: tuple[Stmt, ...] = (
        Let("b", _index(b)), Let("m", _index(m)),
        Loop("vector", "lane", lanes, (column, *_summed(template), *epilogue)),
    )
    kind, chunk = _cut(template, iterations, machine)
    stage = (Loop(kind, "p", iterations, body, (), chunk),)
    made = replaced(kernel, stages=(stage,), template=None)
    return with_partials(made, template, partials, machine)


def _split(flat: Size, total: Size, inner: Size) -> tuple[Size, Size]:
    """(outer, inner) coordinate of a flat position below `total`."""
    if inner == 1:
        return flat, 0
    if inner == total:
        return 0, flat
    return unwrap(floordiv(flat, inner)), unwrap(mod(flat, inner))


def _cut(template: SumTemplate, iterations: Size, machine: Machine) -> tuple[str, int]:
    """The kind of the outermost loop, and iterations per chunk."""
    results = product((template.batch, template.m, template.n))
    work = template.multiplications
    if not (isinstance(iterations, int) and isinstance(results, int) and isinstance(work, int)):
        return "parallel", 1
    cost = 2 * work // max(results, 1)
    if machine.one_worker(results, cost):
        return "serial", 1
    return "parallel", max(1, machine.chunk(results, cost) * iterations // max(results, 1))


def _index(value: Size) -> IndexValue:
    return IndexValue(value, dtypes.i64)


def _summed(template: SumTemplate) -> list[Stmt]:
    """Statements that bind `acc`, the sum for one b, m, n: a loop per axis of the term, each going
    on with the sum of the one around it."""
    term, acc = template.term(), template.acc_dtype
    inside = _inside(term.inside)
    left = _load(template.left, term.left, acc, None if term.padded else inside)
    right = _load(template.right, term.right, acc, inside)
    value: Scalar = Apply("mul", (left, right), acc)
    body: tuple[Stmt, ...] = ()
    combine = "add"
    for depth, (variable, extent) in reversed(list(enumerate(term.axes))):
        name = f"sum{depth}" if depth else "acc"
        first = Var(f"sum{depth - 1}" if depth > 1 else "acc", acc) if depth else Literal(0.0, acc)
        carry = Carry(name, acc, first, combine, value)
        body = (Loop("serial", variable, extent, body, (carry,)),)
        combine, value = "set", Var(name, acc)
    return list(body)


def _load(operand: Operand, index: Size, acc: DType, mask: Scalar | None) -> Scalar:
    zero = None if mask is None else Literal(0.0, operand.dtype)
    load = Load(operand.buffer, index, operand.dtype, mask, zero)
    return load if operand.dtype is acc else Apply("cast", (load,), acc)


def _inside(conditions: Sequence[tuple[Size, Size]]) -> Scalar | None:
    """Whether every position is one of the operand's; None where there is nothing to ask."""
    tests: list[Scalar] = []
    for position, size in conditions:
        tests.append(Apply("ge", (_index(position), _index(0)), dtypes.bool_))
        tests.append(Apply("lt", (_index(position), _index(size)), dtypes.bool_))
    return functools.reduce(_both, tests) if tests else None


def _both(a: Scalar, b: Scalar) -> Scalar:
    return Apply("logical_and", (a, b), dtypes.bool_)
