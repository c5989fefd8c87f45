"""Parallel iterations that read neighbouring elements, while their lanes read elements far apart:
squares are loaded along the iterations and transposed in registers, for several iterations at a
time. Lane by lane, a gather would read a line of memory for each element."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from graphc.backends.llvm.emit_context import Hoisted, Index
from graphc.backends.llvm.emit_index import UNKNOWN
from graphc.backends.llvm.emit_loops import Statements
from graphc.backends.llvm.target import Target
from graphc.backends.llvm.text import Function
from graphc.backends.llvm.values import Value, memory_type
from graphc.backends.llvm.vector_plan import plan_vector
from graphc.ir import dtypes
from graphc.ir.dim import Dim, Size, substitute, unwrap
from graphc.ir.kernel import IndexValue, Let, Load, Loop, Stmt, Store, walk
from graphc.ir.passes.lower.index_maps import coefficient
from graphc.ir.record import record

_MOST = 8  # iterations at a time: each repeats the code
# Where the third cache is far away, or sizes are open, of little code: whole lines of the numbers
# read, which are gone from the caches where it would come back to them, rows of a power of two
# sharing their places (Emerald Rapids, a copy of a transposed matrix: 1024 x 1024 0.80 to 0.60 ms,
# 2048 x 2048 5.4 to 2.3; Zen 4 of open sizes: 0.43 to 0.24, 2.5 to 1.5, 1000 x 1000 0.15 either
# way).
_LINE = 16
_LEAST = 4
_SCALARS = 12  # that an iteration may compute: the code is repeated


@record
class Turned:
    """`rows` iterations at a time of a parallel loop around the loop `inner` of `lanes` lanes.
    `loads` are transposed: each with its elements from lane to lane. `open`: sizes are known when
    the code runs, and iterations and lanes may be left over."""

    rows: int
    lanes: int
    inner: Loop
    loads: tuple[tuple[Load, Size], ...]
    open: bool = False


def plan(loop: Loop, target: Target, mutable: frozenset[str]) -> Turned | None:
    """How a parallel loop is done by squares; None where it is not."""
    *lets, inner = loop.body
    if not isinstance(inner, Loop) or inner.kind != "vector" or inner.carries:
        return None
    if not all(isinstance(let, Let) and isinstance(let.value, IndexValue) for let in lets):
        return None
    if not all(isinstance(stmt, (Let, Store)) for stmt in inner.body):
        return None
    extent, chunk = loop.extent, loop.chunk
    is_open = not (isinstance(extent, int) and isinstance(inner.extent, int))
    if not isinstance(chunk, int) or (not is_open and extent % chunk):
        return None
    here = {loop.var, *[let.name for let in lets if isinstance(let, Let)]}
    if isinstance(inner.extent, Dim) and inner.extent.variables() & here:
        return None
    scalars = [scalar for _, scalar in walk.evaluated(inner.body)]
    found = plan_vector(inner, inner.extent, target)
    whole = (target.far or is_open) and len(scalars) * _LINE <= _SCALARS * _MOST
    lanes = found.lanes
    if is_open:  # the lanes of one register: what is left over is done one by one
        lanes = min(lanes, target.vector_bytes // 4)
    rows = min(_LINE if whole else _MOST, lanes)
    while rows > 1 and chunk % rows:
        rows //= 2
    if rows < _LEAST or len(scalars) > _SCALARS:
        return None
    if found.tail not in ("none", "after") and not is_open:
        return None
    loads: dict[Load, Size] = {}
    for scalar in scalars:
        if isinstance(scalar, Load) and scalar.mask is None and scalar.buffer not in mutable:
            apart = coefficient(scalar.index, inner.var)
            if apart is None or (isinstance(apart, int) and abs(apart) < 2):
                continue
            if isinstance(apart, Dim) and (not is_open or apart.variables() & here):
                continue
            if scalar.dtype is dtypes.bool_ or scalar.dtype.itemsize == 1:
                continue
            if _step(scalar.index, loop.var, lets, rows) == 1:
                loads[scalar] = apart
    return Turned(rows, lanes, inner, tuple(loads.items()), is_open) if loads else None


def _step(index: Size, var: str, lets: Sequence[Stmt], rows: int) -> int | None:
    """How far an index goes from one value of a variable to the next, among `rows` of them that
    begin at a multiple of that; None: it does not go evenly."""
    if isinstance(index, int):
        return 0
    named = {
        let.name: let.value.index for let in lets
        if isinstance(let, Let) and isinstance(let.value, IndexValue)
    }
    total = 0
    for monomial, factor in index.terms:
        names = {name for atom, _ in monomial for name in Dim(((((atom, 1),), 1),)).variables()}
        if not names & {var, *named}:
            continue
        ((atom, power), *others) = monomial
        if others or power != 1:
            return None
        step: int | None
        if atom.kind == "var":
            step = 1 if atom.name == var else _step(named[atom.name], var, lets, rows)
        elif atom.kind in ("floordiv", "mod") and unwrap(atom.args[0]) == Dim.var(var):
            divisor = unwrap(atom.args[1])
            if not isinstance(divisor, int) or divisor % rows:
                return None
            step = int(atom.kind == "mod")
        else:
            return None
        if step is None:
            return None
        total += factor * step
    return total


def emit(context: Statements, loop: Loop, turned: Turned, start: Index, end: Index) -> None:
    """Iterations from `start` up to `end`, both multiples of the rows at a time."""
    fn, inner, lanes = context.fn, turned.inner, turned.lanes
    around = Hoisted(fn.preheader())
    last = _whole(fn, start, end, turned.rows) if turned.open else end
    trip = fn.carry_loop(start, last, turned.rows, [])
    context.push(around)
    extent = inner.extent
    context.upper[inner.var] = extent - 1 if isinstance(extent, int) else UNKNOWN
    hoisted = Hoisted(fn.preheader())
    trips = context.index(extent)
    whole = fn.mul(fn.floordiv(trips, lanes), lanes)
    context.lanes, context.vector_var = lanes, inner.var
    context.vector_level = context.depth + 1
    if whole != 0:
        along = fn.carry_loop(0, whole, lanes, [])
        _square(context, loop, turned, hoisted, (trip.index, along.index, lanes))
        along.close([])
    if isinstance(whole, int) and isinstance(trips, int) and whole < trips:
        _square(context, loop, turned, hoisted, (trip.index, whole, trips - whole))
    context.lanes, context.vector_var = 1, ""
    hoisted.before.close()
    if not isinstance(trips, int):
        with fn.when(fn.cmp("slt", whole, trips)):
            one = fn.carry_loop(trip.index, fn.add(trip.index, turned.rows), 1, [])
            with _iteration(context, loop, one.index):
                context.serial(inner, whole, trips)
            one.close([])
    context.pop()
    around.before.close()
    trip.close([])
    if turned.open:
        with fn.when(fn.cmp("slt", last, end)):
            context.serial(loop, last, end)


def _whole(fn: Function, start: Index, end: Index, rows: int) -> Index:
    """Up to where there are `rows` iterations at a time."""
    return fn.add(start, fn.mul(fn.floordiv(fn.sub(end, start), rows), rows))


def _square(
    context: Statements, loop: Loop, turned: Turned, hoisted: Hoisted,
    place: tuple[Index, Index, int],
) -> None:
    """All rows of so many lanes."""
    first, lane, count = place
    fn, inner, lanes = context.fn, turned.inner, turned.lanes
    context.push(hoisted, None if count == lanes else context.tail_mask(count))
    context.bind(inner.var, Value(str(lane), dtypes.i64, 1, context.depth))
    context.bind(_first(inner), Value(str(lane), dtypes.i64, 1, context.depth))
    with _iteration(context, loop, first):
        columns = {
            (load.buffer, load.index): _columns(context, turned, load, apart, count)
            for load, apart in turned.loads
        }
    for n in range(turned.rows):
        with _iteration(context, loop, fn.add(first, n)):
            context.turned = {load: found[n] for load, found in columns.items()}
            context.statements(inner.body)
            context.turned = {}
    context.pop()


@contextmanager
def _iteration(context: Statements, loop: Loop, index: Index) -> Iterator[None]:
    """A scope of one parallel iteration, in which nothing is known of another one."""
    hoisted = Hoisted(context.fn.preheader())
    context.push(hoisted)
    context.bind(loop.var, Value(str(index), dtypes.i64, 1, context.depth))
    context.statements(loop.body[:-1])
    yield
    context.pop()
    hoisted.before.close()


def _first(inner: Loop) -> str:
    """The name of where a square's lanes begin."""
    return f"{inner.var}.first"


def _columns(
    context: Statements, turned: Turned, load: Load, apart: Size, count: int
) -> list[str]:
    """What so many lanes of each row load."""
    fn = context.fn
    kind, width = memory_type(load.dtype), load.dtype.itemsize
    first = substitute(load.index, {turned.inner.var: Dim.var(_first(turned.inner))})
    address = context.address(context.buffers[load.buffer], context.affine(first)).value
    rows, step = ["zeroinitializer"] * turned.lanes, context.index(apart)
    for n in range(count):
        at = fn.let(f"getelementptr {kind}, ptr {address}, i64 {fn.mul(step, n)}", "p")
        rows[n] = fn.load(at, memory_type(load.dtype, turned.rows), width)
    return transposed(fn, kind, rows, turned.rows)


def transposed(fn: Function, kind: str, rows: Sequence[str], width: int) -> list[str]:
    """The columns of rows of `width` elements, both powers of two, no fewer rows than columns."""
    found, size = list(rows), width
    while len(found) > width:  # rows that are `width` apart, one behind the other
        order = [*range(2 * size)]
        found = [
            _shuffled(fn, kind, size, found[at + n], found[at + width + n], order)
            for at in range(0, len(found), 2 * width) for n in range(width)
        ]
        size *= 2
    step = 1
    while step < width:
        low = [k if not k & step else size + k - step for k in range(size)]
        high = [k + step if not k & step else size + k for k in range(size)]
        for n in range(width):
            if not n & step:
                a, b = found[n], found[n + step]
                found[n] = _shuffled(fn, kind, size, a, b, low)
                found[n + step] = _shuffled(fn, kind, size, a, b, high)
        step *= 2
    return found


def _shuffled(fn: Function, kind: str, size: int, a: str, b: str, order: Sequence[int]) -> str:
    lanes = ", ".join(f"i32 {lane}" for lane in order)
    both = f"<{size} x {kind}> {a}, <{size} x {kind}> {b}"
    return fn.let(f"shufflevector {both}, <{len(order)} x i32> <{lanes}>")
