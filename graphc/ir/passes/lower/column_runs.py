"""Long sums over rows: along whole rows, a few at a time, whose sums are kept in Locals.

A lane that goes along its own column reads a piece of each row, every one of another page: memory
gives that at a third of its speed. So an iteration has whole rows, or long runs of them, and where
that leaves too few iterations, some of the rows: what these give is added up in a second stage.
The pieces are cut by shape, so no bit depends on the number of threads.
"""

from __future__ import annotations

from collections.abc import Callable

from ...dim import Size, ceil_div, maximum, minimum, product, unwrap
from ...kernel import Carry, Kernel, Param, Var
from ...record import replaced
from .body import Body, carrier
from .index_maps import Digit
from .loops import dims_of, weight
from .nest import Axis, digits, hint, make_kernel, open_outer
from .reduction import COMBINES, bind_result, combined, final_value, identity
from .rows_plan import ReductionPlan
from .scope import Value, Writer
from .staged import open_places, over_pieces
from .values import Values
from .walks import carries_of_pass, flat_position, full_place, store_kept

ROWS = 6  # at a time: rows a page apart share the ways of the first cache with the sums
LONG = 64  # rows from which on it is worth it
LEAST = 10  # blocks of rows of a piece
PIECE = 40  # of rows of a symbolic number


def goes_in_runs(body: Body, plan: ReductionPlan) -> bool:
    """Whether a group, whose lanes have columns, is nothing but such sums."""
    inner = plan.axes[plan.vector]
    if not body.machine.column_run or len(plan.reductions) != 1 or any(plan.full):
        return False
    if len(plan.reduced_axes) != 1:
        return False
    rows = plan.reduced_axes[0].size
    plain = all(node.op.family == "reduce" for node in plan.reductions[0])
    return plain and hint(body, inner.size) >= body.machine.columns and (
        not isinstance(rows, int) or rows >= LONG
    )


def lower_runs(body: Body, plan: ReductionPlan) -> Kernel:
    """The kernel of such a group."""
    return _Runs(body, plan).kernel()


class _Runs:
    """The stages: sums of pieces, and where there are several, of these."""

    def __init__(self, body: Body, plan: ReductionPlan) -> None:
        self.body, self.plan = body, plan
        self.inner = plan.axes[plan.vector]
        (self.reduced,) = plan.reduced_axes
        self.reduced.var = "r0"
        self.nodes = plan.reductions[0]
        self.dtypes = [carrier(node.inputs[0].dtype) for node in self.nodes]
        self.outer = [a for a in plan.kept_axes if a is not self.inner]
        self.run = self._run()
        self.blocks = unwrap(self.reduced.size // ROWS)
        self.piece = self._piece()
        self.pieces = maximum(1, ceil_div(self.blocks, self.piece))
        self.places = unwrap(product(a.size for a in plan.kept_axes))
        # where an iteration is: along each kept axis but the run's, which piece, where its run is
        self.kept: list[Size] = []
        self.number: Size = 0
        self.start: Size = 0
        self.extent: Size = 0

    def _run(self) -> int:
        """Columns of an iteration: runs are as long as each other, in whole blocks."""
        size, machine = self.inner.size, self.body.machine
        if not isinstance(size, int):
            return machine.column_run
        count = -(-size // machine.column_run)
        return min(size, -(-size // count // machine.columns) * machine.columns)

    def _piece(self) -> int:
        """Blocks of an iteration: few enough that there are iterations for all workers."""
        machine, blocks = self.body.machine, self.blocks
        if not isinstance(blocks, int):
            return PIECE
        size = hint(self.body, self.inner.size)
        others = hint(self.body, unwrap(product(a.size for a in self.outer)))
        runs = others * -(-size // self.run)
        elements = others * size * blocks * ROWS
        if runs >= machine.parallelism or elements < machine.split_least:
            return blocks
        return min(blocks, max(-(-blocks * runs // machine.parallelism), LEAST))

    def kernel(self) -> Kernel:
        apart = self.pieces != 1
        total = unwrap(self.pieces * self.places)
        scratch = [Param(f"s{i}", d, total, "scratch") for i, d in enumerate(self.dtypes) if apart]
        writer = Writer(self.body.machine.hoists)
        self._sums(writer)
        self._lanes(writer, self._keep if apart else self._finish)
        stages = [_closed(writer)]
        if apart:
            writer = Writer(self.body.machine.hoists)
            self._combine(Values(self.body, writer))
            stages.append(_closed(writer))
        return make_kernel(self.body, [s.finish() for s in stages], dims_of(self.body), scratch)

    def _sums(self, writer: Writer) -> None:
        """Open the loop over all iterations: the sums of each are in its Locals."""
        self._open(writer)
        self._lanes(writer, self._begin)
        first = unwrap(self.number * self.piece)
        even = isinstance(self.blocks, int) and self.blocks % self.piece == 0
        extent = self.piece if even else minimum(self.piece, unwrap(self.blocks - first))
        block = writer.open("serial", "b", extent)
        at = unwrap((first + block) * ROWS)
        self._lanes(writer, lambda writer, v: self._add(writer, v, at, ROWS))
        writer.close()
        whole = unwrap(self.blocks * ROWS)
        left = unwrap(self.reduced.size - whole)
        if left != 0:  # the first piece has them
            left = unwrap(left * maximum(0, unwrap(1 - self.number)))
            self._lanes(writer, lambda writer, v: self._add(writer, v, whole, left))

    def _open(self, writer: Writer) -> None:
        size = self.inner.size
        axes = [*self.outer, Axis(self.pieces), Axis(ceil_div(size, self.run))]
        self.kept = open_outer(
            writer, self.body, axes, self.run * self.piece * ROWS, weight(self.body)
        )
        self.start = unwrap(self.kept.pop() * self.run)
        self.number = self.kept.pop()
        even = isinstance(size, int) and size % self.run == 0
        self.extent = self.run if even else minimum(self.run, unwrap(size - self.start))
        for i, dtype in enumerate(self.dtypes):
            writer.local(_name(i), dtype, self.run)

    def _lanes(self, writer: Writer, body: Callable[[Writer, Size], None]) -> None:
        v = writer.open("vector", "v", self.extent)
        body(writer, v)
        writer.close()

    def _roots(self, v: Size) -> list[Size]:
        roots = list(self.kept)
        roots.insert(self.plan.kept_axes.index(self.inner), unwrap(self.start + v))
        return roots

    def _begin(self, writer: Writer, v: Size) -> None:
        for i, node in enumerate(self.nodes):
            start = identity(COMBINES[node.op.name], self.dtypes[i])
            writer.store(_name(i), v, start)

    def _add(self, writer: Writer, v: Size, first: Size, rows: Size) -> None:
        """The sums of a lane and so many rows more."""
        values = Values(self.body, writer)
        before = self._loaded(writer, v)
        row = unwrap(first + writer.open("serial", "r0", rows))
        place: tuple[Digit, ...] = full_place(
            self.plan, self._roots(v), {self.reduced.var: row}
        )
        carries = [
            replaced(carry, init=start)
            for carry, start in zip(
                carries_of_pass(self.body, self.plan, values, place, 0), before, strict=True
            )
        ]
        writer.close(carries)
        for i, carry in enumerate(carries):
            writer.store(_name(i), v, Var(carry.name, carry.dtype))

    def _loaded(self, writer: Writer, v: Size) -> list[Value]:
        return [writer.load(_name(i), v, dtype) for i, dtype in enumerate(self.dtypes)]

    def _keep(self, writer: Writer, v: Size) -> None:
        """A piece's sums go to memory."""
        flat = flat_position(self.plan.kept_axes, self._roots(v))
        index = unwrap(self.number * self.places + flat)
        for i, total in enumerate(self._loaded(writer, v)):
            writer.store(f"s{i}", index, total)

    def _finish(self, writer: Writer, v: Size) -> None:
        self._results(Values(self.body, writer), self._loaded(writer, v),
                      digits(self.plan.kept_axes, self._roots(v)))

    def _combine(self, values: Values) -> None:
        """The sums of all pieces."""
        flat, lanes = open_places(values, self.places, self.pieces)

        def carries(piece: Size) -> list[Carry]:
            index = unwrap(piece * self.places + flat)
            found: list[Carry] = []
            for i, node in enumerate(self.nodes):
                part = values.writer.load(f"s{i}", index, self.dtypes[i])
                found += combined(values, node, [part])
            return found

        totals = over_pieces(values, self.pieces, lanes, carries)
        self._results(values, totals, digits([Axis(self.places)], [flat]))

    def _results(
        self, values: Values, totals: list[Value], place: tuple[Digit, ...]
    ) -> None:
        for node, total in zip(self.nodes, totals, strict=True):
            bind_result(values, node, final_value(values, node, [total]), place)
        store_kept(self.body, self.plan, values, place)


def _closed(writer: Writer) -> Writer:
    while len(writer.scopes) > 1:
        writer.close()
    return writer


def _name(i: int) -> str:
    return f"run{i}"
