"""How a kernel's work is shared out, read from its text: what a GPU's kernels are held to.

A block of `THREADS` takes an iteration of the parallel loop, its threads the lanes of a vector
loop. Where an extent or a size depends on a loop's variable, its largest value counts.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from graphc.ir.dim import Dim, Size, substitute
from graphc.ir.dtypes import DType
from graphc.ir.kernel import (
    IndexValue,
    Kernel,
    Launch,
    Let,
    Load,
    Loop,
    Program,
    Stmt,
    Store,
    Var,
    leaves,
    walk,
)

THREADS = 256


@dataclass
class Work:
    """Of one stage. `blocks`: parallel iterations. `depth`: iterations that one thread does of its
    longest nest of loops. `lanes`: of the widest vector loop. `moved`: bytes of global memory that
    its loads and stores name, each once in every pass that reads it."""

    blocks: int = 1
    depth: int = 1
    lanes: int = 1
    moved: int = 0


@dataclass
class _Reader:
    kernel: Kernel
    dims: Mapping[str, int]
    extents: dict[str, int] = field(default_factory=dict)
    reach: dict[str, frozenset[str]] = field(default_factory=dict)  # name -> loop variables

    def number(self, size: Size) -> int:
        """A size where every variable of a loop is 0, as it is in the first iteration."""
        if isinstance(size, int):
            return size
        names = {name: self.dims.get(name, 0) for name in size.variables()}
        found = substitute(size, names)
        assert isinstance(found, int)
        return found

    def loops(self, names: Iterable[str]) -> frozenset[str]:
        found: set[str] = set()
        for name in names:
            found |= self.reach.get(name, frozenset((name,)) & self.extents.keys())
        return frozenset(found)

    def reads(self, body: Iterable[object]) -> frozenset[str]:
        """The loops that scalars depend on."""
        names: set[str] = set()
        for part in walk.parts(body):  # type: ignore[arg-type]
            if isinstance(part, Var):
                names.add(part.name)
            elif isinstance(part, (IndexValue, Load)) and isinstance(part.index, Dim):
                names |= part.index.variables()
        return self.loops(names)

    def block(self, body: Iterable[Stmt], work: Work) -> int:
        """Adds a body's work; how deep its loops go."""
        depth = 1
        for stmt in body:
            for scalar in walk.parts(walk.scalars(stmt)):
                if isinstance(scalar, Load):
                    self.access(scalar.buffer, scalar.index, scalar.dtype, work)
            if isinstance(stmt, Let):
                self.reach[stmt.name] = self.reads((stmt.value,))
            elif isinstance(stmt, Store):
                self.access(stmt.buffer, stmt.index, stmt.value.dtype, work)
                if stmt.combine:
                    self.access(stmt.buffer, stmt.index, stmt.value.dtype, work)
            elif isinstance(stmt, Loop):
                depth = max(depth, self.loop(stmt, work))
        return depth

    def loop(self, loop: Loop, work: Work) -> int:
        extent = self.extents[loop.var] = self.number(loop.extent)
        inside = self.block(loop.body, work)
        for carry in loop.carries:
            for scalar in walk.parts(walk.scalars(carry)):
                if isinstance(scalar, Load):
                    self.access(scalar.buffer, scalar.index, scalar.dtype, work)
        del self.extents[loop.var]
        for carry in loop.carries:
            self.reach[carry.name] = frozenset(self.extents)
        if loop.kind == "parallel":
            work.blocks = extent
            return inside
        if loop.kind == "vector":
            work.lanes = max(work.lanes, extent)
            return -(-extent // THREADS) * inside
        return extent * inside

    def access(self, buffer: str, index: Size, dtype: DType, work: Work) -> None:
        param = next((p for p in self.kernel.params if p.name == buffer), None)
        if param is None:
            return  # a Local
        count = 1
        names = index.variables() if isinstance(index, Dim) else ()
        for name in self.loops(names):
            count *= self.extents[name]
        work.moved += min(count, self.number(param.size)) * dtype.itemsize


def work_of(kernel: Kernel, dims: Mapping[str, int]) -> list[Work]:
    """By stage; nothing for a template."""
    found = []
    for stage in kernel.stages:
        work = Work()
        work.depth = _Reader(kernel, dims).block(stage, work)
        found.append(work)
    return found


def of_program(program: Program) -> Iterator[tuple[Kernel, dict[str, int], list[Work]]]:
    """Of every launch whose sizes are known."""
    for step in leaves(program.steps):
        if isinstance(step, Launch):
            dims = {
                name: size for name, size in zip(step.kernel.dims, step.dims, strict=True)
                if isinstance(size, int)
            }
            if len(dims) == len(step.kernel.dims):
                yield step.kernel, dims, work_of(step.kernel, dims)


def least(kernel: Kernel, dims: Mapping[str, int]) -> int:
    """Bytes of the kernel's inputs and results, each once."""
    reader = _Reader(kernel, dims)
    return sum(
        reader.number(p.size) * p.dtype.itemsize * (2 if p.access == "inout" else 1)
        for p in kernel.params if p.access != "scratch"
    )
