"""A stage as one `__global__` function: what a group of threads does in one iteration of the
parallel loop. All of it compute alike what lies outside of vector loops, and the first thread
stores it."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence

from graphc.backends.cuda.loops import ordering
from graphc.backends.cuda.loops.mapping import WARP, StageMapping, tile_bytes
from graphc.backends.cuda.loops.ordering import Order, bound, locals_of
from graphc.backends.cuda.loops.reductions import Reductions, slot_bytes
from graphc.backends.cuda.loops.shapes import dear_lets, deferred, invariants, read_by_others
from graphc.backends.cuda.loops.tile_text import TileText
from graphc.backends.cuda.loops.vector import VectorLoop
from graphc.backends.cuda.scalar import c_type, combine, literal
from graphc.backends.cuda.statements.expressions import Expressions
from graphc.backends.cuda.statements.indices import Indices
from graphc.backends.cuda.statements.lanes import vector_loops
from graphc.backends.cuda.statements.lines import Lines
from graphc.ir import dtypes
from graphc.ir.kernel import Carry, Check, Kernel, Let, Local, Loop, Stmt, Store
from graphc.ir.kernel.combine import ARGUMENTS, identity

_UNBOUND = 256  # threads of a block that may have as many registers as there are for one


class StageFunction:
    """Of one stage. `checks`: those of the kernel so far, by their numbers. `spills`: whether there
    is memory for Locals that have no room in a block."""

    def __init__(
        self, kernel: Kernel, body: tuple[Stmt, ...], mapping: StageMapping,
        reductions: Reductions, checks: list[Check], spills: bool,
    ) -> None:
        self.kernel, self.body, self.mapping = kernel, body, mapping
        self.reductions, self.checks, self.spills = reductions, checks, spills
        self.spilled = 0  # bytes of an iteration's Locals so far
        self.lines, self.indices = Lines(), Indices()
        sizes = {p.name: p.size for p in kernel.params}
        self.locals = {local.name: local.size for local in locals_of(body)}
        sizes |= self.locals
        self.scalars = Expressions(self.lines, self.indices, sizes)
        self.order = Order(mapping.group == 1, frozenset(mapping.kept))
        loops = list(vector_loops(body, Indices()))
        self.widths = {
            id(each.loop): (width, each.most)
            for each, width in zip(loops, mapping.widths, strict=True)
        }
        wide = mapping.group > WARP
        self.slot = max((slot_bytes(each.loop.carries) for each in loops if wide), default=0)
        self.shared = 2 * self.slot  # bytes
        self.aligned: dict[str, None] = {}  # buffers that packs are in
        self.hoisted: set[int] = set()  # statements that are written already, by their ids
        self.deferred: set[int] = set()  # loops whose carries another combines, by their ids
        self.spread = any(isinstance(s, Loop) and s.kind == "parallel" for s in body)

    def function(self, name: str) -> str:
        """C."""
        parameters = [f"{c_type(p.dtype)}* {p.name}" for p in self.kernel.params]
        parameters += [f"i64 {dim}" for dim in self.kernel.dims]
        parameters += ["i64* status", *["unsigned char* spill_"] * self.spills]
        if self.mapping.tile is not None:
            TileText(self, self.mapping.tile).write()
        else:
            self._body()
        threads = self.mapping.threads
        bounds = f"__launch_bounds__({threads}) " if threads > _UNBOUND else ""
        head = f'extern "C" __global__ void {bounds}{name}({", ".join(parameters)}) {{'
        return "\n".join((head, *self._prologue(), *self.lines.lines, "}\n"))

    def _body(self) -> None:
        """The Lets that it begins with are the same for all."""
        first = list(itertools.takewhile(lambda stmt: isinstance(stmt, Let), self.body))
        self.once([stmt for stmt in first if isinstance(stmt, Let)])
        self.statements(self.body[len(first) :])

    def _prologue(self) -> Iterator[str]:
        group, groups = self.mapping.group, self.mapping.groups
        if self.shared:
            yield "  DYNAMIC_SHARED(shared);"
        if self.slot:
            yield "  unsigned turn_ = 0;"
        if groups > 1:
            yield f"  const int group_ = threadIdx.x / {group};"
        if group > 1:
            yield f"  const int thread_ = threadIdx.x{f' % {group}' if groups > 1 else ''};"
        if 1 < group < WARP:
            own = f"(threadIdx.x & 31 & ~{group - 1}u)"
            yield f"  const unsigned mask_ = {(1 << group) - 1}u << {own};"
        if self.aligned:
            together = " | ".join(f"(u64){name}" for name in self.aligned)
            yield f"  const bool aligned_ = (({together}) & 15) == 0;"

    # Statements

    def statements(self, body: Iterable[Stmt], carries: tuple[Carry, ...] = ()) -> None:
        """In order, then what a loop carries on; a Check encloses what follows it."""
        opened: list[list[ordering.Access]] = []
        for stmt in body:
            if isinstance(stmt, Let):
                self.wait(ordering.reads((stmt.value,)))
                self.scalars.bind(stmt)
            elif isinstance(stmt, Store):
                self.store(stmt)
            elif isinstance(stmt, Loop):
                self.loop(stmt)
            elif isinstance(stmt, Local):
                self.local(stmt)
            elif isinstance(stmt, Check):
                self.wait(ordering.reads((stmt.ok, stmt.value)))
                self.open_check(stmt)
                opened.append(list(self.order.pending))
        self.wait(ordering.reads(carry.next for carry in carries))
        self.scalars.update(carries)
        for before in opened:
            self.lines.close()
            self.order.leave(before, frozenset())

    def open_check(self, stmt: Check) -> None:
        """What fails is told of; the rest is done where it does not."""
        number = len(self.checks)
        self.checks.append(stmt)
        ok, lines = self.lines.fresh("ok"), self.lines
        lines.emit(f"const bool {ok} = {self.scalars.scalar(stmt.ok)};")
        lines.emit(f"if (!{ok}) fail(status, {number}, {self.scalars.scalar(stmt.value)});")
        lines.open(f"if ({ok}) {{")

    def wait(self, accesses: Sequence[ordering.Access]) -> None:
        """For the group's other threads, where these ask for it."""
        if self.order.needs_wait(accesses):
            group = self.mapping.group
            mask = "mask_" if group < WARP else "~0u"
            self.lines.emit("__syncthreads();" if group > WARP else f"__syncwarp({mask});")

    def store(self, stmt: Store) -> None:
        """By the first thread of the group, which computes alone what is for it alone."""
        self.wait(ordering.store(stmt))
        conditions = ["thread_ == 0"] if self.mapping.group > 1 else []
        if self.spread and not self.indices.scope.extents:
            conditions += ["blockIdx.x == 0"] + ["group_ == 0"] * (self.mapping.groups > 1)
        self.lines.open(f"if ({' && '.join(conditions)}) {{" if conditions else "{")
        self.scalars.put(stmt)
        self.lines.close()

    def local(self, stmt: Local) -> None:
        """A tile in shared memory, for each group of the block; or in registers; or, where there is
        no room, in global memory."""
        kind = c_type(stmt.dtype)
        if stmt.name in self.mapping.kept:
            self.lines.emit(f"{kind} {stmt.name}[{self.mapping.kept[stmt.name]}];")
            return
        size = tile_bytes(stmt)
        if stmt.name in self.mapping.spilled:
            number = f"(i64)blockIdx.x * {self.mapping.groups}"
            number += " + group_" if self.mapping.groups > 1 else ""
            place = f"spill_ + ({number}) * {self.mapping.spill} + {self.spilled}"
            self.lines.emit(f"{kind}* const {stmt.name} = ({kind}*)({place});")
            self.spilled += size
            return
        start = self.shared
        self.shared += size * self.mapping.groups
        own = f" + {size} * group_" if self.mapping.groups > 1 else ""
        self.lines.emit(f"{kind}* const {stmt.name} = ({kind}*)(shared + {start}{own});")

    # Loops

    def loop(self, loop: Loop) -> None:
        self.wait(ordering.reads(carry.init for carry in loop.carries))
        if loop.kind == "vector":
            self.vector(loop)
            return
        if id(loop) in self.deferred:
            self._sequence(loop)
        elif self.mapping.group > 1 and (chain := deferred(loop)):
            self._defer(loop, chain)
        else:
            self.start(loop)
            self._sequence(loop)

    def _sequence(self, loop: Loop) -> None:
        """Iterations one after another, or each by a group."""
        again = ordering.accesses(loop.body, self.widths)
        again += ordering.reads(carry.next for carry in loop.carries)
        if loop.kind == "parallel":  # its iterations share nothing but where their Locals lie
            own = {local.name for local in locals_of(loop.body)}
            again = [access for access in again if access.buffer in own]
            self._hoist(loop)
        bare = [stmt for stmt in loop.body if id(stmt) not in self.hoisted]
        inside = bound((loop,)) - {stmt.name for stmt in invariants(self.body)}
        before = self.order.enter(again, inside)
        with self.indices.loop(loop) as kind:
            self.lines.open(self.head(loop, kind))
            self.statements(bare, () if id(loop) in self.deferred else loop.carries)
            self.lines.close()
        self.order.leave(before, inside)

    def _hoist(self, loop: Loop) -> None:
        """What no iteration changes, in front of the loop; not where a block has none."""
        lets = invariants(self.body)
        if not lets:
            return
        groups = self.mapping.groups
        with self.indices.loop(loop) as kind:
            extent = self._extent(loop, kind)
        first = f"({kind})blockIdx.x" + (f" * {groups}" if groups > 1 else "")
        self.lines.emit(f"if ({first} >= {extent}) return;")
        self.hoisted |= {id(stmt) for stmt in lets}
        self.once(lets)

    def once(self, lets: Sequence[Let]) -> None:
        """What is the same for a whole block: what takes long, and what is made of it, is computed
        by its first warp, which leaves it to the others."""
        dear = dear_lets(lets) if self.mapping.threads > WARP else ()
        self.statements([stmt for stmt in lets if not any(stmt is each for each in dear)])
        if not dear:
            return
        lines = self.lines
        read = read_by_others(self.body, dear)
        shown = [let for let in dear if let.name in read]
        slots = {let.name: self.shared + 8 * number for number, let in enumerate(shown)}
        self.shared += -(-8 * len(shown) // 16) * 16
        lines.open(f"if (threadIdx.x < {WARP}) {{")
        self.statements(dear)
        lines.open("if (threadIdx.x == 0) {")
        for let in shown:
            kind = c_type(let.value.dtype)
            lines.emit(f"*({kind}*)(shared + {slots[let.name]}) = {let.name};")
        lines.close()
        lines.close()
        lines.emit("__syncthreads();")
        for let in shown:
            kind = c_type(let.value.dtype)
            if let.value.dtype is dtypes.i64:
                self.indices.unknown(let.name)
            lines.emit(f"const {kind} {let.name} = *({kind}*)(shared + {slots[let.name]});")

    def _defer(self, loop: Loop, chain: tuple[Loop, ...]) -> None:
        """Lanes are reduced once, behind a loop that would combine their results."""
        self.deferred |= {id(each) for each in chain}
        lanes = chain[-1].carries
        self.start(loop)
        for carry in lanes:
            self._clear(carry, f"{c_type(carry.dtype)} ")
        self._sequence(loop)
        self.deferred -= {id(each) for each in chain}
        self._reduce(lanes)
        for carry, part in zip(loop.carries, lanes, strict=True):
            total = combine(carry.combine, carry.dtype, part.name, carry.name)
            self.lines.emit(f"{carry.name} = {total};")

    def _clear(self, carry: Carry, kind: str = "") -> None:
        """What a lane's share starts from."""
        if carry.dtype is dtypes.i64:
            self.indices.unknown(carry.name)
        none = literal(identity(carry.combine, carry.dtype), carry.dtype)
        self.lines.emit(f"{kind}{carry.name} = {none};")

    def start(self, loop: Loop) -> None:
        """What a loop carries, in front of it."""
        for carry in loop.carries:
            if carry.dtype is dtypes.i64:
                self.indices.unknown(carry.name)
            text = self.scalars.scalar(carry.init)
            self.lines.emit(f"{c_type(carry.dtype)} {carry.name} = {text};")

    def head(self, loop: Loop, kind: str) -> str:
        """Of a loop that goes through its iterations one after another, or shares them out."""
        extent, var = self._extent(loop, kind), loop.var
        if loop.kind == "serial":
            return f"for ({kind} {var} = 0; {var} < {extent}; {var}++) {{"
        groups = self.mapping.groups
        step = f"({kind})gridDim.x" + (f" * {groups}" if groups > 1 else "")
        return f"for ({kind} {var} = {self._first(kind)}; {var} < {extent}; {var} += {step}) {{"

    def _first(self, kind: str) -> str:
        """A group's first iteration of the parallel loop."""
        groups = self.mapping.groups
        return f"({kind})blockIdx.x" + (f" * {groups} + group_" if groups > 1 else "")

    def _extent(self, loop: Loop, kind: str) -> str:
        return self.indices.text(loop.extent, kind if self.indices.fits(loop.extent) else "i64")

    def vector(self, loop: Loop) -> None:
        """Lanes by thread; each thread's carries start as the identity, but for arguments, which
        are compared, not added up."""
        whole = id(loop) not in self.deferred
        if whole:
            self.start(loop)
        width, most = self.widths[id(loop)]
        self.wait(ordering.lanes(loop, width, most))
        starts: dict[str, str] = {}
        for carry in loop.carries if whole else ():
            if carry.combine == "set":
                raise ValueError(f"carry {carry.name}: a vector loop cannot carry by 'set'")
            if carry.combine not in (*ARGUMENTS, "index"):
                starts[carry.name] = init = self.lines.fresh("init")
                self.lines.emit(f"const {c_type(carry.dtype)} {init} = {carry.name};")
                self._clear(carry)
        VectorLoop(self, loop, width).write()
        self.order.forget(bound((loop,)))
        if whole:
            self._reduce(loop.carries)
        for name, start in starts.items():
            (carry,) = [carry for carry in loop.carries if carry.name == name]
            self.lines.emit(f"{name} = {combine(carry.combine, carry.dtype, start, name)};")

    def _reduce(self, carries: tuple[Carry, ...]) -> None:
        """Of all threads of the group."""
        found = list(self.reductions.lines(carries, self.mapping.group, self.slot))
        if found:
            self.lines.open("{")
            for line in found:
                self.lines.emit(line)
            self.lines.close()
        if "__syncthreads();" in found:
            self.order.waited()
