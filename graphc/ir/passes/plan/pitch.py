"""Rows of values in the arena, made as long as accesses are wide.

Where a value's rows are no whole number of wide accesses (50257 columns of halves), each but the
first begins somewhere in between, and is touched element by element. A value that kernels alone
touch, row by row, need not lie so: its rows begin `pitch` elements apart, and what is between them
nobody reads. Whether a kernel goes by rows, its indices say: each is width * q + r, where r is
known to be one of a row's places.
"""

from __future__ import annotations

from functools import lru_cache

from ...dim import Dim, Size, unwrap
from ...kernel import (
    Apply,
    Attention,
    Carry,
    Check,
    Convolution,
    IndexValue,
    Kernel,
    Let,
    Literal,
    Load,
    Local,
    Loop,
    Operand,
    Scalar,
    Stmt,
    Store,
    Template,
    Var,
    walk,
)
from ...kernel.bounds import Scope, interval
from ...kernel.templates.convolution import VARIABLES
from ...machine import Machine
from ...record import replaced
from ...types import TupleType
from .step import Step, Storage

ACCESS, LINE = 16, 128  # bytes
_LEAST = 8  # accesses, or lines, of a row that is padded to whole ones


def pad_rows(steps: list[Step], machine: Machine) -> None:
    """Values of at least `machine.pitched` bytes have rows that wide accesses fit, if their kernels
    allow it: these are others then."""
    if machine.pitched == 0:
        return
    for step in steps:
        for number, storage in enumerate(step.writes):
            width = _row(step, number)
            pitch = _pitch(width, storage.dtype.itemsize)
            if pitch != width and _is_large(storage, machine):
                _pad(storage, width, pitch)


def _row(step: Step, number: int) -> int:
    """Elements of a result's rows; 0: they are not known."""
    if step.node is None or step.lowered is None:
        return 0
    type_ = step.node.type
    types = type_.elements if isinstance(type_, TupleType) else (type_,)
    shape = types[number].shape
    width = shape[-1] if len(shape) > 1 else 0
    return width if isinstance(width, int) else 0


def _pitch(width: int, itemsize: int) -> int:
    """Elements from one row to the next."""
    for unit in (LINE, ACCESS):
        whole = unit // itemsize
        if width >= _LEAST * whole:
            return -(-width // whole) * whole
    return width


def _is_large(storage: Storage, machine: Machine) -> bool:
    size = storage.size
    return not isinstance(size, int) or size >= machine.pitched


def _pad(storage: Storage, width: int, pitch: int) -> None:
    """Gives a value such rows, if it is the planner's alone, and all kernels go by rows."""
    if storage.space != "arena" or storage.whole is not None or storage.shared:
        return
    assert storage.writer is not None
    elements = _stretched(storage.elements, width, pitch)
    touching = list(dict.fromkeys((storage.writer, *storage.readers)))
    kernels: list[Kernel] = []
    for step in touching:
        if elements is None or step.lowered is None or step.inside is not None:
            return
        kernel: Kernel | None = step.lowered.kernel
        names = [f"a{n}" for n, read in enumerate(step.reads) if read is storage]
        names += [f"o{n}" for n, write in enumerate(step.writes) if write is storage]
        for name in names:
            kernel = kernel and pitched(kernel, name, width, pitch)
        if kernel is None:
            return
        kernels.append(kernel)
    assert elements is not None
    storage.elements = elements
    for step, kernel in zip(touching, kernels, strict=True):
        assert step.lowered is not None
        step.lowered = replaced(step.lowered, kernel=kernel)


def _stretched(size: Size, width: int, pitch: int) -> Size | None:
    """So many rows of the pitch as of the width."""
    terms = size.terms if isinstance(size, Dim) else (((), size),)
    if any(number % width for _, number in terms):
        return None
    return unwrap(Dim(tuple((monomial, n // width * pitch) for monomial, n in terms if n)))


@lru_cache(1024)  # equal kernels give the identical one
def pitched(kernel: Kernel, buffer: str, width: int, pitch: int) -> Kernel | None:
    """The kernel of a buffer whose rows are `pitch` apart; None if it does not go by rows."""
    try:
        return _Rows(kernel, buffer, width, pitch).kernel()
    except _Across:
        return None


class _Across(Exception):
    """An index that may go from one row to another."""


class _Rows:
    """Rewrites a kernel's indices into one buffer."""

    def __init__(self, kernel: Kernel, buffer: str, width: int, pitch: int) -> None:
        self.of, self.buffer, self.width, self.pitch = kernel, buffer, width, pitch
        self.scope = Scope()
        self.bound: dict[str, Scalar] = {}
        self.below: dict[str, int] = {}  # data-dependent names that are checked, no less than 0

    def kernel(self) -> Kernel:
        params = []
        for param in self.of.params:
            size: Size | None = param.size
            if param.name == self.buffer:
                size = _stretched(param.size, self.width, self.pitch)
            if size is None:
                raise _Across
            params.append(replaced(param, size=size))
        stages = tuple(self._body(stage) for stage in self.of.stages)
        return replaced(self.of, params=tuple(params), stages=stages, template=self._template())

    def _template(self) -> Template | None:
        t = self.of.template
        if t is None:
            return None
        if isinstance(t, Attention):
            if any(o.buffer == self.buffer for _, o in (*t.inputs, *t.results)):
                raise _Across
            return t
        if isinstance(t, Convolution):
            left, right = (
                self._operand(operand, dict(zip(VARIABLES, t.geometry.shape(name), strict=True)))
                for operand, name in zip(t.operands, t.tensors, strict=False)
            )
        else:
            extents = {"b": t.batch, "m": t.m, "n": t.n, "k": t.k}
            left, right = (self._operand(operand, extents) for operand in t.operands)
        self.scope = Scope({"b": t.batch, "m": t.m, "n": t.n})
        return replaced(t, left=left, right=right, epilogue=self._body(t.epilogue))

    def _operand(self, operand: Operand, extents: dict[str, Size]) -> Operand:
        if operand.buffer != self.buffer:
            return operand
        self.scope = Scope(extents)
        return replaced(operand, index=self._index(operand.index))

    # Statements

    def _body(self, body: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
        below = dict(self.below)
        found = tuple(self._statement(stmt) for stmt in body)
        self.below = below
        return found

    def _statement(self, stmt: Stmt) -> Stmt:
        if isinstance(stmt, Loop):
            return self._loop(stmt)
        if isinstance(stmt, Let):
            let = Let(stmt.name, self._scalar(stmt.value))
            self._bind(let)
            return let
        if isinstance(stmt, Store):
            mask = None if stmt.mask is None else self._scalar(stmt.mask)
            index = self._index(stmt.index) if stmt.buffer == self.buffer else stmt.index
            return replaced(stmt, index=index, value=self._scalar(stmt.value), mask=mask)
        if isinstance(stmt, Check):
            check = replaced(stmt, ok=self._scalar(stmt.ok), value=self._scalar(stmt.value))
            self._know(stmt.ok)
            return check
        if isinstance(stmt, Local):
            return stmt
        raise _Across

    def _loop(self, loop: Loop) -> Loop:
        inits = [self._scalar(carry.init) for carry in loop.carries]
        self.scope.extents[loop.var] = self.scope.resolve(loop.extent)
        for carry in loop.carries:
            self._forget(carry.name)
        body = self._body(loop.body)
        carries: list[Carry] = []
        for carry, init in zip(loop.carries, inits, strict=True):
            carries.append(replaced(carry, init=init, next=self._scalar(carry.next)))
        del self.scope.extents[loop.var]
        return replaced(loop, body=body, carries=tuple(carries))

    def _bind(self, let: Let) -> None:
        self._forget(let.name)
        self.bound[let.name] = let.value
        if isinstance(let.value, IndexValue):
            self.scope.lets[let.name] = self.scope.resolve(let.value.index)
            self.scope.unknown.discard(let.name)

    def _forget(self, name: str) -> None:
        self.bound.pop(name, None)
        self.below.pop(name, None)
        self.scope.lets.pop(name, None)
        self.scope.unknown.add(name)

    def _know(self, ok: Scalar) -> None:
        """What holds behind a Check: 0 <= name < number."""
        parts = self._conjuncts(ok)
        natural = {
            _name(p.args[0]) for p in parts if p.op == "ge" and _number(p.args[1]) == 0
        }
        for part in parts:
            name, number = _name(part.args[0]), _number(part.args[1])
            if part.op == "lt" and number is not None and name in natural:
                self.below[name] = number

    def _conjuncts(self, ok: Scalar) -> list[Apply]:
        if isinstance(ok, Var):
            return self._conjuncts(self.bound[ok.name]) if ok.name in self.bound else []
        if isinstance(ok, Apply) and ok.op == "logical_and":
            return [part for arg in ok.args for part in self._conjuncts(arg)]
        return [ok] if isinstance(ok, Apply) and len(ok.args) == 2 else []

    # Indices

    def _scalar(self, scalar: Scalar) -> Scalar:
        def moved(part: Scalar) -> Scalar:
            if isinstance(part, Load) and part.buffer == self.buffer:
                return replaced(part, index=self._index(part.index))
            return part

        return walk.rewrite_scalar(scalar, moved)

    def _index(self, index: Size) -> Size:
        """Where an element is, whose place was an index."""
        for way in (index, self.scope.resolve(index)):
            row, place = self._split(way)
            if self._is_inside(place):
                return unwrap(row * self.pitch + place)
        raise _Across

    def _split(self, index: Size) -> tuple[Size, Size]:
        """(q, r) of width * q + r."""
        terms = index.terms if isinstance(index, Dim) else (((), index),)
        row: Size = 0
        place: Size = 0
        for monomial, number in terms:
            over, rest = divmod(number, self.width)
            if monomial and rest:
                over, rest = 0, number
            row = row + Dim(((monomial, over),)) if over else row
            place = place + Dim(((monomial, rest),)) if rest else place
        return unwrap(row), unwrap(place)

    def _is_inside(self, place: Size) -> bool:
        name = _only_name(place)
        if name in self.below:
            return self.below[name] <= self.width
        found = interval(place, self.scope)
        return found is not None and found[0] >= 0 and found[1] < self.width


def _name(scalar: Scalar) -> str:
    """Of a scalar that is one name."""
    if isinstance(scalar, Var):
        return scalar.name
    return _only_name(scalar.index) if isinstance(scalar, IndexValue) else ""


def _only_name(index: Size) -> str:
    names = index.variables() if isinstance(index, Dim) else frozenset()
    return next(iter(names)) if len(names) == 1 and index == Dim.var(*names) else ""


def _number(scalar: Scalar) -> int | None:
    if isinstance(scalar, Literal) and isinstance(scalar.value, int):
        return int(scalar.value)
    if isinstance(scalar, IndexValue) and isinstance(scalar.index, int):
        return scalar.index
    return None
