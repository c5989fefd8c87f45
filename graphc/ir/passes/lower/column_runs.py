"""Long sums over rows, of many columns: the columns of a few rows at a time, in long runs.

A lane that goes along its own column reads a piece of each row, every one of another page: memory
gives that at a third of its speed. Here an iteration has a run of columns, whose sums it keeps in
Locals, and adds some rows at a time to them. The order of each column's additions is the same.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from ...dim import Size, ceil_div, minimum, unwrap
from ...kernel import Var
from .body import Body, carrier
from .index_maps import Digit
from .loops import weight
from .nest import Axis, digits, open_outer
from .reduction import COMBINES, bind_result, final_value, identity
from .rows_plan import ReductionPlan
from .scope import Writer
from .values import Values
from .walks import carries_of_pass, full_place, store_kept

ROWS = 8  # at a time: as many streams as the first cache has ways
LONG = 64  # rows from which on it is worth it


def goes_in_runs(body: Body, plan: ReductionPlan) -> bool:
    """Whether a group, whose lanes have columns, is nothing but such sums."""
    run, inner = body.machine.column_run, plan.axes[plan.vector]
    if not run or len(plan.reductions) != 1 or any(plan.full) or len(plan.reduced_axes) != 1:
        return False
    rows = plan.reduced_axes[0].size
    if not isinstance(rows, int) or not isinstance(inner.size, int):
        return False
    plain = all(node.op.family == "reduce" for node in plan.reductions[0])
    return plain and rows >= LONG and inner.size >= 2 * run


class ColumnRuns:
    """The loops of such a group."""

    def __init__(self, body: Body, plan: ReductionPlan, writer: Writer) -> None:
        self.body, self.plan, self.writer = body, plan, writer
        self.inner = plan.axes[plan.vector]
        (self.reduced,) = plan.reduced_axes
        self.reduced.var = "r0"
        self.nodes = plan.reductions[0]
        self.dtypes = [carrier(node.inputs[0].dtype) for node in self.nodes]
        self.kept: list[Size] = []  # where the iteration is along each kept axis
        self.start: Size = 0
        self.extent: Size = 0

    def write(self) -> None:
        rows = self.reduced.size
        assert isinstance(rows, int)
        self._open()
        self._lanes(self._begin)
        whole = rows // ROWS * ROWS
        block = self.writer.open("serial", "b", whole // ROWS)
        self._lanes(lambda v: self._add(v, unwrap(block * ROWS), ROWS))
        self.writer.close()
        if whole < rows:
            self._lanes(lambda v: self._add(v, whole, rows - whole))
        self._lanes(self._finish)
        while len(self.writer.scopes) > 1:
            self.writer.close()

    def _open(self) -> None:
        plan, run = self.plan, self.body.machine.column_run
        size, rows = self.inner.size, self.reduced.size
        assert isinstance(size, int) and isinstance(rows, int)
        outer = [a for i, a in enumerate(plan.axes) if not a.reduced and i != plan.vector]
        self.kept = open_outer(
            self.writer, self.body, [*outer, Axis(ceil_div(size, run))], run * rows,
            weight(self.body),
        )
        self.start = unwrap(self.kept.pop() * run)
        self.extent = run if size % run == 0 else minimum(run, unwrap(size - self.start))
        for i, dtype in enumerate(self.dtypes):
            self.writer.local(_name(i), dtype, run)

    def _lanes(self, body: Callable[[Size], None]) -> None:
        v = self.writer.open("vector", "v", self.extent)
        body(v)
        self.writer.close()

    def _roots(self, v: Size) -> list[Size]:
        before = sum(not a.reduced for a in self.plan.axes[: self.plan.vector])
        roots = list(self.kept)
        roots.insert(before, unwrap(self.start + v))
        return roots

    def _begin(self, v: Size) -> None:
        for i, node in enumerate(self.nodes):
            start = identity(COMBINES[node.op.name], self.dtypes[i])
            self.writer.store(_name(i), v, start)

    def _add(self, v: Size, first: Size, rows: int) -> None:
        """The sums of a lane and so many rows more."""
        writer, values = self.writer, Values(self.body, self.writer)
        before = [writer.load(_name(i), v, dtype) for i, dtype in enumerate(self.dtypes)]
        row = unwrap(first + writer.open("serial", "r0", rows))
        place: tuple[Digit, ...] = full_place(
            self.plan, self._roots(v), {self.reduced.var: row}
        )
        carries = [
            replace(carry, init=start)
            for carry, start in zip(
                carries_of_pass(self.body, self.plan, values, place, 0), before, strict=True
            )
        ]
        writer.close(carries)
        for i, carry in enumerate(carries):
            writer.store(_name(i), v, Var(carry.name, carry.dtype))

    def _finish(self, v: Size) -> None:
        values = Values(self.body, self.writer)
        place = digits(self.plan.kept_axes, self._roots(v))
        for i, node in enumerate(self.nodes):
            total = self.writer.load(_name(i), v, self.dtypes[i])
            bind_result(values, node, final_value(values, node, [total]), place)
        store_kept(self.body, self.plan, values, place)


def _name(i: int) -> str:
    return f"run{i}"
