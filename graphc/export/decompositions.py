"""Composite operators as their primitives: run_decompositions() and its table."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from graphc.export.errors import ExportError
from graphc.ir.graph import Graph
from graphc.ir.late import late
from graphc.ir.op import REGISTRY
from graphc.ir.rewrite import apart

_decompose = late("graphc.ir.passes.decompose")  # a pass, which most programs run without


def default_decompositions() -> dict[str, Callable[..., Any]]:
    """Each composite operator's name, and what it is made of. An entry that is deleted keeps its
    operator whole in run_decompositions(table)."""
    return {name: op.decompose for name, op in REGISTRY.items() if op.decompose is not None}


def run(graph: Graph, table: Mapping[str, Any] | None) -> Graph:
    """The graph without the operators of a table (None: all composites). Raises ExportError for
    a table with other operators, or other decompositions."""
    known = default_decompositions()
    for name, function in (known if table is None else table).items():
        if known.get(name) is not function:
            raise ExportError(
                f"the table has a decomposition of {name!r} that is not graphc's own. Cure: "
                "begin with graphc.export.default_decompositions(), and delete what is to stay"
            )
    if table is None:
        found: Graph = _decompose.decompose(apart(graph))
    else:
        found = _decompose.decompose(apart(graph), lambda node: node.op.name not in table)
    return found
