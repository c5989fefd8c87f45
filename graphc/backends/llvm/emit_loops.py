"""Statements and loops: serial loops with carried values, vector loops with lanes and tails."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from graphc.backends.llvm.emit_beside import Beside
from graphc.backends.llvm.emit_carries import (
    combine_carries,
    finish_lanes,
    lane_inits,
)
from graphc.backends.llvm.emit_context import Buffer, Hoisted, Index
from graphc.backends.llvm.emit_index import UNKNOWN
from graphc.backends.llvm.text import Module
from graphc.backends.llvm.values import Value, memory_type, register_type
from graphc.backends.llvm.vector_plan import MOST_LANES, VectorPlan, plan_vector
from graphc.ir import dtypes
from graphc.ir.dim import Dim, Size
from graphc.ir.kernel import Carry, Check, Let, Literal, Local, Loop, Partial, Stmt, Store, Var
from graphc.ir.kernel.bounds import held
from graphc.ir.kernel.combine import COMBINES, identity
from graphc.ir.record import replaced

FAIL = "@graphc.fail"
Finish = Callable[[], list[str]]


class Statements(Beside):
    """Emits statements in the current scope. `status` is a pointer to the call's status words,
    `check_numbers` the number of each Check by identity."""

    status = "%status"
    check_numbers: Mapping[int, int] = {}
    vector_base: Index = 0  # where vector loops start counting
    most_lanes: int = 0  # of a vector loop whose extent is not known; 0: as many as suit its body
    # Takes a parallel loop over, if it answers true; else its iterations are done in order.
    parallel: Callable[[Loop], bool] = staticmethod(lambda loop: False)

    def statements(self, body: Sequence[Stmt]) -> None:
        """Emits statements one after the other."""
        self._run(body, list, [])

    def _run(
        self, body: Sequence[Stmt], finish: Finish, skipped: list[tuple[str, str]]
    ) -> list[str]:
        """Emits a body, then `finish` for its results; an iteration whose Check fails yields
        `skipped` (type, value) instead."""
        stored = 0  # statements before this one are done
        for position, stmt in enumerate(body):
            if position < stored:
                continue
            if isinstance(stmt, Let):
                value = self.value(stmt.value)
                self.bind(stmt.name, value._replace(stable=True))
                self.lets[stmt.name] = stmt.value
                self.upper.pop(stmt.name, None)  # may have been a loop's variable before
                self._hold(stmt)
            elif isinstance(stmt, Store) and self.store_beside(stmt, body[position + 1 :][:1]):
                stored = position + 2
            elif isinstance(stmt, Store):
                mask = None if stmt.mask is None else self.value(stmt.mask)
                self.store(stmt.buffer, stmt.index, self.value(stmt.value), mask, stmt.combine)
            elif isinstance(stmt, Loop):
                if stmt.kind != "parallel" or not self.parallel(stmt):
                    self.loop(stmt)
            elif isinstance(stmt, Local):
                self._local(stmt)
            elif isinstance(stmt, Partial):
                raise NotImplementedError("the CPU sums no rows in an epilogue")
            else:
                rest = body[position + 1 :]
                done = self._check(stmt, rest, finish, skipped)
                if done is not None:
                    return done
        return finish()

    def _hold(self, stmt: Let) -> None:
        """What of a whole number is known, as the verifier knows it."""
        between = held(stmt.value, self.held)
        self.held.pop(stmt.name, None)
        if between is None:
            return
        self.held[stmt.name] = between
        if between[0] >= 0:
            self.upper[stmt.name] = between[1]

    def _local(self, stmt: Local) -> None:
        if stmt.name not in self.buffers:
            padded = self.target.vector_bytes < 64  # without masks
            size = stmt.size + MOST_LANES * padded
            pointer = self.fn.alloca(memory_type(stmt.dtype), max(size, 1))
            self.buffers[stmt.name] = Buffer(
                lambda: pointer, stmt.dtype, True, stmt.size if padded else 0
            )

    # Checks

    def _check(
        self, stmt: Check, rest: Sequence[Stmt], finish: Finish, skipped: list[tuple[str, str]]
    ) -> list[str] | None:
        """Reports a failure and keeps what follows from happening: by a branch, or lane by lane."""
        ok, value = self.value(stmt.ok), self.value(stmt.value)
        self.scopes[-1].checked = True
        number = self.check_numbers[id(stmt)]
        if ok.lanes > 1:
            self._check_lanes(ok, value, number)
            return None
        fn = self.fn
        go_on, failed, end = fn.label("ok"), fn.label("failed"), fn.label("checked")
        fn.cond_br(ok.text, go_on, failed)
        fn.block(failed)
        reported = value.text if value.lanes == 1 else self._extract(value, "0")
        self._report(number, reported)
        fn.br(end)
        fn.block(go_on)
        results = self._run(rest, finish, skipped)
        latch = fn.current
        fn.br(end)
        fn.block(end)
        return [
            fn.phi(kind, ((old, failed), (new, latch)))
            for (kind, old), new in zip(skipped, results, strict=True)
        ]

    def _check_lanes(self, ok: Value, value: Value, number: int) -> None:
        """Lanes that fail are dead for the rest of the iteration."""
        fn, lanes = self.fn, ok.lanes
        scope = self.scopes[-1]
        operations = self.operations(lanes)
        bad = operations.binary("xor", dtypes.bool_, ok.text, "splat (i1 true)")
        if scope.mask is not None:
            bad = operations.binary("and", dtypes.bool_, bad, scope.mask)
        with fn.when(self.any_lane(bad, lanes)):
            bits = fn.let(f"bitcast <{lanes} x i1> {bad} to i{lanes}")
            self.module.declare(f"declare i{lanes} @llvm.cttz.i{lanes}(i{lanes}, i1)")
            first = fn.let(f"call i{lanes} @llvm.cttz.i{lanes}(i{lanes} {bits}, i1 true)")
            if lanes != 64:
                first = fn.let(f"{'zext' if lanes < 64 else 'trunc'} i{lanes} {first} to i64")
            self._report(number, value.text if value.lanes == 1 else self._extract(value, first))
        scope.mask = self.both((scope.mask, ok.text), lanes)

    def _extract(self, value: Value, lane: str) -> str:
        kind = register_type(value.dtype, value.lanes)
        return self.fn.let(f"extractelement {kind} {value.text}, i64 {lane}")

    def _report(self, number: int, value: str) -> None:
        arguments = f"ptr {self.status}", f"i64 {number}", f"i64 {value}"
        self.fn.call("void", FAIL, *arguments)
        if self.module.count_use(FAIL) == 1:
            _define_fail(self.module)

    # Loops

    def loop(self, loop: Loop) -> None:
        """Emits a loop in the current function and binds its carries' final values."""
        extent = loop.extent
        if isinstance(extent, int) and extent <= 0:
            for carry in loop.carries:
                self.bind(carry.name, self.value(carry.init))
            return
        if self.varies(extent):
            raise ValueError(f"loop {loop.var}: its extent {extent} differs between lanes")
        self._range(loop)
        reduced = self._nest(loop)
        if reduced is not None:
            for carry, result in zip(loop.carries, reduced, strict=True):
                self.bind(carry.name, Value(result, carry.dtype, 1, self.depth))
            return
        trips = self.index(extent)
        if loop.kind == "vector":
            self._guarded_loop(loop, trips, lambda: self._vector(loop, trips))
        else:
            self._guarded_loop(loop, trips, lambda: self.serial(loop, 0, trips))

    def _range(self, loop: Loop) -> None:
        self.upper[loop.var] = loop.extent - 1 if isinstance(loop.extent, int) else UNKNOWN

    def _guarded_loop(self, loop: Loop, trips: Index, emit: Callable[[], list[str]]) -> None:
        """Emits a loop whose preheader may assume at least one iteration."""
        fn = self.fn
        lanes = self.lanes
        inits = [self._in_lanes(self.value(c.init), lanes) for c in loop.carries]
        if self._certain(loop.extent):
            results = emit()
        else:
            before, then, end = fn.current, fn.label("some"), fn.label("none")
            enter = fn.cmp("sgt", trips, 0)
            fn.emit(f"br i1 {enter}, label %{then}, label %{end}")
            fn.block(then)
            scope = self.scopes[-1]
            known, checked = dict(scope.memo), scope.checked
            scope.checked = True  # loads stay inside: with no iteration there may be no memory
            results = emit()
            # what was computed since is not valid past the end
            scope.memo, scope.checked = known, checked
            latch = fn.current
            fn.br(end)
            fn.block(end)
            results = [
                fn.phi(register_type(c.dtype, lanes), ((init, before), (result, latch)))
                for c, init, result in zip(loop.carries, inits, results, strict=True)
            ]
        for carry, result in zip(loop.carries, results, strict=True):
            self.bind(carry.name, Value(result, carry.dtype, lanes, self.depth))

    def _certain(self, extent: Size) -> bool:
        """At least one iteration whatever the dims: a positive constant, no term negative."""
        if isinstance(extent, int):
            return extent > 0
        return _constant_term(extent) > 0 and self._non_negative(extent)

    def serial(self, loop: Loop, lo: Index, hi: Index) -> list[str]:
        """Iterations lo..hi in order (at least one); returns the carried values at the end."""
        lanes = self.lanes
        inits = [
            (register_type(c.dtype, lanes), self._in_lanes(self.value(c.init), lanes))
            for c in loop.carries
        ]
        return self._serial_from(loop, lo, hi, inits)

    def iteration(self, loop: Loop, index: Index) -> None:
        """One iteration of a loop without carries."""
        hoisted = Hoisted(self.fn.preheader())
        self.push(hoisted)
        self.bind(loop.var, Value(str(index), dtypes.i64, 1, self.depth))
        self.statements(loop.body)
        self.pop()
        hoisted.before.close()

    def _serial_from(
        self, loop: Loop, lo: Index, hi: Index, inits: list[tuple[str, str]]
    ) -> list[str]:
        fn, lanes = self.fn, self.lanes
        hoisted = Hoisted(fn.preheader())
        trip = fn.carry_loop(lo, hi, 1, inits)
        self.push(hoisted)
        # a vector loop's iterations may run one by one: its tail, or all of it
        index = fn.add(self.vector_base, trip.index) if loop.kind == "vector" else trip.index
        self.bind(loop.var, Value(str(index), dtypes.i64, 1, self.depth))
        for carry, text in zip(loop.carries, trip.values, strict=True):
            self.bind(carry.name, Value(text, carry.dtype, lanes, self.depth))
        carried = [(kind, text) for (kind, _), text in zip(inits, trip.values, strict=True)]
        new = self._run(loop.body, lambda: self._next(loop.carries, trip.values, None), carried)
        self.pop()
        hoisted.before.close()
        return trip.close(new)

    def _next(self, carries: Sequence[Carry], old: Sequence[str], mask: str | None) -> list[str]:
        """The carried values after an iteration; masked-off lanes keep theirs."""
        lanes = self.lanes
        new = [self._in_lanes(self.value(c.next), lanes) for c in carries]
        return combine_carries(self.operations(lanes), carries, old, new, mask)

    # Vector loops

    def _vector(self, loop: Loop, trips: Index) -> list[str]:
        """A vector loop of at least one iteration; returns the reduced carries."""
        if self.lanes > 1:
            raise ValueError(f"vector loop {loop.var} inside vector loop {self.vector_var}")
        plan = plan_vector(loop, trips if isinstance(trips, int) else loop.extent, self.target)
        if self.most_lanes:
            plan = replaced(plan, lanes=min(plan.lanes, self.most_lanes))
        if plan.lanes == 1:
            return self.serial(loop, 0, trips)
        inits = [self.value(c.init) for c in loop.carries]
        values = lane_inits(self, loop.carries, inits, plan.lanes)
        values = self._lane_passes(loop, plan, trips, values)
        results = finish_lanes(self.operations, loop.carries, inits, values, plan.lanes)
        if plan.tail == "scalar":
            whole = self.fn.mul(self.fn.floordiv(trips, plan.lanes), plan.lanes)
            results = self._scalar_tail(loop, whole, trips, results)
        return results

    def _lane_passes(
        self, loop: Loop, plan: VectorPlan, trips: Index, values: list[str]
    ) -> list[str]:
        """All iterations that are done in vectors; takes and returns the lanes' carried values."""
        fn, lanes = self.fn, plan.lanes
        hoisted = Hoisted(fn.preheader())
        kinds = [register_type(c.dtype, lanes) for c in loop.carries]
        self.lanes, self.vector_var, self.vector_level = lanes, loop.var, self.depth + 1
        self.vector_loop = id(loop)
        if plan.tail in ("none", "masked"):
            masked = plan.tail == "masked"
            values = self._lane_loop(loop, hoisted, trips, (kinds, values), masked, trips)
        elif plan.tail == "once":
            values = self._lane_body(loop, hoisted, 0, values, self.tail_mask(trips))
        else:
            whole = fn.mul(fn.floordiv(trips, lanes), lanes)
            values = self._lane_loop(loop, hoisted, trips, (kinds, values), False, whole)
            if plan.tail == "after":
                values = self._tail(loop, hoisted, trips, whole, (kinds, values))
        self.lanes, self.vector_var, self.vector_loop = 1, "", 0
        hoisted.before.close()
        return values

    # Reductions over several axes

    def _nest(self, loop: Loop) -> list[str] | None:
        """Serial loops around a vector loop, all reducing the same values: the lanes are carried
        through all of them and combined once. None if the loop is not such a nest."""
        chain = _reduction_chain(loop)
        if self.lanes > 1 or chain is None or not all(self._certain(c.extent) for c in chain):
            return None
        inner = chain[-1]
        plan = plan_vector(inner, inner.extent, self.target)
        if plan.lanes == 1 or plan.tail == "scalar":
            return None
        inits = [self.value(c.init) for c in loop.carries]
        values = lane_inits(self, inner.carries, inits, plan.lanes)
        values = self._nest_level(chain, plan, values)
        return finish_lanes(self.operations, inner.carries, inits, values, plan.lanes)

    def _nest_level(self, chain: Sequence[Loop], plan: VectorPlan, values: list[str]) -> list[str]:
        loop = chain[0]
        self._range(loop)
        trips = self.index(loop.extent)
        if len(chain) == 1:
            return self._lane_passes(loop, plan, trips, values)
        fn = self.fn
        kinds = [register_type(c.dtype, plan.lanes) for c in loop.carries]
        hoisted = Hoisted(fn.preheader())
        trip = fn.carry_loop(0, trips, 1, list(zip(kinds, values, strict=True)))
        self.push(hoisted)
        self.bind(loop.var, Value(str(trip.index), dtypes.i64, 1, self.depth))
        self.statements(loop.body[:-1])
        new = self._nest_level(chain[1:], plan, trip.values)
        self.pop()
        hoisted.before.close()
        return trip.close(new)

    def _lane_loop(
        self,
        loop: Loop,
        hoisted: Hoisted,
        trips: Index,
        carried: tuple[list[str], list[str]],
        masked: bool,
        hi: Index,
    ) -> list[str]:
        """Vectors from 0 up to `hi`; `masked` where the last may pass `trips`."""
        fn = self.fn
        trip = fn.carry_loop(0, hi, self.lanes, list(zip(*carried, strict=True)))
        mask = self.tail_mask(fn.sub(trips, trip.index)) if masked else None
        self.all_masked = masked
        new = self._lane_body(loop, hoisted, trip.index, trip.values, mask)
        self.all_masked = False
        return trip.close(new)

    def _tail(
        self,
        loop: Loop,
        hoisted: Hoisted,
        trips: Index,
        whole: Index,
        carried: tuple[list[str], list[str]],
    ) -> list[str]:
        """The masked vector after the whole ones; a mask of no lanes does no harm to carries."""
        fn, values = self.fn, carried[1]
        rest = fn.sub(trips, whole)
        if loop.carries or isinstance(rest, int):
            return self._lane_body(loop, hoisted, whole, values, self.tail_mask(rest))
        with fn.when(fn.cmp("sgt", rest, 0)):
            self._lane_body(loop, hoisted, whole, values, self.tail_mask(rest))
        return []

    def tail_mask(self, rest: Index) -> str:
        """The first `rest` lanes; all where there are more."""
        lanes = self.lanes
        if isinstance(rest, int):
            return "<" + ", ".join(f"i1 {str(lane < rest).lower()}" for lane in range(lanes)) + ">"
        fn = self.fn
        count = fn.let(f"trunc i64 {fn.smin(rest, lanes)} to i32")
        splat = self.splat_now(count, dtypes.i32, lanes)
        numbers = ", ".join(f"i32 {lane}" for lane in range(lanes))
        return fn.let(f"icmp slt <{lanes} x i32> <{numbers}>, {splat}")

    def _lane_body(
        self,
        loop: Loop,
        hoisted: Hoisted,
        start: Index,
        values: Sequence[str],
        mask: str | None,
    ) -> list[str]:
        """One vector of iterations from `start`; returns the lanes' carried values."""
        self.push(hoisted, mask)
        first = self.fn.add(self.vector_base, start)
        self.bind(loop.var, Value(str(first), dtypes.i64, 1, self.depth))
        kinds = [register_type(c.dtype, self.lanes) for c in loop.carries]
        for carry, text in zip(loop.carries, values, strict=True):
            self.bind(carry.name, Value(text, carry.dtype, self.lanes, self.depth))

        if mask is None:
            self.ask_to_write()

        def finish() -> list[str]:
            return self._next(loop.carries, values, self.scopes[-1].mask)

        new = self._run(loop.body, finish, list(zip(kinds, values, strict=True)))
        self.pop()
        return new

    def _scalar_tail(self, loop: Loop, whole: Index, trips: Index, results: list[str]) -> list[str]:
        """The iterations after the whole vectors one by one, going on from their result."""
        fn = self.fn
        if isinstance(whole, int) and isinstance(trips, int):
            certain = whole < trips
            if not certain:
                return results
        before, then, end = fn.current, fn.label("rest"), fn.label("whole")
        enter = fn.cmp("slt", whole, trips)
        fn.emit(f"br i1 {enter}, label %{then}, label %{end}")
        fn.block(then)
        inits = [
            (register_type(c.dtype), text) for c, text in zip(loop.carries, results, strict=True)
        ]
        after = self._serial_from(loop, whole, trips, inits)
        latch = fn.current
        fn.br(end)
        fn.block(end)
        return [
            fn.phi(kind, ((old, before), (new, latch)))
            for (kind, old), new in zip(inits, after, strict=True)
        ]


def _reduction_chain(loop: Loop) -> list[Loop] | None:
    """The loops of a nest whose every level only passes the level below on, the vector loop last.

    A level holds Lets and then the next loop, whose carries start from the identity and are its
    own carries' next values, combined alike.
    """
    chain = [loop]
    while chain[-1].kind == "serial":
        outer = chain[-1]
        inner = outer.body[-1] if outer.body else None
        plain = all(isinstance(stmt, Let) for stmt in outer.body[:-1])
        if not isinstance(inner, Loop) or not plain or len(inner.carries) != len(outer.carries):
            return None
        if not all(map(_passes_on, outer.carries, inner.carries)):
            return None
        chain.append(inner)
    return chain if loop.carries and len(chain) > 1 and chain[-1].kind == "vector" else None


def _passes_on(outer: Carry, inner: Carry) -> bool:
    if outer.combine != inner.combine or outer.combine not in COMBINES:
        return False
    next_, init = outer.next, inner.init
    if not isinstance(next_, Var) or next_.name != inner.name or not isinstance(init, Literal):
        return False
    return init.value == identity(inner.combine, inner.dtype)


def _constant_term(size: Dim) -> int:
    return sum(c for m, c in size.terms if not m)


def _define_fail(module: Module) -> None:
    """@graphc.fail(status, check, value): the first failure of a call is the one kept."""
    fn = module.function(
        f"void {FAIL}(ptr %status, i64 %check, i64 %value)", "internal", "noinline cold nounwind"
    )
    pair = fn.let("cmpxchg ptr %status, i64 0, i64 1 monotonic monotonic")
    with fn.when(fn.let(f"extractvalue {{ i64, i1 }} {pair}, 1")):
        fn.store("%check", "i64", fn.gep("%status", 2, "i64"), 8)
        fn.store("%value", "i64", fn.gep("%status", 3, "i64"), 8)
    fn.ret()
