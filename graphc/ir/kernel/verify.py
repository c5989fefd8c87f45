"""The kernel verifier: names, dtypes, loop structure, indices within their buffers.

Bounds and races are checked by interval analysis for a few sample values of the named dims;
a data-dependent index must be masked or stand after a Check that mentions it.
"""

from __future__ import annotations

from collections.abc import Iterable

from .. import dtypes, op
from ..dim import Dim, DimEnv, Size, evaluate, substitute
from ..dtypes import DType
from ..types import TensorType
from . import walk
from .bounds import Scope, held, interval
from .combine import ARGUMENTS, CARRIES, STORES
from .nest import (
    Check,
    IndexValue,
    Kernel,
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
from .points import exact_interval
from .templates import Attention, Template
from .templates.partial import verify_partial

_SAMPLES = (2, 3, 16, 1000)  # values tried for named dims; 0 and 1 are specialised


class KernelError(Exception):
    """A malformed kernel: a compiler bug, never the user's."""


def verify_kernel(kernel: Kernel) -> None:
    """Raise KernelError naming the kernel and the first fault found."""
    samples = _SAMPLES if kernel.dims else (0,)
    for sample in samples:
        try:
            Verifier(kernel, dict.fromkeys(kernel.dims, sample)).run()
        except KernelError as error:
            where = f" with {', '.join(kernel.dims)} = {sample}" if kernel.dims else ""
            raise KernelError(f"kernel {kernel.name}{where}: {error}") from None


class Verifier:
    def __init__(self, kernel: Kernel, dims: dict[str, int]) -> None:
        self.kernel = kernel
        self.dims = dims
        self.buffers: dict[str, tuple[DType, int, str]] = {}
        self.names: dict[str, DType] = {}
        self.reads: dict[str, frozenset[str]] = {}  # what a Let's value is made of
        self.checked: set[str] = set()
        self.scope = Scope()
        self.loops: list[Loop] = []

    def fail(self, message: str) -> None:
        raise KernelError(message)

    def run(self) -> None:
        kernel = self.kernel
        for param in kernel.params:
            if param.name in self.buffers or param.access not in ("in", "out", "inout", "scratch"):
                self.fail(f"parameter {param.name} is doubled or has access {param.access!r}")
            self.buffers[param.name] = (param.dtype, self.number(param.size), param.access)
        if bool(kernel.stages) == (kernel.template is not None):
            self.fail("needs either stages or one template")
        for stage in kernel.stages:
            self.names, self.reads, self.checked = {}, {}, set()
            self.scope = Scope()
            kinds = [stmt.kind for stmt in stage if isinstance(stmt, Loop)]
            if "parallel" in kinds and len(kinds) > 1:
                self.fail("a loop stands beside a parallel one: it needs a stage of its own")
            self.block(stage)
        if kernel.template is not None:
            self.template(kernel.template)

    def number(self, size: Size) -> int:
        try:
            return evaluate(size, self.dims)
        except KeyError as error:
            raise KernelError(str(error)) from None

    # statements

    def block(self, body: Iterable[Stmt]) -> None:
        """Check statements; names bound inside go out of scope at the end."""
        outside = dict(self.names)
        for stmt in body:
            self.statement(stmt)
        self.names = outside

    def statement(self, stmt: Stmt) -> None:
        if isinstance(stmt, Let):
            self.let(stmt)
        elif isinstance(stmt, Store):
            self.store(stmt)
        elif isinstance(stmt, Partial):
            template = self.kernel.template
            place = None if template is None or self.loops else template.place
            verify_partial(stmt, place, self)
        elif isinstance(stmt, Check):
            if self.scalar(stmt.ok) is not dtypes.bool_ or self.scalar(stmt.value) != dtypes.i64:
                self.fail("a check needs a bool and an i64")
            self.checked |= self.sources(stmt.ok)
        elif isinstance(stmt, Local):
            if stmt.name in self.buffers and not self.loops:
                self.fail(f"local {stmt.name} hides a buffer")
            if any(loop.kind != "parallel" for loop in self.loops):
                self.fail(f"local {stmt.name} stands inside a serial or vector loop")
            self.buffers[stmt.name] = (stmt.dtype, stmt.size, "local")
        else:
            self.loop(stmt)

    def let(self, stmt: Let) -> None:
        if stmt.name in self.names:
            self.fail(f"{stmt.name} is bound twice")
        dtype = self.scalar(stmt.value)
        self.names[stmt.name] = dtype
        self.reads[stmt.name] = self.sources(stmt.value)
        self.scope.lets.pop(stmt.name, None)
        self.scope.unknown.discard(stmt.name)
        self.scope.held.pop(stmt.name, None)
        between = held(stmt.value, self.scope.held)
        if between is not None:
            self.scope.held[stmt.name] = between
        if isinstance(stmt.value, IndexValue):
            index = self.scope.resolve(self.plain(stmt.value.index))
            self.scope.lets[stmt.name] = index
        elif dtype is dtypes.i64:
            self.scope.unknown.add(stmt.name)

    def store(self, stmt: Store) -> None:
        if stmt.buffer not in self.buffers:
            self.fail(f"store to unknown buffer {stmt.buffer}")
        dtype, _, access = self.buffers[stmt.buffer]
        if access == "in":
            self.fail(f"store to input {stmt.buffer}")
        if self.scalar(stmt.value) is not dtype:
            self.fail(f"store of {stmt.value.dtype.name} to {stmt.buffer}: {dtype.name}")
        if stmt.combine not in ("", *STORES):
            self.fail(f"unknown store combine {stmt.combine!r}")
        if stmt.mask is not None and self.scalar(stmt.mask) is not dtypes.bool_:
            self.fail("a mask is not bool")
        self.access(stmt.buffer, stmt.index, stmt.mask)
        self.race(stmt, access)

    def race(self, stmt: Store, access: str) -> None:
        """A store that does not depend on the parallel variable is made by many threads."""
        if not self.loops or self.loops[0].kind != "parallel" or access == "local":
            return
        index = self.scope.resolve(stmt.index)
        names = index.variables() if isinstance(index, Dim) else frozenset()
        parallel = self.loops[0]
        masked = stmt.mask is not None and parallel.var in self.sources(stmt.mask)
        if self.number(parallel.extent) > 1 and not masked:
            reached = set(names)
            for name in names:
                reached |= self.reads.get(name, frozenset())
            if parallel.var not in reached:
                self.fail(f"parallel iterations race on {stmt.buffer}[{stmt.index}]")

    def loop(self, loop: Loop) -> None:
        kinds = [outer.kind for outer in self.loops]
        if loop.kind not in ("parallel", "vector", "serial"):
            self.fail(f"unknown loop kind {loop.kind!r}")
        if loop.kind == "parallel" and kinds:
            self.fail(f"parallel loop {loop.var} is not outermost")
        if loop.kind == "vector" and "vector" in kinds:
            self.fail(f"vector loop {loop.var} stands inside a vector loop")
        if loop.var in self.scope.extents or loop.var in self.names or loop.var in self.dims:
            self.fail(f"loop variable {loop.var} is bound twice")
        if loop.kind == "parallel" and self.number(loop.chunk) < 1:
            self.fail(f"chunk {loop.chunk} of loop {loop.var}")
        self.index(loop.extent)
        self.carries(loop)
        self.scope.extents[loop.var] = self.scope.resolve(self.plain(loop.extent))
        self.loops.append(loop)
        outside = dict(self.names)
        for carry in loop.carries:
            if carry.name in self.names:
                self.fail(f"carry {carry.name} is bound twice")
            self.names[carry.name] = carry.dtype
            self.reads[carry.name] = frozenset()
        for stmt in loop.body:
            self.statement(stmt)
        for carry in loop.carries:
            if self.scalar(carry.next) is not carry.dtype:
                self.fail(f"carry {carry.name}: {carry.dtype.name} from {carry.next.dtype.name}")
            self.reads[carry.name] |= self.sources(carry.init) | self.sources(carry.next)
        self.names = outside
        self.loops.pop()
        del self.scope.extents[loop.var]
        for carry in loop.carries:
            self.names[carry.name] = carry.dtype
            if carry.dtype is dtypes.i64:
                self.scope.unknown.add(carry.name)

    def carries(self, loop: Loop) -> None:
        if loop.carries and loop.kind == "parallel":
            self.fail(f"parallel loop {loop.var} has carries")
        previous = ""
        for carry in loop.carries:
            if carry.combine not in CARRIES or (
                carry.combine in ("set", "argmax_last") and loop.kind != "serial"
            ):
                self.fail(f"carry {carry.name}: {carry.combine!r} in a {loop.kind} loop")
            if (carry.combine == "index") != (previous in ARGUMENTS):
                self.fail(f"carry {carry.name}: argmax and index come in pairs")
            if carry.combine == "index" and carry.dtype is not dtypes.i64:
                self.fail(f"index carry {carry.name} is {carry.dtype.name}")
            if carry.combine in ("or", "and") and carry.dtype is not dtypes.bool_:
                self.fail(f"carry {carry.name}: {carry.combine} of {carry.dtype.name}")
            if self.scalar(carry.init) is not carry.dtype:
                self.fail(f"carry {carry.name} starts as {carry.init.dtype.name}")
            previous = carry.combine
        if previous in ARGUMENTS:
            self.fail(f"loop {loop.var}: argmax and index come in pairs")

    # expressions

    def plain(self, index: Size) -> Size:
        """The expression with the named dims replaced by this run's sample values."""
        return substitute(index, self.dims) if self.dims else index

    def index(self, index: Size) -> Size:
        """Check that every name in an index expression is an integer in scope."""
        index = self.plain(index)
        if isinstance(index, Dim):
            for name in index.variables():
                if name not in self.scope.extents and self.names.get(name) is not dtypes.i64:
                    self.fail(f"index {index} reads {name}, which is no integer in scope")
        return index

    def access(self, buffer: str, index: Size, mask: Scalar | None) -> None:
        index = self.index(index)
        if mask is not None:
            return
        resolved = self.scope.resolve(index)
        bounds = interval(index, self.scope)
        if bounds is None and isinstance(resolved, Dim):
            loose = (resolved.variables() & self.scope.unknown) - self.checked
            if loose:
                self.fail(f"{buffer}[{index}]: {', '.join(sorted(loose))} was never checked")
        if any(self.empty(loop) for loop in self.loops):
            return
        size = self.buffers[buffer][1]
        if bounds is None or bounds[0] < 0 or bounds[1] >= size:
            bounds = exact_interval(index, self.scope) or bounds
        if bounds is not None and (bounds[0] < 0 or bounds[1] >= size):
            self.fail(f"{buffer}[{index}] spans {bounds[0]}..{bounds[1]}, size is {size}")

    def empty(self, loop: Loop) -> bool:
        bounds = interval(self.scope.extents[loop.var], self.scope)
        return bounds is not None and bounds[1] <= 0

    def sources(self, value: Scalar) -> frozenset[str]:
        """Every name that a scalar is computed from, through Lets."""
        found: set[str] = set()
        for part in walk.parts((value,)):
            names: Iterable[str] = ()
            if isinstance(part, Var):
                names = (part.name,)
            elif isinstance(part, (IndexValue, Load)) and isinstance(part.index, Dim):
                names = part.index.variables()
            for name in names:
                found |= {name} | self.reads.get(name, frozenset())
        return frozenset(found)

    def scalar(self, value: Scalar) -> DType:
        if isinstance(value, Literal):
            return value.dtype
        if isinstance(value, Var):
            if self.names.get(value.name) is not value.dtype:
                self.fail(f"{value.name} is not bound as {value.dtype.name}")
            return value.dtype
        if isinstance(value, IndexValue):
            self.index(value.index)
            return dtypes.i64
        if isinstance(value, Load):
            return self.load(value)
        args = tuple(self.scalar(a) for a in value.args)
        if not _agrees(value.op, args, value.dtype):
            spelled = ", ".join(a.name for a in args)
            self.fail(f"{value.op}({spelled}) does not give {value.dtype.name}")
        return value.dtype

    def load(self, value: Load) -> DType:
        if value.buffer not in self.buffers:
            self.fail(f"load of unknown buffer {value.buffer}")
        if self.buffers[value.buffer][0] is not value.dtype:
            self.fail(f"load of {value.buffer} as {value.dtype.name}")
        if value.mask is not None and (
            self.scalar(value.mask) is not dtypes.bool_
            or value.other is None
            or self.scalar(value.other) is not value.dtype
        ):
            self.fail(f"masked load of {value.buffer} needs a bool mask and an other value")
        self.access(value.buffer, value.index, value.mask)
        return value.dtype

    def template(self, template: Template) -> None:
        template.verify(self)
        if isinstance(template, Attention):
            return
        extents = {"b": template.batch, "m": template.m, "n": template.n}
        self.scope = Scope({name: self.plain(size) for name, size in extents.items()})
        self.loops = []
        self.names = {"acc": template.acc_dtype}
        for stmt in template.epilogue:
            if isinstance(stmt, (Loop, Local)):
                self.fail("an epilogue has no loops")
            self.statement(stmt)


_AGREES: dict[tuple[str, tuple[DType, ...], DType], bool] = {}


def _agrees(name: str, args: tuple[DType, ...], result: DType) -> bool:
    """Whether an operator's record gives `result` for these dtypes."""
    key = (name, args, result)
    found = _AGREES.get(key)
    if found is None:
        found = _AGREES[key] = _infer_agrees(name, args, result)
    return found


def _infer_agrees(name: str, args: tuple[DType, ...], result: DType) -> bool:
    if name == "fma":
        return len(args) == 3 and result.is_float and all(a is result for a in args)
    record = op.REGISTRY.get(name)
    if record is None or not record.elementwise:
        return False
    attrs = {"dtype": result} if record.family == "cast" else {}
    try:
        type_ = record.infer(tuple(TensorType(a, ()) for a in args), attrs, DimEnv())
    except (op.OpError, KeyError, IndexError, ValueError):
        return False
    return isinstance(type_, TensorType) and type_.dtype is result
