"""What was compiled for one Module serves others of the same graph: layers of a stack, say."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any

from ...frontend.segment_tape import Fingerprint
from ...ir.graph import Graph

_LIMIT = 64


class SharedBuilds:
    """Native code by what it computes: graphs that differ in their inputs' names and lines alone
    are one."""

    def __init__(self) -> None:
        self._made: dict[Hashable, Any] = {}

    def get(self, graph: Graph, options: Hashable, make: Callable[[], Any]) -> Any:
        """What `make` gives for the graph, or has given for an equal one with these options."""
        if graph.env.hints:  # symbolic sizes have guards besides
            return make()
        nothing = Fingerprint((), (), (), {}, ())
        whole = Fingerprint(graph.inputs, graph.outputs, (), {}, (), within=nothing)
        passes = tuple([node.backward for node in whole.nodes])
        key = whole.key, tuple(whole.numbers), passes, len(graph.inputs), options
        found = self._made.get(key)
        if found is None:
            if len(self._made) >= _LIMIT:
                del self._made[next(iter(self._made))]
            found = self._made[key] = make()
        return found
