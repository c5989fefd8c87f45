"""Rules of independence for operators with sub-graphs: what is carried keeps its rows where they
are, so that one walk of a body says what every turn of it does."""

from __future__ import annotations

from .call import BodyRule, Call, Result, State, Walk, mixed


def _packed(states: tuple[State, ...]) -> Result:
    return states[0] if len(states) == 1 else states


def _cond(call: Call, walk: Walk) -> Result:
    call.shared(0)
    then, otherwise = (walk(graph, call.states[1:]) for graph in call.node.graphs)
    if then != otherwise:
        mixed("the branches of a cond have their rows in different places")
    return _packed(then)


def _while_loop(call: Call, walk: Walk) -> Result:
    condition, body = call.node.graphs
    if walk(condition, call.states) != (None,):
        mixed("a while_loop goes on by what is in the rows")
    if walk(body, call.states) != call.states:
        mixed("a while_loop moves the rows of what it carries")
    return _packed(call.states)


def _scan(call: Call, walk: Walk) -> Result:
    count: int = call.attrs["n_carried"]
    carried, rows = call.states[:count], []
    for state in call.states[count:]:
        if state is not None and state.dim == 0:
            mixed("a scan runs along the batch")
        rows.append(state if state is None else state.at(state.dim - 1))
    results = walk(call.node.graphs[0], (*carried, *rows))
    if results[:count] != carried:
        mixed("a scan moves the rows of what it carries")
    stacked = (s if s is None else s.at(s.dim + 1) for s in results[count:])
    return _packed((*carried, *stacked))


BODIES: dict[str, BodyRule] = {"cond": _cond, "while_loop": _while_loop, "scan": _scan}
