"""Sums over rows beside what goes along each row: an iteration takes some rows, one after another,
and keeps a sum for each column in Locals; a second stage adds up those of all iterations.

So the gradients of a layer norm's weight and bias cost no reading of their own.
"""

from __future__ import annotations

from ...dim import Size, ceil_div, minimum, product, unwrap
from ...kernel import Carry, Param, Stmt
from .body import Body, carrier
from .cuts import Cuts
from .index_maps import Digit
from .loops import weight
from .nest import Axis, coordinates, digits, hint, open_outer, unravelled
from .reduction import bind_result, combined, final_value, identity
from .rows_plan import ReductionPlan
from .scope import Writer
from .staged import open_places, over_pieces
from .values import Values
from .walks import open_reduced


class ColumnSums:
    """The stages of a kernel of rows that has sums over rows, too."""

    def __init__(self, body: Body, cuts: Cuts) -> None:
        self.body, self.cuts, self.plan = body, cuts, cuts.plan
        self.nodes = [node for nodes in self.plan.columns for node in nodes]
        self.dtypes = [carrier(node.inputs[0].dtype) for node in self.nodes]
        self.width = unwrap(product(a.size for a in self.plan.reduced_axes))
        self.rows = unwrap(product(a.size for a in self.plan.kept_axes))
        self.each = self._rows_each()
        self.count = ceil_div(self.rows, self.each)
        self.scratch = [
            Param(f"s{i}", dtype, unwrap(self.count * self.width), "scratch")
            for i, dtype in enumerate(self.dtypes)
        ]
        self.number: Size = 0  # of the iteration

    def _rows_each(self) -> int:
        """Rows of one iteration: few enough that there are iterations for all workers."""
        machine = self.body.machine
        steps = -(-hint(self.body, self.width) // machine.columns)
        shared = hint(self.body, self.rows) * 2 // machine.parallelism
        rows = min(max(shared, machine.rows_least), machine.lane_steps // steps)
        return 1 << (max(rows, 1).bit_length() - 1)

    def open_rows(self, values: Values) -> list[Size]:
        """Open the loops over rows, the sums at zero: where the row is along each kept axis."""
        body, writer = self.body, values.writer
        assert isinstance(self.width, int)
        (self.number,) = open_outer(
            writer, body, [Axis(self.count)], self.each * self.width, weight(body)
        )
        start = unwrap(self.number * self.each)
        for i, dtype in enumerate(self.dtypes):
            writer.local(_name(i), dtype, self.width)
        walk = open_reduced(body, self.cuts, writer)
        for i, dtype in enumerate(self.dtypes):
            writer.store(_name(i), walk.inside, identity("add", dtype))
        for _ in walk.loops:
            writer.close()
        even = isinstance(self.rows, int) and self.rows % self.each == 0
        extent = self.each if even else minimum(self.each, unwrap(self.rows - start))
        row = unwrap(start + writer.open("serial", "row", extent))
        return unravelled(writer, row, self.plan.kept_axes)

    def close_rows(self, values: Values) -> tuple[Stmt, ...]:
        """The end of the first stage: the sums go to memory."""
        writer = values.writer
        writer.close()
        walk = open_reduced(self.body, self.cuts, writer)
        index = unwrap(self.number * self.width + walk.inside)
        for i, dtype in enumerate(self.dtypes):
            writer.store(f"s{i}", index, writer.load(_name(i), walk.inside, dtype))
        while len(writer.scopes) > 1:
            writer.close()
        return writer.finish()

    def combine(self) -> tuple[Stmt, ...]:
        """The second stage: the sums of all iterations, and what is computed from them."""
        body = self.body
        values = Values(body, Writer(body.machine.hoists))
        flat, lanes = open_places(values, self.width, self.count)

        def carries(piece: Size) -> list[Carry]:
            index = unwrap(piece * self.width + flat)
            found: list[Carry] = []
            for i, node in enumerate(self.nodes):
                part = values.writer.load(f"s{i}", index, self.dtypes[i])
                found += combined(values, node, [part])
            return found

        place = digits([Axis(self.width)], [flat])
        results = over_pieces(values, self.count, lanes, carries)
        for node, result in zip(self.nodes, results, strict=True):
            bind_result(values, node, final_value(values, node, [result]), place)
        for i in self.plan.column_results:
            output = body.graph.outputs[i]
            at = values.at(coordinates(place, body.shape(output)))
            value = values.stored(values.value(output, at), output.dtype)
            values.writer.store(f"o{i}", values.flat(output, at), value)
        while len(values.writer.scopes) > 1:
            values.writer.close()
        return values.writer.finish()


def add_columns(
    values: Values, plan: ReductionPlan, place: tuple[Digit, ...], inside: Size, number: int
) -> None:
    """Add what a pass gives to the sums over rows."""
    body = values.body
    first = sum(map(len, plan.columns[:number]))
    for i, node in enumerate(plan.columns[number]):
        (source,) = node.inputs
        value = values.value(source, values.at(coordinates(place, body.shape(source))))
        values.writer.store(_name(first + i), inside, value, combine="add")


def _name(number: int) -> str:
    return f"sum{number}"
