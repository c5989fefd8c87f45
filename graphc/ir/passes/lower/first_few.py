"""topk of few, one element after another: those found so far lie in order in a Local, and most
elements are looked at once, beside the last of them. Stable, for every dtype; NaN counts as the
largest.
"""

from __future__ import annotations

import math

from ... import dtypes
from ...dim import minimum, unwrap
from ...graph import Node
from ...kernel import Carry, Kernel, Literal
from ...machine import Machine
from .body import Body, zero
from .loops import dims_of
from .merge_sort import Rows, before, comparable, lower_merges, put, rows_of
from .nest import Axis, make_kernel, open_outer
from .scan import carried, close_all
from .scope import Value, Writer, as_size
from .values import Values

_KEPT, _PLACES = "kept", "places"
_WEIGHT = 4  # of a look, beside light work


def few(node: Node, machine: Machine) -> bool:
    """Whether it is a topk that is quickly done so: whatever the order of its numbers it compares
    no more than `few_compared`, and most of them cost one look where they are in none."""
    if node.op.name != "topk" or machine.sorting is not None:
        return False
    shape, wanted = node.inputs[0].shape, node.attrs["k"]
    sizes = [size for size in shape if isinstance(size, int)]
    if len(sizes) < len(shape) or not isinstance(wanted, int):
        return False
    return 0 < wanted * wanted <= 4 * sizes[node.attrs["dim"]] and (
        math.prod(sizes) * wanted <= machine.few_compared
    )


def lower_sort(body: Body, node: Node) -> Kernel:
    """The kernel of sort or topk."""
    rows = rows_of(body, node)
    return _first_few(body, rows) if few(node, body.machine) else lower_merges(body, rows)


def _first_few(body: Body, rows: Rows) -> Kernel:
    dtype, length, most = rows.node.inputs[0].dtype, rows.length, rows.most
    assert isinstance(length, int)
    assert isinstance(most, int)
    writer = Writer()
    values = Values(body, writer)
    (row,) = open_outer(writer, body, [Axis(rows.rows)], length, _WEIGHT)
    writer.local(_KEPT, dtype, most)
    writer.local(_PLACES, dtypes.i64, most)

    j = writer.open("serial", "j", length)
    place = writer.index_value(j)
    found = values.stored(rows.read(values, row, j), dtype)
    inner = len(writer.scopes) - 1
    full = writer.apply("ge", dtypes.bool_, place, Literal(most, dtypes.i64))
    last = writer.load(_KEPT, most - 1, dtype, full, zero(dtype), inner)
    enters = writer.apply(
        "logical_or", dtypes.bool_, writer.apply("logical_not", dtypes.bool_, full),
        _comes_before(values, rows, found, last),
    )
    held = writer.index_value(unwrap(minimum(j + 1, most)))
    steps = writer.apply("where", dtypes.i64, enters, held, Literal(0, dtypes.i64))

    # the bound again: nothing else is known of the steps
    i = writer.open("serial", "i", minimum(as_size(steps), most))
    mine, from_there, moved = (carried(writer, kind) for kind in (dtype, dtypes.i64, dtypes.bool_))
    taken = writer.apply("lt", dtypes.bool_, writer.index_value(i), place)
    inner = len(writer.scopes) - 1
    theirs, their_place = (
        writer.load(buffer, i, kind, taken, zero(kind), inner)
        for buffer, kind in ((_KEPT, dtype), (_PLACES, dtypes.i64))
    )
    # behind the one that makes room, each goes on by one: of equals, too
    first = writer.apply("logical_or", dtypes.bool_, moved, writer.apply(
        "logical_or", dtypes.bool_, writer.apply("logical_not", dtypes.bool_, taken),
        _comes_before(values, rows, mine, theirs),
    ))
    pairs = (_KEPT, dtype, mine, theirs), (_PLACES, dtypes.i64, from_there, their_place)
    stays = [writer.apply("where", kind, first, a, b) for _, kind, a, b in pairs]
    goes_on = [writer.apply("where", kind, first, b, a) for _, kind, a, b in pairs]
    for (buffer, *_), value in zip(pairs, stays, strict=True):
        writer.store(buffer, i, value)
    writer.close([
        Carry(mine.name, dtype, found, "set", goes_on[0]),
        Carry(from_there.name, dtypes.i64, place, "set", goes_on[1]),
        Carry(moved.name, dtypes.bool_, Literal(False, dtypes.bool_), "set", first),
    ])
    writer.close()

    o = writer.open("serial", "o", most)
    inner = len(writer.scopes) - 1
    result = tuple(
        writer.load(buffer, o, kind, least=inner)
        for buffer, kind in ((_KEPT, dtype), (_PLACES, dtypes.i64))
    )
    put(values, rows, None, row, writer.index_value(o), result)
    return make_kernel(body, [close_all(writer)], dims_of(body))


def _comes_before(values: Values, rows: Rows, a: Value, b: Value) -> Value:
    one, other = (comparable(values, values.widened(x)) for x in (a, b))
    return before(values, rows, one, other)
