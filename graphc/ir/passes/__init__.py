"""Passes: Graph -> Graph, one a file; and the one driver that runs a list of them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import TypeAlias

from ..graph import Graph

Pass: TypeAlias = Callable[[Graph], Graph]
# the single hook: (name of the pass, graph before, graph after, seconds)
Hook: TypeAlias = Callable[[str, Graph, Graph, float], None]


def run(pipeline: Iterable[tuple[str, Pass]], graph: Graph, after: Hook | None = None) -> Graph:
    """The graph after every pass of `pipeline` in order. `after` is called after each one.

    Raises ValueError where a pass changed the number or the types of inputs or outputs.
    """
    for name, function in pipeline:
        start = time.perf_counter()
        result = function(graph)
        seconds = time.perf_counter() - start
        _check_signature(name, graph, result)
        if after is not None:
            after(name, graph, result, seconds)
        graph = result
    return graph


def _check_signature(name: str, before: Graph, after: Graph) -> None:
    if [n.type for n in before.inputs] != [n.type for n in after.inputs]:
        raise ValueError(f"pass {name} changed the inputs of graph {before.name}")
    if [n.type for n in before.outputs] != [n.type for n in after.outputs]:
        raise ValueError(f"pass {name} changed the types of the outputs of graph {before.name}")
