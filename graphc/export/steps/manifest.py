"""The manifest's entry "step": what it may say, checked before anything of it is used."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import numpy as np

from graphc.export import containers
from graphc.export.contents import Variant
from graphc.export.errors import ExportError
from graphc.export.steps import numbers

_KEYS = frozenset("settings counters updates tables calls computed decided random".split())
_MOST = 100_000  # entries of each kind


def check(step: Any, variant: Variant, arrays: Mapping[str, np.ndarray]) -> None:
    """Raise ExportError where a step does not fit one of its graphs."""
    signature, graph = variant.signature, variant.graph
    arguments, dims = signature.arguments, {*graph.env.hints, *variant.ones}
    if not isinstance(step, dict) or set(step) != _KEYS:
        raise ExportError("the manifest's step has other entries than a step has")
    for key in ("settings", "counters", "updates", "tables", "computed"):
        if not isinstance(step[key], dict) or len(step[key]) > _MOST:
            raise ExportError(f"the manifest's step has malformed {key}")
    for key in ("settings", "counters"):
        for name, value in step[key].items():
            if type(value) not in (int, float):
                raise ExportError(f"the manifest gives the number {name!r} as {value!r}")
    calls = step["calls"]
    if type(calls) is not int or not 0 <= calls < 1 << 62:
        raise ExportError(f"the manifest counts {calls!r} calls")
    if step["random"] not in (None, "torch", "counter"):
        raise ExportError(f"the manifest draws random numbers by {step['random']!r}")
    for name, weight in step["tables"].items():
        rows = arrays.get(weight)
        if rows is None or rows.ndim != 1 or rows.dtype not in (np.float64, np.int64):
            raise ExportError(f"the manifest has no table of {name!r}")
    sources = _sources(step, arguments)
    if set(step["updates"]) != set(step["counters"]):
        raise ExportError("the manifest's counters are others than those that it updates")
    decided = step["decided"]
    if not isinstance(decided, list) or len(decided) > _MOST or not all(
        isinstance(each, dict) and set(each) == {"expression", "value", "line"} for each in decided
    ):
        raise ExportError("the manifest has malformed decisions")
    for expression in (
        *step["updates"].values(), *step["computed"].values(),
        *(each["expression"] for each in decided),
    ):
        numbers.check(expression, sources, dims)
    for source in signature.inputs:
        if "number" in source and source["number"] not in step["computed"]:
            raise ExportError(f"nothing computes the number {source['number']!r}")
    for leaf in containers.leaves_of(signature.results):
        _check_result(leaf, sources, dims, len(graph.outputs))


def _sources(step: Mapping[str, Any], arguments: Any) -> list[str]:
    found = [*step["settings"], *step["counters"], *step["tables"]]
    for leaf in containers.leaves_of(arguments):
        if "number" in leaf:
            if type(leaf["number"]) is not str or type(leaf.get("value")) not in (int, float):
                raise ExportError(f"the manifest has the argument {leaf!r}")
            found.append(leaf["number"])
    if len(set(found)) != len(found):
        raise ExportError("the manifest has two numbers of one name")
    return found


def _check_result(leaf: Any, sources: Collection[str], dims: Collection[str], outputs: int) -> None:
    ((kind, value),) = leaf.items()
    if kind == "computed":
        numbers.check(value, sources, dims)
    elif kind in ("item", "numpy") and not (type(value) is int and 0 <= value < outputs):
        raise ExportError(f"the manifest has the result {leaf!r}")
