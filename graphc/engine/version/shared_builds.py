"""What was compiled for one Module serves others of the same graph: layers of a stack, say."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import TYPE_CHECKING

from ...frontend.segment_tape import Fingerprint
from ...ir.graph import Graph
from ...ir.named import NamedTuple
from ..built import Built
from .parts import Parts

if TYPE_CHECKING:
    from ...ir.passes.partition import Split

_LIMIT = 64


class Native(NamedTuple):
    """What a graph was compiled to; of a joint one, where it is cut, and its backward."""

    forward: Built
    split: Split | None = None
    parts: Parts | None = None


class SharedBuilds:
    """Native code by what it computes: graphs that differ in their inputs' names and lines alone
    are one."""

    def __init__(self) -> None:
        self._made: dict[Hashable, Native] = {}

    def get(self, graph: Graph, options: Hashable, make: Callable[[], Native]) -> Native:
        """What `make` gives for the graph, or has given for an equal one with these options, if
        what it assumes of sizes holds for the graph's."""
        env, nothing = graph.env, Fingerprint((), (), (), {}, ())
        whole = Fingerprint(graph.inputs, graph.outputs, (), {}, (), within=nothing)
        passes = tuple([node.backward for node in whole.nodes])
        sizes = tuple(env.hints), tuple(env.guards)
        key = whole.key, tuple(whole.numbers), passes, len(graph.inputs), sizes, options
        found = self._made.get(key)
        if found is None or not all(guard.check(env.hints) for guard in found.forward.assumed):
            if len(self._made) >= _LIMIT:
                del self._made[next(iter(self._made))]
            found = self._made[key] = make()
        return found
