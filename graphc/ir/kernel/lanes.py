"""Statements of a kernel on arrays of lanes: what interpret.py runs stages with.

Parallel and vector loops are evaluated as the two axes of one array, serial loops by Python.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeAlias

import numpy as np

from ..dim import Dim, Size, unwrap
from ..dtypes import DType
from .combine import ARGUMENTS, COMBINES
from .nest import (
    Carry,
    Check,
    IndexValue,
    Let,
    Literal,
    Load,
    Local,
    Loop,
    Partial,
    Scalar,
    Stmt,
    Store,
    Var,
)
from .walk import statements

Array: TypeAlias = np.ndarray[Any, Any]
Table: TypeAlias = Mapping[str, Callable[..., Any]]

_SLAB = 1 << 20  # lanes evaluated at once


class CheckFailed(Exception):
    """A Check of a kernel was false. `value` is what it reports, `locs` are those of its step."""

    locs: tuple[str, ...] = ()

    def __init__(self, message: str, value: int) -> None:
        super().__init__(message.replace("{value}", str(value)))
        self.value = value


class Lanes:
    """Values of one stage. An array value has axes (parallel, vector), of size 1 where constant."""

    def __init__(self, memory: dict[str, Array], env: Mapping[str, Any], table: Table) -> None:
        self.memory = dict(memory)
        self.env: dict[str, Any] = dict(env)  # dims, loop variables, Lets
        self.table = table
        self.locals: dict[str, int] = {}  # Local buffers: their size per lane of the parallel axis
        self.lanes = 1  # of the parallel axis
        self.active: Array | None = None  # which lanes a loop still runs; None: all
        self.partials: dict[Partial, list[Array]] = {}  # the values of each, one for each batch

    def block(self, body: Iterable[Stmt]) -> None:
        for stmt in body:
            if isinstance(stmt, Let):
                self.env[stmt.name] = self.scalar(stmt.value)
            elif isinstance(stmt, Store):
                self.store(stmt)
            elif isinstance(stmt, Partial):
                self.partials.setdefault(stmt, []).append(np.asarray(self.scalar(stmt.value)))
            elif isinstance(stmt, Check):
                self.check(stmt)
            elif isinstance(stmt, Local):
                self.locals[stmt.name] = stmt.size
                self.memory[stmt.name] = np.zeros(stmt.size * self.lanes, stmt.dtype.numpy)
            elif stmt.kind == "serial":
                self.serial(stmt)
            else:
                self.lane_loop(stmt)

    # loops

    def lane_loop(self, loop: Loop) -> None:
        """A parallel or vector loop as an axis, or lane by lane where its inside is ragged."""
        extent = self.index(loop.extent)
        if isinstance(extent, np.ndarray):
            if extent.size > 1:
                raise ValueError(f"extent of {loop.var} differs between lanes")
            extent = int(extent.reshape(()))
        axis = 0 if loop.kind == "parallel" else 1
        if axis == 0 and _is_ragged(loop):
            for i in range(extent):
                self.env[loop.var] = i
                self.block(loop.body)
            return
        if axis == 1:
            self.env[loop.var] = np.arange(extent).reshape(1, -1)
            self.bind(self.vector_carries(loop, extent))
            return
        slab = max(1, _SLAB // max(1, _width(loop.body, self.env)))
        for start in range(0, extent, slab):
            stop = min(start + slab, extent)
            self.lanes = stop - start
            self.env[loop.var] = np.arange(start, stop).reshape(-1, 1)
            self.block(loop.body)
        self.lanes = 1

    def vector_carries(self, loop: Loop, extent: int) -> dict[str, Any]:
        """Run the body once for all lanes, then reduce each carry along the vector axis."""
        starts = {c.name: self.scalar(c.init) for c in loop.carries}
        if extent == 0:
            return starts
        for c in loop.carries:
            if c.combine != "index":
                self.env[c.name] = starts[c.name]
        self.block(loop.body)
        results: dict[str, Any] = {}
        for position, c in enumerate(loop.carries):
            value = np.broadcast_to(self.scalar(c.next), (self._rows(c.next), extent))
            if c.combine in ("argmax", "argmin"):
                index = loop.carries[position + 1]
                where = np.broadcast_to(self.scalar(index.next), value.shape)
                pair = _arg_reduce(c.combine, value, where)
                results[c.name], results[index.name] = _arg_pair(
                    c.combine, (starts[c.name], starts[index.name]), pair
                )
            elif c.combine != "index":
                reduced = _reduce(c.combine, value, c.dtype)
                results[c.name] = self.combine(c.combine, starts[c.name], reduced, c.dtype)
        return results

    def _rows(self, value: Scalar) -> int:
        found = self.scalar(value)
        return int(found.shape[0]) if isinstance(found, np.ndarray) and found.ndim == 2 else 1

    def serial(self, loop: Loop) -> None:
        extent = self.index(loop.extent)
        self.bind({c.name: self.scalar(c.init) for c in loop.carries})
        if isinstance(extent, np.ndarray) and extent.size > 1:
            self.ragged(loop, extent)
            return
        for i in range(int(np.asarray(extent).reshape(()))):
            self.env[loop.var] = i
            self.block(loop.body)
            self.bind(self.next_carries(loop.carries))

    def ragged(self, loop: Loop, extent: Array) -> None:
        """A serial loop of which each lane has an end of its own: a lane that is done keeps what
        it carries and touches no memory."""
        outside = self.active
        for i in range(int(extent.max())):
            self.active = running = i < extent if outside is None else outside & (i < extent)
            self.env[loop.var] = i
            self.block(loop.body)
            after = self.next_carries(loop.carries)
            self.bind({k: np.where(running, new, self.env[k]) for k, new in after.items()})
        self.active = outside

    def next_carries(self, carries: tuple[Carry, ...]) -> dict[str, Any]:
        results: dict[str, Any] = {}
        for position, c in enumerate(carries):
            value = self.scalar(c.next)
            if c.combine == "set":
                results[c.name] = value
            elif c.combine in ARGUMENTS:
                index = carries[position + 1]
                results[c.name], results[index.name] = _arg_pair(
                    c.combine,
                    (self.env[c.name], self.env[index.name]),
                    (value, self.scalar(index.next)),
                )
            elif c.combine != "index":
                results[c.name] = self.combine(c.combine, self.env[c.name], value, c.dtype)
        return results

    def bind(self, values: dict[str, Any]) -> None:
        self.env.update(values)

    def combine(self, kind: str, a: Any, b: Any, dtype: DType) -> Array:
        combined = COMBINES[kind].ufunc(np.asarray(a), np.asarray(b))
        return np.asarray(combined).astype(dtype.numpy, copy=False)

    # expressions

    def index(self, index: Size) -> Any:
        if isinstance(index, int):
            return index
        return eval_index(index, self.env)

    def scalar(self, value: Scalar) -> Any:
        if isinstance(value, Var):
            return self.env[value.name]
        if isinstance(value, Literal):
            return np.array(value.value, value.dtype.numpy)
        if isinstance(value, IndexValue):
            return np.asarray(self.index(value.index), np.int64)
        if isinstance(value, Load):
            return self.load(value)
        args = [np.asarray(self.scalar(a)) for a in value.args]
        if value.op == "fma":
            return (args[0] * args[1] + args[2]).astype(value.dtype.numpy)
        if value.op == "cast":
            return self.table["cast"](args[0], dtype=value.dtype)
        return self.table[value.op](*args)

    def flat(self, buffer: str, index: Size) -> Array:
        where = np.asarray(self.index(index))
        if buffer in self.locals and self.lanes > 1:
            size = self.locals[buffer]
            where = where + size * np.arange(self.lanes).reshape(-1, 1)
        return where

    def load(self, value: Load) -> Array:
        memory = self.memory[value.buffer]
        where = self.flat(value.buffer, value.index)
        if value.mask is None and self.active is None:
            _inside(value.buffer, where, memory)
            return memory[where]
        if value.mask is not None and value.other is None:
            raise ValueError(f"masked load of {value.buffer} lacks its other value")
        mask = self.touched(value.mask)
        other = np.zeros((), memory.dtype) if value.other is None else self.scalar(value.other)
        where, mask = np.broadcast_arrays(where, mask)
        if mask.any():
            _inside(value.buffer, where[mask], memory)
            return np.where(mask, memory[np.where(mask, where, 0)], other)
        return np.broadcast_to(other, np.broadcast_shapes(mask.shape, np.shape(other)))

    def store(self, stmt: Store) -> None:
        memory = self.memory[stmt.buffer]
        where = self.flat(stmt.buffer, stmt.index)
        value = np.asarray(self.scalar(stmt.value))
        mask = self.touched(stmt.mask)
        where, value, mask = np.broadcast_arrays(where, value, mask)
        where, value = where[mask], value[mask]
        _inside(stmt.buffer, where, memory)
        if not stmt.combine:
            memory[where] = value
        else:
            # duplicates are combined one after another, in lane order
            COMBINES[stmt.combine].ufunc.at(memory, where, value)

    def touched(self, mask: Scalar | None) -> Array:
        """Where memory is touched: by lanes that still run, where `mask` is true."""
        found = np.asarray(True if mask is None else self.scalar(mask))
        return found if self.active is None else found & self.active

    def check(self, stmt: Check) -> None:
        ok = np.asarray(self.scalar(stmt.ok))
        if self.active is not None:
            ok = ok | ~self.active
        if not ok.all():
            value, ok = np.broadcast_arrays(np.asarray(self.scalar(stmt.value)), ok)
            raise CheckFailed(stmt.message, int(value[~ok].reshape(-1)[0]))


def eval_index(index: Size, env: Mapping[str, Any]) -> Any:
    """The value of an index expression where variables may be arrays."""
    index = unwrap(index)
    if isinstance(index, int):
        return index
    total: Any = 0
    for monomial, coefficient in index.terms:
        term: Any = coefficient
        for atom, power in monomial:
            if atom.kind == "var":
                factor = env[atom.name]
            else:
                left, right = (eval_index(a, env) for a in atom.args)
                factor = _ATOMS[atom.kind](left, right)
            for _ in range(power):
                term = term * factor
        total = total + term
    return total


_ATOMS: dict[str, Callable[[Any, Any], Any]] = {
    "floordiv": lambda a, b: a // b,
    "mod": lambda a, b: a % b,
    "min": np.minimum,
    "max": np.maximum,
}


def _inside(name: str, where: Array, memory: Array) -> None:
    if where.size and (where.min() < 0 or where.max() >= memory.size):
        raise IndexError(
            f"{name}[{where.min()}..{where.max()}] is outside its {memory.size} elements"
        )


def _reduce(kind: str, value: Array, dtype: DType) -> Array:
    exact = {"dtype": dtype.numpy} if kind in ("add", "mul") else {}
    return np.asarray(COMBINES[kind].ufunc.reduce(value, axis=1, keepdims=True, **exact))


def _arg_reduce(kind: str, value: Array, where: Array) -> tuple[Array, Array]:
    """The winning value and its index along the vector axis; the lowest lane of equals."""
    chosen = (np.argmax if kind == "argmax" else np.argmin)(value, axis=1)
    rows = np.arange(value.shape[0])
    return value[rows, chosen].reshape(-1, 1), where[rows, chosen].reshape(-1, 1)


def _arg_pair(kind: str, old: tuple[Any, Any], new: tuple[Any, Any]) -> tuple[Array, Array]:
    """(value, index) of the winner; the old one keeps its place among equals, NaN wins."""
    (a, i), (b, j) = old, new
    with np.errstate(invalid="ignore"):
        better = np.asarray(b < a if kind == "argmin" else b > a)
    better = better | np.asarray(b != b)
    if kind != "argmax_last":
        better &= np.asarray(a == a)
    return np.where(better, b, a), np.where(better, j, i)


def _is_ragged(loop: Loop) -> bool:
    """Whether an inner extent depends on the loop, directly or through a Let."""
    names = {loop.var}
    for stmt in statements(loop.body):
        if isinstance(stmt, Let):
            names.add(stmt.name)  # conservative: any Let may depend on the variable
        elif isinstance(stmt, Loop):
            if isinstance(stmt.extent, Dim) and stmt.extent.variables() & names:
                return True
            names.update(c.name for c in stmt.carries)
    return False


def _width(body: Iterable[Stmt], env: Mapping[str, Any]) -> int:
    """The largest vector extent inside a body (1 where it is not known yet)."""
    width = 1
    for stmt in statements(body):
        if isinstance(stmt, Loop) and stmt.kind == "vector":
            try:
                width = max(width, int(eval_index(stmt.extent, env)))
            except (KeyError, TypeError):
                return _SLAB
    return width
