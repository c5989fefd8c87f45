"""What one kernel costs: bytes, floating-point operations, chunks of work. Read off its text."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from graphc.ir import op
from graphc.ir.dim import Dim, Size, ceil_div, product, substitute
from graphc.ir.kernel import (
    Apply,
    Attention,
    Carry,
    Check,
    Kernel,
    Launch,
    Let,
    Load,
    Loop,
    Routine,
    Scalar,
    Stmt,
    Store,
    Template,
    walk,
)
from graphc.ir.machine import Machine
from graphc.ir.types import TensorType

_UNKNOWN = 16  # assumed value of a size that only the data knows
_EXACT = 256  # iterations of a loop with ragged loops inside that are counted one by one


class Cost(NamedTuple):
    """Bytes of the buffers that are read and written (each counted once, and of a loop's no more
    than there are accesses: of a table, what is looked up), floating-point operations (an exp
    counts as one), and chunks that threads may share (1: one thread)."""

    read: int
    written: int
    flops: int
    chunks: int


def launch_cost(step: Launch, dims: Mapping[str, int], machine: Machine) -> Cost:
    """The cost of one kernel call on a machine, for these values of the program's dims."""
    kernel = step.kernel
    env = {
        name: _value(size, dims) for name, size in zip(kernel.dims, step.dims, strict=True)
    }
    loads, stores = Counter[str](), Counter[str]()
    for stage in kernel.stages:
        _count(stage, env, 1, loads, stores)
    read = written = 0
    for param in kernel.params:
        size, item = _value(param.size, env), param.dtype.itemsize
        whole = kernel.template is not None
        if param.access in ("in", "inout"):
            read += item * (size if whole else min(size, loads[param.name]))
        if param.access in ("out", "inout"):
            written += item * (size if whole else min(size, stores[param.name]))
    if kernel.template is not None:
        flops, chunks = _template(kernel.template, env, machine)
    else:
        flops = sum(_block(stage, env) for stage in kernel.stages)
        chunks = max((_chunks(kernel, env)), default=1)
    return Cost(read, written, flops, chunks)


def routine_cost(step: Routine, dims: Mapping[str, int]) -> Cost:
    """The bytes that a routine reads and writes; its work is not known."""
    return Cost(_bytes(step.input_types, dims), _bytes(step.output_types, dims), 0, 1)


def _bytes(types: Iterable[object], dims: Mapping[str, int]) -> int:
    total = 0
    for type_ in types:
        assert isinstance(type_, TensorType)
        total += _value(product(type_.shape), dims) * type_.dtype.itemsize
    return total


def _value(size: Size, env: Mapping[str, int]) -> int:
    """A size; variables that are not known count as _UNKNOWN."""
    if isinstance(size, Dim):
        size = substitute(size, {name: env.get(name, _UNKNOWN) for name in size.variables()})
    assert isinstance(size, int)
    return size


def _chunks(kernel: Kernel, env: Mapping[str, int]) -> list[int]:
    return [
        _value(ceil_div(stmt.extent, stmt.chunk), env)
        for stage in kernel.stages
        for stmt in stage
        if isinstance(stmt, Loop) and stmt.kind == "parallel"
    ]


def _count(
    body: Iterable[Stmt], env: Mapping[str, int], times: int, loads: Counter[str],
    stores: Counter[str],
) -> None:
    """Adds the accesses of so many runs of a body, by buffer."""
    def scalars(stmt: Stmt | Carry, times: int) -> None:
        for part in walk.parts(walk.scalars(stmt)):
            if isinstance(part, Load):
                loads[part.buffer] += times

    for stmt in body:
        scalars(stmt, times)
        if isinstance(stmt, Store):
            stores[stmt.buffer] += times
            loads[stmt.buffer] += times if stmt.combine else 0
        elif isinstance(stmt, Loop):
            extent = max(_value(stmt.extent, env), 0)
            _count(stmt.body, {**env, stmt.var: extent // 2}, times * extent, loads, stores)
            for carry in stmt.carries:
                scalars(carry, times * extent)


def _template(template: Template, env: Mapping[str, int], machine: Machine) -> tuple[int, int]:
    flops = 2 * _value(template.multiplications, env)
    results = _value(product((template.batch, template.m, template.n)), env)
    if isinstance(template, Attention):  # its heads, at least, are shared
        return flops, _value(template.batch, env)
    return flops + results * _block(template.epilogue, env), machine.pieces(flops)


def _block(body: Iterable[Stmt], env: Mapping[str, int]) -> int:
    """Operations of one run of a body."""
    total = 0
    for stmt in body:
        if isinstance(stmt, Loop):
            total += _loop(stmt, env)
        elif isinstance(stmt, Let):
            total += _scalar(stmt.value)
        elif isinstance(stmt, Store):
            total += _scalar(stmt.value) + bool(stmt.combine)
        elif isinstance(stmt, Check):
            total += _scalar(stmt.ok)
    return total


def _loop(loop: Loop, env: Mapping[str, int]) -> int:
    extent = max(_value(loop.extent, env), 0)
    carried = sum(_scalar(c.next) + (c.combine != "set") for c in loop.carries)
    if _mentions(loop.body, loop.var) and extent <= _EXACT:
        inside = sum(_block(loop.body, {**env, loop.var: i}) for i in range(extent))
    else:
        inside = extent * _block(loop.body, {**env, loop.var: extent // 2})
    return inside + extent * carried


def _mentions(body: Iterable[Stmt], var: str) -> bool:
    """Whether the extent of a loop inside depends on an outer loop's variable."""
    return any(
        isinstance(stmt, Loop) and isinstance(stmt.extent, Dim) and var in stmt.extent.variables()
        for stmt in walk.statements(body)
    )


def _scalar(root: Scalar) -> int:
    """Floating-point operations of a scalar expression."""
    return sum(
        _operations(part.op) for part in walk.parts((root,))
        if isinstance(part, Apply) and part.dtype.is_float
    )


def _operations(name: str) -> int:
    if name == "fma":  # of kernels alone: it has no record
        return 2
    return 0 if op.get(name).selects else 1
