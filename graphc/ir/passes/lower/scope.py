"""Where statements go while a kernel is written: open loops, and each Let in the outermost
loop that it can live in (loop-invariant code is never repeated in an inner loop)."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

from ... import dtypes
from ...dim import Dim, Size
from ...dtypes import DType
from ...kernel import (
    Apply,
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
    walk,
)
from ...kernel.bounds import held

Value = Var | Literal  # what an expression is named by


class Scope:
    """An open loop body. `memo` holds values that are bound here."""

    __slots__ = ("chunk", "extent", "kind", "memo", "stmts", "var")

    def __init__(self, kind: str = "", var: str = "", extent: Size = 1, chunk: Size = 1) -> None:
        self.kind = kind
        self.var = var
        self.extent = extent
        self.chunk = chunk
        self.stmts: list[Stmt] = []
        self.memo: dict[Hashable, Any] = {}


class Writer:
    """Writes one stage. Scope 0 is the stage itself; inside a parallel loop nothing is put
    outside of it, for its iterations may run on other threads, unless the stage `hoists`: then
    what is the same for all iterations stands before the loop, for every worker."""

    def __init__(self, hoists: bool = False) -> None:
        self.scopes = [Scope()]
        self.levels: dict[str, int] = {}  # of loop variables, Lets and carries
        self.hoists = hoists
        self.floor = 0
        self.count = 0
        self.accesses: list[tuple[Size, bool]] = []  # every index used, and if it is a store

    @property
    def scope(self) -> Scope:
        return self.scopes[-1]

    def open(self, kind: str, var: str, extent: Size, chunk: Size = 1) -> Size:
        """Begin a loop; returns its variable as an index expression."""
        self.scopes.append(Scope(kind, var, extent, chunk))
        self.levels[var] = len(self.scopes) - 1
        if kind == "parallel" and not self.hoists:
            self.floor = len(self.scopes) - 1
        return Dim.var(var)

    def close(self, carries: Sequence[Carry] = ()) -> None:
        """End the innermost loop; its carries are bound in the scope around it."""
        scope = self.scopes.pop()
        self.scope.stmts.append(
            Loop(scope.kind, scope.var, scope.extent, tuple(scope.stmts), tuple(carries),
                 scope.chunk)
        )
        if scope.kind == "parallel":
            self.floor = 0
        for carry in carries:
            self.levels[carry.name] = len(self.scopes) - 1

    def finish(self) -> tuple[Stmt, ...]:
        """The stage's statements; every loop must be closed."""
        if len(self.scopes) != 1:
            raise ValueError(f"loop {self.scope.var} is still open")
        return tuple(self.scope.stmts)

    def fresh(self, prefix: str = "t") -> str:
        """A new name, unique in the kernel."""
        self.count += 1
        return f"{prefix}{self.count - 1}"

    # levels

    def index_level(self, index: Size) -> int:
        """The innermost scope that an index expression depends on."""
        if isinstance(index, int):
            return self.floor
        levels = self.levels
        return max([levels.get(name, 0) for name in index.variables()] + [self.floor])

    def level(self, value: Scalar) -> int:
        """The innermost scope that a scalar depends on."""
        if isinstance(value, Apply) and all(isinstance(x, Var | Literal) for x in value.args):
            levels = self.levels  # what most are
            return max([levels[x.name] for x in value.args if isinstance(x, Var)] + [self.floor])
        level = self.floor
        for part in walk.parts((value,)):
            if isinstance(part, Var):
                level = max(level, self.levels[part.name])
            elif isinstance(part, (IndexValue, Load)):
                level = max(level, self.index_level(part.index))
        return level

    # statements

    def let(self, value: Scalar, least: int = 0) -> Value:
        """Name a scalar, in the outermost scope it can stand in (not above scope `least`)."""
        if isinstance(value, (Var, Literal)):
            return value
        level = max(self.level(value), least)
        name = self.fresh()
        self.levels[name] = level
        self.scopes[level].stmts.append(Let(name, value))
        return Var(name, value.dtype)

    def held(self, index: Value, size: int) -> Value:
        """An i64 index in [0, size), by a clamp, unless it is one already."""
        value = self._bound(index) if isinstance(index, Var) else index
        if isinstance(value, Apply) and value.op == "cast":
            source = value.args[0]
            value = self._bound(source) if isinstance(source, Var) else source
        between = None if value is None else held(value, {})
        if between is not None and between[0] >= 0 and between[1] < size:
            return index
        ends = Literal(0, dtypes.i64), Literal(size - 1, dtypes.i64)
        return self.apply("clamp", dtypes.i64, index, *ends)

    def _bound(self, var: Var) -> Scalar | None:
        """What a Let gave a name to."""
        for stmt in reversed(self.scopes[self.levels[var.name]].stmts):
            if isinstance(stmt, Let) and stmt.name == var.name:
                return stmt.value
        return None

    def load(
        self, buffer: str, index: Size, dtype: DType, mask: Value | None = None,
        other: Value | None = None, least: int = 0,
    ) -> Value:
        """A load; an equal one that is still bound is used again."""
        load = Load(buffer, index, dtype, mask, other)
        level = max(self.level(load), least)
        memo = self.scopes[level].memo
        key = ("load", buffer, index, mask, None if other is None else _key(other))
        found = memo.get(key)
        if found is None:
            self.accesses.append((index, False))
            found = memo[key] = self.let(load, least)
        return found

    def index_name(self, index: Size) -> Size:
        """A name for an index expression, so that those of which it is a part stay affine."""
        if isinstance(index, int):
            return index
        name = self.fresh("i")
        self.levels[name] = level = self.index_level(index)
        self.scopes[level].stmts.append(Let(name, IndexValue(index, dtypes.i64)))
        return Dim.var(name)

    def index_value(self, index: Size) -> Value:
        """An index expression as an i64 scalar."""
        if isinstance(index, int):
            return Literal(index, dtypes.i64)
        memo = self.scopes[self.index_level(index)].memo
        found = memo.get(("index", index))
        if found is None:
            self.accesses.append((index, False))
            found = memo[("index", index)] = self.let(IndexValue(index, dtypes.i64))
        return found

    def apply(self, op: str, dtype: DType, *args: Value) -> Value:
        """Name op(*args); an equal one that is still bound is used again."""
        key = (op, dtype, tuple(_key(a) for a in args))
        found = self.find(key)
        if found is None:
            found = self.let(Apply(op, args, dtype))
            self.remember(key, found)
        return found  # type: ignore[no-any-return]

    def store(
        self, buffer: str, index: Size, value: Value, mask: Value | None = None, combine: str = ""
    ) -> None:
        """Store in the innermost open scope."""
        self.accesses.append((index, True))
        self.scope.stmts.append(Store(buffer, index, value, mask, combine))

    def partial(self, buffer: str, value: Value, rows: int, kind: str) -> None:
        """A Partial, of an epilogue."""
        self.scope.stmts.append(Partial(buffer, value, rows, kind))

    def check(self, ok: Value, message: str, value: Value) -> None:
        """A check, as far out as its values are known."""
        level = max(self.level(ok), self.level(value))
        self.scopes[level].stmts.append(Check(ok, message, value))

    def local(self, name: str, dtype: DType, size: int) -> None:
        """Scratch memory at the start of the parallel loop's body (or of the stage)."""
        around = [i for i, scope in enumerate(self.scopes) if scope.kind == "parallel"]
        body = self.scopes[around[0] if around else 0].stmts
        at = sum(isinstance(stmt, Local) for stmt in body)
        body.insert(at, Local(name, dtype, size))

    def find(self, key: Hashable) -> Any:
        """A remembered value whose scope is still open, innermost first."""
        for scope in reversed(self.scopes):
            if key in scope.memo:
                return scope.memo[key]
        return None

    def remember(self, key: Hashable, value: Value) -> None:
        """Remember a value in the scope that it is bound in."""
        self.scopes[self.level(value)].memo[key] = value


def _key(value: Value) -> Hashable:
    """What tells values apart: 0.0 is not -0.0."""
    return value.name if isinstance(value, Var) else (repr(value.value), value.dtype)


def as_size(value: Value) -> Size:
    """A whole number that is known when the code runs, as a part of indices and extents."""
    return int(value.value) if isinstance(value, Literal) else Dim.var(value.name)
