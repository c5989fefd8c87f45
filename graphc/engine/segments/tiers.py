"""Which segments are compiled, and which functions run as plain eager code: decided by counts.

A recording that is met for the first time runs operator by operator. From the second time on it
is compiled, within a budget: compiling a node takes as long as running PRICE operators on small
tensors, and no more than a SHARE of what was run so far is spent on it. While the budget waits,
the function runs as plain eager code, which is counted as its last recorded call was. A function
is not recorded any longer if most of its segments are new at each call, or if its tensors are so
small that recording costs more than compiled code saves. As a function may change its ways
(shapes become steady, a warm-up ends), it is recorded again after WAIT plain calls, after twice
as many the next time, and so on. A first call, which began as one graph, is judged already: while
what it recorded is small, its rest is eager mode, whose operators are counted (eager_count.py). So
is all of a first call whose code says that it will need a value (foreseen.py).
Nothing here looks at a clock: the same script makes the same decisions.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from ...frontend.eager_count import Ran
from ...frontend.errors import user_location
from ...ir.graph import Graph, Loc, Node
from ...ir.op import Op
from ...ir.types import TensorType
from ..built import CompileCounter

if TYPE_CHECKING:
    from ...frontend.segment_trace import SegmentEnd

PRICE = 128  # operators on small tensors that run while one node is compiled
VERSION = 20  # nodes that take as long to compile as what every version takes, whatever is in it
BACKWARD = 3  # what is differentiated comes to so many times its operators, and its versions
FIRST = 96  # nodes that take as long to compile as the start of the compiler, once in a process
SHARE = 4  # the part of what was run that compiling may take: a quarter
CALLS = 4  # after so many it is judged whether a function's recordings are new each time
# what compiling saves is memory traffic between operators: from so much on, counted as `PRICE` is,
# an operator repays its recording
GAIN = 3.0
WAIT = 64  # plain calls after which a function is judged again; doubles each time
NUMBERS = 1 << 14  # numbers that an operator moves in the time that calling it takes
_PRODUCTS = 16  # multiplications of a contraction that take as long as moving one number
_FIRST = 200  # recordings remembered that were met and not compiled


class PerformanceWarning(UserWarning):
    """A compiled function that costs more than it would without compile()."""


class Tiers:
    """What the segments of one function came to, in nodes."""

    def __init__(self, always: bool = False) -> None:
        self.always = always  # compile at the first meeting, whatever it costs
        self.plain = ""  # why the function is not recorded at present
        self.told = False  # the user was warned
        self.plain_calls = self.stepwise_runs = 0
        self.work = 0  # that was run, in operators on small tensors
        self.compiled = 0  # nodes
        self.first: dict[Hashable, Any] = {}  # recordings that were met and not compiled
        self._waits = 0  # plain calls until the budget allows what the last one wanted
        self._pace = 0  # the work of such a call
        self._work = self._wanted = 0  # of this call: work, and the cost of what was not compiled
        self._calls = self._nodes = self._moved = self._fresh = 0  # since the last judgement
        self._wait = self._left = WAIT  # plain calls until the next one, in all and from now

    def is_plain(self) -> bool:
        """Count a call; whether it runs as plain eager code."""
        if self._waits:
            self._waits -= 1
            self.work += self._pace
            self.plain_calls += 1
            return True
        if not self.plain:
            return False
        self._left -= 1
        if self._left >= 0:
            self.plain_calls += 1
            return True
        self._wait *= 2
        self._left, self.plain = self._wait, ""
        return False

    def compiles(self, key: Hashable, recording: Any, nodes: int, cost: int) -> bool:
        """Whether a recording of so many nodes is compiled now."""
        if self.always or key in self.first:
            return self.affords(cost)
        if len(self.first) >= _FIRST:
            del self.first[next(iter(self.first))]
        self.first[key] = recording
        self._fresh += nodes
        return False

    def affords(self, cost: int) -> bool:
        """Whether the budget allows to compile a version of this cost."""
        return self.always or price(self.compiled + cost + start_cost()) <= self.work

    def pay(self, cost: int) -> None:
        """Count a version that is compiled."""
        self.compiled += cost + start_cost()

    @property
    def waits(self) -> int:
        """Calls that will be plain eager code before the budget allows more to be compiled."""
        return self._waits

    def ran(self, nodes: int, work: int, moved: int, wanted: int) -> None:
        """Count a segment that is about to run. `wanted`: what compiling it costs, if it is not."""
        self.work += work
        self._work += work
        self._wanted += wanted
        self.stepwise_runs += wanted > 0
        self._nodes += nodes
        self._moved += moved

    @property
    def is_small(self) -> bool:
        """Whether what was run is on so small tensors that recording it does not pay."""
        return self._moved < GAIN * self._nodes

    def end_call(self, turned: bool, passing: bool = False) -> bool:
        """Count a recorded call; whether the function is found to be better off as plain eager
        code. `turned`: it began as one graph; the segments of the next call stand for what is to
        come. `passing`: later calls may well be one graph."""
        self._calls += not turned
        if self.always or passing:
            pass
        elif self.is_small:
            self.plain = (
                "its tensors are too small: recording their operators takes longer than compiled "
                "code saves"
            )
        elif turned:
            pass
        elif self._calls >= CALLS and 2 * self._fresh > self._nodes:
            self.plain = (
                f"of the {self._nodes} operators of its last {CALLS} recorded calls {self._fresh} "
                "were in segments met for the first time"
            )
        elif self._wanted and self._work:
            missing = price(self.compiled + self._wanted + start_cost()) - self.work
            self._waits, self._pace = max(0, math.ceil(missing / self._work)), self._work
        self._work = self._wanted = 0
        if passing or self.plain or self._calls >= CALLS:
            self._calls = self._nodes = self._moved = self._fresh = 0
        if self.plain:
            self.first.clear()
        return bool(self.plain)


def version_cost(nodes: int, differentiated: bool) -> int:
    """How long a version takes to compile, in nodes, once the compiler has started."""
    return nodes + VERSION * (BACKWARD if differentiated else 1)


def start_cost() -> int:
    """What the next version costs besides, in nodes."""
    return 0 if CompileCounter.count else FIRST


def price(nodes: int) -> int:
    """The work after which so many nodes may be compiled."""
    return nodes * PRICE * SHARE


def warn_plain(name: str, reason: str, ends: dict[SegmentEnd, int]) -> None:
    """Tell the user once that a function is not compiled, and which line is to blame."""
    text = f"compiled {name}() runs as plain eager code from now on: {reason}"
    end = max([end for end in ends if end.loc is not None], key=ends.__getitem__, default=None)
    if end is not None:
        text += f".\n  {end.reason} at {end.loc} ended {ends[end]} segments"
    _warn(text, None if end is None else end.loc)


def warn_versions(name: str, reason: str) -> None:
    """Tell the user once that a function was compiled anew too often."""
    _warn(
        f"compiled {name}() needs another version at each call ({reason}) and runs in segments "
        "from now on", user_location(),
    )


def warn_values_only(name: str, ends: dict[SegmentEnd, int]) -> None:
    """Tell the user what GRAPHC_CHECK=3 does not see."""
    end = next((end for end in ends if end.loc is not None), None)
    why = "" if end is None else f" ({end.reason} at {end.loc})"
    _say(
        f"GRAPHC_CHECK=3: compiled {name}() runs in segments{why}: its Python decides everything "
        "at each call, so that of it the values of each compiled segment are compared, and "
        "nothing else", UserWarning, None if end is None else end.loc,
    )


def _warn(text: str, loc: Loc | None) -> None:
    text += (
        ". Cure: keep values as tensors (torch.where, ...), pass what changes as an argument, or "
        "leave out compile()"
    )
    _say(text, PerformanceWarning, loc)


def _say(text: str, kind: type[Warning], loc: Loc | None) -> None:
    if loc is None:
        warnings.warn(text, kind, stacklevel=4)
    else:
        warnings.warn_explicit(text, kind, loc.file, loc.line)


# with the types of the results and of the inputs, and the sub-graphs
_Operation: TypeAlias = tuple[
    Op, Mapping[str, Any], Sequence[Any], Sequence[Any], Sequence[Graph]
]


def operators(nodes: Iterable[Node]) -> int:
    """How many there are, with those inside sub-graphs."""
    return sum(1 + sum(operators(_inside(graph)) for graph in node.graphs) for node in nodes)


def _inside(graph: Graph) -> Iterator[Node]:
    """What a sub-graph computes."""
    return (node for node in graph.nodes if node.op.name != "input")


def work(nodes: Iterable[Node]) -> tuple[int, int]:
    """How long nodes take in eager mode, in operators on small tensors: in all, and without the
    multiplications of contractions, which compiled code does no faster."""
    return _work(
        (n.op, n.attrs, (n.type,), [i.type for i in n.inputs], n.graphs) for n in nodes
    )


def eager_work(ran: Iterable[Ran]) -> tuple[int, int]:
    """The same of operators that ran in eager mode."""
    return _work((r.op, r.attrs, r.signature.results, r.signature.inputs, ()) for r in ran)


def _work(operations: Iterable[_Operation]) -> tuple[int, int]:
    total = moved = 0
    for op, attrs, results, inputs, graphs in operations:
        total, moved = total + 1, moved + 1
        if op.body_work is not None:
            inside, copied = zip(*(work(_inside(graph)) for graph in graphs), strict=True)
            total += op.body_work(inside, inputs, attrs)
            moved += op.body_work(copied, inputs, attrs)
            continue
        if op.view or not inputs:  # no numbers are moved
            continue
        sizes: list[Any] = [
            math.prod(t.shape) for t in (*results, *inputs) if isinstance(t, TensorType)
        ]
        length = _contracted(op, attrs, inputs)
        if length:
            total += max(*sizes, sizes[0] * length // _PRODUCTS) // NUMBERS
        else:
            total += max(sizes, default=0) // NUMBERS
            moved += max(sizes, default=0) // NUMBERS
    return total, moved


def _contracted(op: Op, attrs: Mapping[str, Any], inputs: Sequence[Any]) -> Any:
    """How many products an element of a contraction is the sum of; 0 for other operators."""
    if op.name == "dot_general":
        return math.prod([inputs[0].shape[d] for d in attrs["contract_a"]])
    return math.prod(inputs[1].shape[1:]) if op.name == "conv" else 0
