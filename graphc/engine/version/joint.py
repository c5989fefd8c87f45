"""The code of a version whose results carry a compiled backward."""

from __future__ import annotations

from typing import Any

from ...frontend.placement import Place
from ...ir.graph import Graph
from ...ir.passes.partition import Split
from .. import pipeline
from ..built import Allocate
from .parts import Parts, behind


def build_joint(
    graph: Graph, inputs: int, outputs: int, options: dict[str, Any], allocate: Allocate,
    place: Place | None,
) -> tuple[pipeline.Built, Split, Parts]:
    """The forward of a joint graph, where it is cut, and its backward.

    Where several results carry a history, that backward is built when it runs: of hidden states
    and a loss, only the loss may ever be differentiated.
    """
    late = {key: options[key] for key in ("config", "backend")}

    def build(reduced: Graph) -> pipeline.Built:
        return pipeline.build(reduced, name=f"{options['name']}_backward", **late)

    several = len(graph.inputs) - inputs > 1
    forward, reverse, split = pipeline.build_pair(graph, inputs, outputs, late=several, **options)
    missing = behind(graph, inputs, outputs)
    parts = Parts(split.backward, len(split.saved), build, missing, allocate, place)
    if reverse is not None:
        parts.keep_whole(reverse)
    return forward, split, parts
