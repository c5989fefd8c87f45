"""A program run node by node on NumPy: the meaning of its graphs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from graphc.backends.numpy import TABLE
from graphc.export import containers
from graphc.export.contents import Contents, Variant
from graphc.ir import dim
from graphc.ir.graph import Graph
from graphc.ir.interpret import evaluate
from graphc.ir.late import late
from graphc.ir.rewrite import apart

_counter_random = late("graphc.ir.passes.counter_random")  # a pass, which few programs need


def variant_for(contents: Contents, dims: Mapping[str, int]) -> Variant:
    """The graph that stands for these sizes."""
    ones = frozenset(name for name, size in dims.items() if size == 1)
    return next((v for v in contents.variants if v.ones == ones), contents.main)


def interpreted(
    contents: Contents, variant: Variant, arguments: Mapping[int, np.ndarray],
    dims: Mapping[str, int], numbers: Mapping[str, float] | None = None,
) -> list[Any]:
    """The leaves of the results for these arguments, by number of their leaf."""
    outputs = outputs_of(contents, variant, arguments, dims, numbers)
    weights = dict(contents.weights.arrays)
    for write in variant.signature.writes:
        if "weight" in write:
            weights[write["weight"]] = outputs[write["output"]]

    def leaf(spec: Any) -> Any:
        ((kind, value),) = spec.items()
        if kind == "output":
            return outputs[value]
        if kind == "argument":
            return arguments[value]
        if kind == "weight":
            return weights[value]
        return dim.evaluate(dim.parse(value), dims) if kind == "size" else value

    return [leaf(spec) for spec in containers.leaves_of(variant.signature.results)]


def outputs_of(
    contents: Contents, variant: Variant, arguments: Mapping[int, np.ndarray],
    dims: Mapping[str, int], numbers: Mapping[str, float] | None = None,
) -> list[np.ndarray]:
    """The outputs of a graph for these arguments."""
    given: list[np.ndarray] = []
    for source, node in zip(variant.signature.inputs, variant.graph.inputs, strict=True):
        ((kind, value),) = source.items()
        if kind == "number":
            given.append(np.asarray((numbers or {})[value], node.dtype.numpy))
        else:
            given.append(arguments[value] if kind == "argument" else contents.weights.arrays[value])
    return evaluate(as_drawn(contents, variant.graph), given, TABLE, dims)


def as_drawn(contents: Contents, graph: Graph) -> Graph:
    """The graph with the random numbers that its file says."""
    generator = contents.generator
    if generator is None or generator["algorithm"] != "counter":
        return graph
    found: Graph = _counter_random.counter_random(apart(graph))
    return found


def written_names(contents: Contents, variant: Variant) -> list[str]:
    """The model's parameters and buffers that a call writes, in order."""
    weights = contents.weights
    own = {*weights.state, *weights.parameters, *weights.buffers}
    writes = variant.signature.writes
    return [write["weight"] for write in writes if write.get("weight") in own]


def computed(
    contents: Contents, variant: Variant, arguments: Mapping[int, np.ndarray],
    dims: Mapping[str, int], numbers: Mapping[str, float] | None = None,
) -> list[Any]:
    """The leaves of the results, then what `written_names` names, as a call leaves them."""
    results = interpreted(contents, variant, arguments, dims, numbers)
    names = written_names(contents, variant)
    if not names:
        return results
    outputs = outputs_of(contents, variant, arguments, dims, numbers)
    by_name = {
        write["weight"]: outputs[write["output"]]
        for write in variant.signature.writes if "weight" in write
    }
    return [*results, *(by_name[name] for name in names)]
