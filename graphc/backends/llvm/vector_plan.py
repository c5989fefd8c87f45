"""How wide a vector loop is and how its ragged end is done, from what its body contains."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from graphc.backends.llvm import halves
from graphc.backends.llvm.target import Target
from graphc.ir import dtypes
from graphc.ir.dim import Dim, Size
from graphc.ir.dtypes import DType
from graphc.ir.kernel import (
    Apply,
    Carry,
    Check,
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
from graphc.ir.kernel.bounds import alternatives
from graphc.ir.op import REGISTRY
from graphc.ir.record import record

_ROUNDING = 4  # instructions to bfloat16, beside the one that every operator has
HEAVY = 30  # of an operator that takes tens of instructions a lane vector
MOST_LANES = 128


@dataclass(slots=True)
class Survey:
    """What a loop body holds: element types, a rough instruction count, memory, inner loops."""

    dtypes: set[DType] = field(default_factory=set)
    cost: int = 0
    general: bool = False  # an index that may need a gather
    inner: bool = False
    masks: bool = False  # conditions that are combined, kept or used by memory
    rounds: bool = False  # to bfloat16
    extremes: bool = False  # reductions by max or min, which compare
    lets: dict[str, Scalar] = field(default_factory=dict)


@record
class VectorPlan:
    """`lanes` lanes; `tail`: "none" (they divide the extent), "once" (the extent fits in one
    vector), "masked" (every vector is masked), "after" (whole vectors, then a masked one) or
    "scalar" (whole vectors, then single iterations). Masks that are known need no registers of
    masks (`Memory`)."""

    lanes: int
    tail: str


def survey(loop: Loop) -> Survey:
    """Looks at every scalar of a loop body once."""
    found, seen = Survey(), set[int]()
    _survey_statements(loop.body, loop.var, found, seen)
    for carry in loop.carries:
        _survey_carry(carry, found)
        _survey_scalar(carry.next, loop.var, found, seen)
    return found


def _survey_carry(carry: Carry, found: Survey) -> None:
    found.dtypes.add(carry.dtype)
    found.cost += carry.combine != "set"
    found.extremes |= carry.combine in ("max", "min")
    found.masks |= carry.combine == "index"


def _survey_statements(body: tuple[Stmt, ...], var: str, found: Survey, seen: set[int]) -> None:
    for stmt in body:
        if isinstance(stmt, Let):
            found.lets[stmt.name] = stmt.value
            _survey_scalar(stmt.value, var, found, seen)
        elif isinstance(stmt, Store):
            found.cost += 1
            found.masks |= stmt.mask is not None or stmt.value.dtype is dtypes.bool_
            _survey_index(stmt.index, var, found)
            found.dtypes.add(stmt.value.dtype)
            for scalar in (stmt.value, stmt.mask):
                if scalar is not None:
                    _survey_scalar(scalar, var, found, seen)
        elif isinstance(stmt, Check):
            _survey_scalar(stmt.ok, var, found, seen)
        elif isinstance(stmt, Loop):
            found.inner = True
            _survey_statements(stmt.body, var, found, seen)
            for carry in stmt.carries:
                _survey_carry(carry, found)
                _survey_scalar(carry.init, var, found, seen)
                _survey_scalar(carry.next, var, found, seen)
        else:
            assert isinstance(stmt, Local)


def _survey_scalar(root: Scalar, var: str, found: Survey, seen: set[int]) -> None:
    stack = [root]
    while stack:
        scalar = stack.pop()
        if id(scalar) in seen:
            continue
        seen.add(id(scalar))
        stack += walk.children(scalar)
        if isinstance(scalar, Apply):
            found.dtypes.add(scalar.dtype)
            found.cost += HEAVY if _heavy(scalar.op) else 1
            if scalar.dtype is dtypes.bool_ and scalar.args[0].dtype is dtypes.bool_:
                found.masks = True
            if scalar.op == "div":
                found.cost += 3
            elif scalar.op == "cast" and dtypes.bf16 in (scalar.dtype, scalar.args[0].dtype):
                cost = _cast_cost(scalar, found.lets)
                found.cost += cost
                found.rounds |= cost == _ROUNDING
        elif isinstance(scalar, Load):
            found.dtypes.add(scalar.dtype)
            found.cost += 1
            found.masks |= scalar.mask is not None or scalar.dtype is dtypes.bool_
            _survey_index(scalar.index, var, found)


def _cast_cost(cast: Apply, lets: halves.Lets) -> int:
    """Beside the one that every operator has: what is rounded, is a few instructions."""
    if cast.dtype is not dtypes.bf16 or halves.by_bits(cast, lets) is not None:
        return 0
    return 1 if halves.fits(cast.args[0], cast.dtype, lets) else _ROUNDING


def _heavy(name: str) -> bool:
    return name in REGISTRY and REGISTRY[name].heavy  # fma is not: only kernels have it


def _survey_index(size: Size, var: str, found: Survey) -> None:
    if not isinstance(size, Dim):
        return
    for monomial, coefficient in size.terms:
        for atom, _ in monomial:
            if atom.kind != "var":
                found.general |= var in size.variables()
            elif atom.name in found.lets or (atom.name == var and abs(coefficient) != 1):
                found.general = True


def plan_vector(loop: Loop, extent: Size, target: Target) -> VectorPlan:
    """The width and tail of a vector loop over `extent` iterations."""
    if is_uneven(loop):
        return VectorPlan(1, "none")
    found = survey(loop)
    width = _register_lanes(found.dtypes, target)
    # two polynomials side by side wait less for their own results (a Zen 3: 3 to 28 % less time);
    # an open size, but of a long loop's chunk, would leave more single iterations
    known = any(isinstance(each, int) for each in alternatives(extent))
    waits = target.vector_bytes == 32 and known
    lanes = min(width * _registers(found, width, bool(loop.carries), waits, target), MOST_LANES)
    masks = target.vector_bytes == 64
    costly = found.cost >= HEAVY
    if not isinstance(extent, int):
        # masks of halves are two registers' each, and a pair of them is computed for each vector
        once = costly and not (found.rounds and lanes > width)
        return VectorPlan(lanes, "scalar" if not masks else "masked" if once else "after")
    smallest = width
    if not masks and loop.carries and extent >= 2 * lanes:
        smallest = max(width, lanes // 2)  # fewer sums would wait for each other
    divisor = lanes
    while divisor > smallest and extent % divisor:
        divisor //= 2
    if extent % divisor == 0:
        return VectorPlan(divisor, "none")
    while lanes >= 2 * extent:
        lanes //= 2
    if lanes == extent:
        return VectorPlan(lanes, "none")
    if lanes >= extent:
        return VectorPlan(lanes, "once") if lanes > 1 else VectorPlan(1, "none")
    return VectorPlan(lanes, "masked" if costly and masks else "after")


def halves_registers(body: Iterable[Stmt], target: Target) -> bool:
    """Whether code that fills half of each register reads faster: what does nothing but add up
    rows, or little to each number, and so waits for memory. It gives 32 bytes at a time a seventh
    more than 64, as measured on Zen 4 (a + b of a million numbers 154 and 139 us; caches give as
    much). What else a body computes would take twice the instructions."""
    loops = [stmt for stmt in walk.statements(body) if isinstance(stmt, Loop)]
    tiling = target.machine.tiling
    if tiling is not None and tiling.split and len(loops) == 1 and _does_little(loops[0]):
        return True
    carries = [carry for loop in loops for carry in loop.carries]
    plain = all(
        isinstance(scalar, (Load, Var, Literal)) and scalar.dtype in (dtypes.f32, dtypes.f64)
        for _, scalar in walk.evaluated(body)
    )
    return plain and target.vector_bytes == 64 and bool(carries) and all(
        carry.combine == "add" for carry in carries
    ) and all(loop.kind == "vector" for loop in loops if loop.carries)


_LITTLE = 7  # instructions that wait for two loads and a store
_FLOATS = frozenset({dtypes.f32, dtypes.f64, dtypes.bool_})


def _does_little(loop: Loop) -> bool:
    """Whether a loop computes so little of floats, number by number, that it waits for memory."""
    if loop.kind != "vector" or loop.carries:
        return False
    found = survey(loop)
    return found.cost <= _LITTLE and found.dtypes <= _FLOATS and not (
        found.general or found.masks or found.inner
    )


def is_uneven(loop: Loop) -> bool:
    """Whether lanes go through a serial loop inside a different number of times."""
    varying = {loop.var}
    for stmt in walk.statements(loop.body):
        if isinstance(stmt, Let) and _names(stmt.value) & varying:
            varying.add(stmt.name)
        elif isinstance(stmt, Loop):
            if isinstance(stmt.extent, Dim) and stmt.extent.variables() & varying:
                return True
            varying |= {carry.name for carry in stmt.carries}
    return False


def _names(root: Scalar) -> set[str]:
    """What a scalar reads, integers in indices, too."""
    found: set[str] = set()
    for part in walk.parts((root,)):
        if isinstance(part, Var):
            found.add(part.name)
        elif isinstance(part, (Load, IndexValue)) and isinstance(part.index, Dim):
            found |= part.index.variables()
    return found


def _register_lanes(found: set[DType], target: Target) -> int:
    """Lanes of one register of the main element type: 4 bytes unless everything is 8."""
    narrow = any(d.bits <= 32 and d is not dtypes.bool_ for d in found)
    return target.vector_bytes // (4 if narrow or not found - {dtypes.bool_} else 8)


def _registers(found: Survey, width: int, carries: bool, waits: bool, target: Target) -> int:
    """Registers per vector: several where the body is cheap, to hide latency and loop overhead."""
    pairs = found.rounds and target.vector_bytes == 64  # two registers are rounded into one
    if found.cost >= HEAVY and (pairs or waits) and not (
        carries or found.inner or found.general or found.masks
    ):
        return 2
    # AVX-512 packs the masks of several registers into one, which costs more than it saves
    if found.cost >= HEAVY or found.general or found.masks:
        return 1
    if carries or found.inner:
        count = 8 if found.cost <= 4 else 4 if found.cost <= 8 else 2 if found.cost <= 16 else 1
    else:
        count = 4 if found.cost <= 5 else 2 if found.cost <= 10 else 1
    if found.extremes:
        count = min(count, 4)
    wide = any(d.bits == 64 for d in found.dtypes) and width * 8 > target.vector_bytes
    return max(count // 2, 1) if wide else count
