"""What a scan stacks is stacked once: not again what is a sequence already, or stacked before, and
the row that a carried value ends as is read where that is."""

from __future__ import annotations

from typing import Any

from ...dim import unwrap
from ...graph import Expr, get_
from ...op import get
from ...rewrite import Match, Rules, p

RULES = Rules("loops")


@RULES.add(p.get(p.scan(name="loop")))
def stacked_sequence(m: Match) -> Any:
    """A step that hands out what it reads: its rows are the sequence's, in either direction."""
    loop, carried = m.node("loop"), m.attr("n_carried", "loop")
    (body,) = loop.graphs
    value, sequences = body.outputs[m.attr("index")], body.inputs[carried:]
    if m.attr("index") < carried or value not in sequences:
        return None
    return Expr(m.builder, loop.inputs[carried + sequences.index(value)])


@RULES.add(p.get(p.scan(name="loop")))
def stacked_twice(m: Match) -> Any:
    """A step that hands one value out twice."""
    loop, index, carried = m.node("loop"), m.attr("index"), m.attr("n_carried", "loop")
    (body,) = loop.graphs
    if index < carried:
        return None
    first = carried + body.outputs[carried:].index(body.outputs[index])
    if first == index:
        return None
    return Expr(m.builder, m.builder.emit(get_, loop, index=first))


@RULES.add(
    p.slice(p.get(p.scan(name="loop"), name="stacked")),
    p.slice(p.permute(p.get(p.scan(name="loop"), name="stacked"), name="moved")),
)
def last_row(m: Match) -> Any:
    """The row of the last step, of what steps end with: the carried value behind the loop."""
    loop, index, carried = m.node("loop"), m.attr("index", "stacked"), m.attr("n_carried", "loop")
    (body,) = loop.graphs
    if index < carried or body.outputs[index] not in body.outputs[:carried]:
        return None
    moved = m.root.inputs[0]
    dims = moved.attrs["dims"] if moved.op.name == "permute" else range(len(moved.shape))
    rows = list(dims).index(0)
    last = 0 if m.attr("reverse", "loop") else unwrap(moved.shape[rows] - 1)
    if m.shape[rows] != 1 or m.attr("starts")[rows] != last:
        return None
    value = Expr(m.builder, m.builder.emit(
        get_, loop, index=body.outputs.index(body.outputs[index])
    ))
    row = get("permute")(get("reshape")(value, shape=(1, *value.shape)), dims=tuple(dims))
    starts, stops = list(m.attr("starts")), list(m.attr("stops"))
    starts[rows], stops[rows] = 0, 1
    return get("slice")(row, starts=tuple(starts), stops=tuple(stops), steps=m.attr("steps"))
