"""GRAPHC_CHECK=3: a call is recorded again, without running, and compared with its version.

A version is stale if its guards hold and its Python would now say something else: another graph,
another constant, another effect. Functions in segments record at every call anyway; of them the
values of each compiled segment are compared with NumPy's (checked.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import zip_longest
from typing import Any, NamedTuple

from ..engine.capture.argument_writes import Given
from ..engine.capture.kinds import is_plain
from ..engine.capture.places import MISSING, same
from ..engine.capture.recording import Recording, Terms, Turned
from ..engine.version.call import Call
from ..engine.version.guards import Guard
from ..engine.version.version import Specialisation, forget
from ..frontend.captured import (
    Input,
    MadeInput,
    NumberInput,
    Output,
    TensorInput,
    TracedGraph,
)
from ..frontend.errors import located
from ..frontend.number_expr import NumberExpr
from ..frontend.storage import address, strides_of
from ..frontend.tensor import Tensor
from ..frontend.tree import flatten
from ..ir.graph import Graph, Loc
from ..ir.text import node_texts

_GUARDS = 3  # that a message names


class StaleVersionError(AssertionError):
    """A compiled version whose guards hold, and that is not what its Python says now: a bug of
    graphc. `loc`: the user's line."""

    loc: Loc | None = None


class Line(NamedTuple):
    """A statement about a recording, and the user's line behind it."""

    text: str
    loc: Loc | None = None


def check_again(
    version: Specialisation, leaves: list[Any], given: Any,
    record: Callable[[Terms], Recording | Turned],
) -> None:
    """Record a call that `version` would run, and raise StaleVersionError where they differ."""
    terms: Terms = version.terms
    missing = version.check(Call(leaves, given))  # the recording was made with these gradients, too
    try:
        recording = record(terms)
    except Exception as error:
        raise _error(version, f"  its Python is no such graph any more: {error}", None) from error
    finally:
        forget(missing)
    assert isinstance(recording, Recording), "a recording that may not run anything has run"
    recording.restore()
    graph = recording.traced.graph
    then, named = _Names.of_both(version)
    before = [*_graph_lines(version.graph), *_effects(version, version.graph, then)]
    now = [*_graph_lines(graph), *_effects(recording, graph, named)]
    for old, new in zip_longest(before, now, fillvalue=Line("nothing more")):
        if old.text != new.text:
            what = f"  compiled: {old.text}\n  now:      {new.text}"
            raise _error(version, what, new.loc or old.loc, recording)


def _error(
    version: Specialisation, what: str, loc: Loc | None, recording: Recording | None = None
) -> StaleVersionError:
    text = f"a stale version of compiled {version.graph.name}() would have run:\n{what}"
    text += f"\n  {_guards(version, recording)}"
    error = StaleVersionError(text if loc is None else located(text, loc))
    error.loc = loc
    return error


def _guards(version: Specialisation, recording: Recording | None) -> str:
    """Which guard should have failed."""
    guards = version.guards
    skipped = guards.all_broken()
    if skipped:
        return "the guard that was not asked, as no write was counted: " + _texts(skipped)
    if recording is None:
        return "no guard failed"
    fresh, dropped = recording.observer.guards, recording.dropped_guards()
    had = {(type(g), g.path) for g in guards.records}
    new = [
        g for g in fresh.records
        if (type(g), g.path) not in had and getattr(g, "place", None) not in dropped
    ]
    if new:
        return "the guard that is missing: " + _texts(new)
    return "no guard speaks of it: what this line reads is not noted while recording"


def _texts(guards: list[Guard]) -> str:
    more = f" and {len(guards) - _GUARDS} more" if len(guards) > _GUARDS else ""
    return "; ".join(guard.text() for guard in guards[:_GUARDS]) + more


# --- what a recording says -------------------------------------------------------------------


def _graph_lines(graph: Graph) -> Iterator[Line]:
    for node, text in node_texts(graph):
        yield Line(text, node.loc)
    for guard in graph.env.guards:
        yield Line(f"sizes: {guard.text()}")
    yield Line(f"{len(graph.outputs)} outputs")
    numbers = {node: i for i, (node, _) in enumerate(node_texts(graph))}
    for i, node in enumerate(graph.outputs):
        yield Line(f"output {i} is %{numbers[node]}", node.loc)


class _Names:
    """One name for each object, in both recordings. What the function itself renews is named by
    its place: the tensor there is another one at each call."""

    def __init__(self, renewed: dict[int, str], numbers: dict[Any, int], kept: list[Any]) -> None:
        self._renewed, self._numbers, self._kept = renewed, numbers, kept

    @classmethod
    def of_both(cls, version: Specialisation) -> tuple[_Names, _Names]:
        """The names in a version, and in a recording that is made now."""
        then: dict[int, str] = {}
        now: dict[int, str] = {}
        for number, place in version.places.items():
            source = version.inputs[number]
            assert isinstance(source, TensorInput)
            then[id(source.tensor)] = now[id(place.get())] = f"what is in {place.path}"
        numbers: dict[Any, int] = {}
        kept: list[Any] = []  # ids stay taken
        return cls(then, numbers, kept), cls(now, numbers, kept)

    def memory(self, tensor: Tensor) -> str:
        """The memory that a tensor reads."""
        if id(tensor) in self._renewed:
            return self._renewed[id(tensor)]
        array = tensor._graphc_array
        key = address(array), array.dtype, array.shape, strides_of(array)
        return f"memory {self._numbers.setdefault(key, len(self._numbers))}"

    def of(self, value: Any) -> str:
        """A plain value as it is, an object by its number."""
        if value is MISSING:
            return "nothing"
        if is_plain(value) and not isinstance(value, Tensor):
            return f"{type(value).__name__} {value!r}"
        if id(value) in self._renewed:
            return self._renewed[id(value)]
        if type(value) is Given:
            return repr(value)
        self._kept.append(value)
        number = self._numbers.setdefault(id(value), len(self._numbers))
        return f"{type(value).__name__} number {number}"


def _effects(side: Specialisation | Recording, graph: Graph, named: _Names) -> Iterator[Line]:
    """What a version, or a new recording, does beside computing its graph."""
    traced: TracedGraph = side.traced
    readers: dict[Any, Loc | None] = {}
    for node in graph.nodes:
        for source in node.inputs:
            readers.setdefault(source, node.loc)
    numbers = {node: i for i, (node, _) in enumerate(node_texts(graph))}
    inputs = {each.number: f"%{numbers.get(each.node)}" for each in traced.inputs}
    for each in traced.inputs:
        if each.node in numbers:  # else it was captured for what a write to it replaces
            text = f"{inputs[each.number]}: {_input(each, named)}"
            yield Line(text, readers.get(each.node))
    for i, output in enumerate(flatten(traced.result, _is_output)[0]):
        yield _output(f"leaf {i} of the results", output, graph, named)
    for text in side.rebuild.texts(named.of):
        yield Line(f"results: {text}")
    for mutation in traced.mutations:
        loc = graph.outputs[mutation.output].loc
        target = _input(traced.inputs[mutation.input], named)
        yield Line(f"output {mutation.output} goes into {target}", loc)
    for rebind in traced.rebinds:
        yield _output(f".data of {named.of(rebind.tensor)}", rebind.value, graph, named)
    for write in traced.grads:
        what = f".grad of {_tensor(write, named)}"
        if write.value is None:
            yield Line(f"{what} becomes None")
        else:
            yield _output(what, write.value, graph, named)
    for flag in traced.flags:
        yield Line(f"requires_grad of {_tensor(flag, named)} becomes {flag.requires_grad}")
    for read in traced.grad_reads:
        yield Line(f".grad of {_tensor(read, named)} is there: {read.present}")
    for number in traced.numbers:
        yield Line(f"{_number(number.expression)} is {number.value!r}", number.loc)
    overlaps = [(inputs[a], inputs[b]) for a, b in traced.overlaps]
    yield Line(f"{len(traced.deferred)} actions at the end, overlaps {overlaps}")
    values = dict(side.replay)
    for place in side.order:
        if place in values and (place.get() is values[place] or same(place.get(), values[place])):
            continue  # a new recording sees no change
        says = f" = {named.of(values[place])}" if place in values else " is made anew"
        yield Line(f"{place.path} of {named.of(place.container)}{says}")


def _is_output(value: Any) -> bool:
    return isinstance(value, Output)


def _tensor(record: Any, named: _Names) -> str:
    return named.of(record.tensor) if record.argument < 0 else f"argument {record.argument}"


def _input(source: Input, named: _Names) -> str:
    if isinstance(source, NumberInput):
        return _number(source.expression)
    if isinstance(source, MadeInput):
        return f"part {source.part} of {source.ahead!r}"
    if source.index >= 0:
        who = f"argument {source.index}"
    elif source.tensor is None:
        who = ""
    else:  # another tensor on the same memory reads the same
        who = named.of(source.tensor) if source.kind == "grad" else named.memory(source.tensor)
    return f"{source.kind} {who}, requires_grad={source.requires_grad}, leaf={source.leaf}"


def _number(expression: NumberExpr) -> str:
    if expression.op in ("source", "dim", "constant"):
        return f"{expression.op} {expression.args[0]!r}"
    return f"{expression.op}({', '.join(map(_number, expression.args))})"


def _output(what: str, output: Output, graph: Graph, named: _Names) -> Line:
    parts = [f"{what}: {output.kind}"]
    if output.index >= 0:
        parts.append(f"{output.index}")
    if output.argument >= 0:
        parts.append(f"argument {output.argument}")
    elif output.tensor is not None:
        parts.append(named.of(output.tensor))
    if output.number is not None:
        parts.append(_number(output.number))
    parts += [f"{op.name} {attrs}" for op, attrs in output.chain]
    parts.append(f"order={output.order} detached={output.detached} "
                 f"untracked={output.untracked}")
    parts.append(f"requires_grad={output.requires_grad} method={output.method!r}")
    of_graph = output.kind in ("value", "view") and output.index >= 0
    return Line(", ".join(parts), graph.outputs[output.index].loc if of_graph else None)
