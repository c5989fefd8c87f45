"""What a scan stacks is stacked once: not again what is a sequence already, or stacked before."""

from __future__ import annotations

from typing import Any

from ...graph import Expr, get_
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
