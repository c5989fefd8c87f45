"""What was compiled for one Module serves others of the same graph: layers of a stack, say."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any, NamedTuple

from ...frontend.segment_tape import Fingerprint
from ...ir.dim import Guard
from ...ir.graph import Graph

_LIMIT = 64


class _Made(NamedTuple):
    """What was built, and all that is assumed of symbolic sizes, compiling included."""

    result: Any
    guards: tuple[Guard, ...]


class SharedBuilds:
    """Native code by what it computes: graphs that differ in their inputs' names and lines alone
    are one."""

    def __init__(self) -> None:
        self._made: dict[Hashable, _Made] = {}

    def get(self, graph: Graph, options: Hashable, make: Callable[[], Any]) -> Any:
        """What `make` gives for the graph, or has given for an equal one with these options; its
        guards are the graph's, then."""
        env, nothing = graph.env, Fingerprint((), (), (), {}, ())
        whole = Fingerprint(graph.inputs, graph.outputs, (), {}, (), within=nothing)
        passes = tuple([node.backward for node in whole.nodes])
        sizes = tuple(env.hints), tuple(env.guards)
        key = whole.key, tuple(whole.numbers), passes, len(graph.inputs), sizes, options
        found = self._made.get(key)
        if found is None or not all(guard.check(env.hints) for guard in found.guards):
            if len(self._made) >= _LIMIT:
                del self._made[next(iter(self._made))]
            result = make()
            found = self._made[key] = _Made(result, tuple(env.guards))
        env.guards.update(dict.fromkeys(found.guards))
        return found.result
