"""A sparse matrix times a dense one -> a kernel: row by row, its sums beside each other in a Local.

A row's entries are gone along in order, each of which adds a row of the dense matrix. So no result
is written twice, rows go to any thread, and what a row comes to depends on its own entries alone.
"""

from __future__ import annotations

from ... import dtypes
from ...dim import Size, ceil_div, minimum, unwrap
from ...graph import Node
from ...kernel import Kernel, Literal
from .body import Body, carrier
from .index_maps import exact
from .loops import dims_of
from .moves import Condition
from .nest import Axis, hint, make_kernel, open_outer
from .scan import close_all
from .scope import Value, Writer, as_size
from .values import Values

_SUMS = "sums"
_WEIGHT = 4  # of an entry's step for one column, beside light work: rows lie anywhere in memory


def lower_sparse_product(body: Body, node: Node) -> Kernel:
    """The kernel of sparse_product."""
    _, dense, _, _, ends, order = node.inputs[:6]
    (rows, width), (count,) = body.shape(node), body.shape(order)
    writer = Writer()
    values = Values(body, writer)
    most = body.machine.columns
    block = width if isinstance(width, int) and width <= most else most
    each = max(1, hint(body, count) // hint(body, rows)) * block
    row, part = open_outer(
        writer, body, [Axis(rows), Axis(ceil_div(width, block))], each, _WEIGHT
    )
    first = unwrap(part * block)
    even = isinstance(width, int) and width % block == 0
    extent = block if even else minimum(block, unwrap(width - first))
    wide = carrier(node.dtype)
    writer.local(_SUMS, wide, block)
    low, length = _entries(values, ends, row, count)

    v = writer.open("vector", "v", extent)
    writer.store(_SUMS, v, Literal(0.0 if wide.is_float else 0, wide))
    writer.close()

    # the bound again: nothing else is known of what was counted
    step = writer.open("serial", "e", minimum(length, count))
    factor, place = _entry(values, node, unwrap(low + step))
    u = writer.open("vector", "u", extent)
    at = values.at((exact(place, body.shape(dense)[0]), exact(unwrap(first + u), width)))
    held = writer.load(_SUMS, u, wide)
    writer.store(_SUMS, u, _added(writer, factor, values.value(dense, at), held))
    writer.close()
    writer.close()

    w = writer.open("vector", "w", extent)
    total = writer.load(_SUMS, w, wide)
    index = values.flat(node, values.at((exact(row, rows), exact(unwrap(first + w), width))))
    writer.store("o0", index, values.stored(total, node.dtype))
    return make_kernel(body, [close_all(writer)], dims_of(body))


def _entries(values: Values, ends: Node, row: Size, count: Size) -> tuple[Size, Size]:
    """Where a row's entries begin among all, and how many it has; checked."""
    writer = values.writer
    (rows,) = values.body.shape(ends)
    before = unwrap(row - 1)
    low = values.value(
        ends, values.at((exact(before, rows),), (Condition(before, 0, rows),))
    ) if rows != 1 else Literal(0, dtypes.i64)
    high = values.value(ends, values.at((exact(row, rows),)))
    zero, limit = Literal(0, dtypes.i64), writer.index_value(count)
    ascends = writer.apply(
        "logical_and", dtypes.bool_, writer.apply("ge", dtypes.bool_, low, zero),
        writer.apply("le", dtypes.bool_, low, high),
    )
    ok = values.both(ascends, writer.apply("le", dtypes.bool_, high, limit))
    writer.check(ok, "IndexError: a row of a sparse matrix ends at {value}", high)
    return as_size(low), as_size(writer.apply("sub", dtypes.i64, high, low))


def _entry(values: Values, node: Node, step: Size) -> tuple[Value, Size]:
    """The number of the entry at a step of the walk, and its column; checked."""
    entries, dense, _, columns, _, order = node.inputs[:6]
    body, whole = values.body, values.at(())
    (count,) = body.shape(order)
    found = values.value(order, values.at((exact(step, count),)))
    which = as_size(values.checked_index(found, count, 0, whole, False))
    column = values.value(columns, values.at((exact(which, count),)))
    place = as_size(values.checked_index(column, body.shape(dense)[0], 0, whole, False))
    return values.value(entries, values.at((exact(which, count),))), place


def _added(writer: Writer, factor: Value, x: Value, held: Value) -> Value:
    if held.dtype.is_float:
        return writer.apply("fma", held.dtype, factor, x, held)
    return writer.apply("add", held.dtype, held, writer.apply("mul", held.dtype, factor, x))
