"""Names of a graph's values, as torch.export gives them: p_fc_weight, b_norm_mean, x, add_1."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from graphc.export import containers
from graphc.export.contents import Variant
from graphc.export.signature import Signature, Weights
from graphc.ir.graph import Node, get_, input_


def input_names(variant: Variant, weights: Weights) -> list[str]:
    """Per input of the graph."""
    given = value_names(variant, weights)
    return [given[node] for node in variant.graph.inputs]


def output_names(variant: Variant, weights: Weights) -> list[str]:
    """Per output of the graph."""
    given = value_names(variant, weights)
    return [given[node] for node in variant.graph.outputs]


def leaf_names(signature: Signature) -> list[str]:
    """A name for each leaf of the arguments: x, items_0, options_gain."""
    (_, args), (_, kwargs) = containers.children(signature.arguments)
    specs = [*containers.children(args), *containers.children(kwargs)]
    found: list[str] = []
    for name, (_, spec) in zip((*signature.positional, *signature.keywords), specs, strict=True):
        found += _below(name, spec)
    return found


def _below(name: str, spec: Any) -> list[str]:
    if not containers.is_container(spec):
        return [name]
    parts = containers.children(spec)
    return [leaf for key, item in parts for leaf in _below(f"{name}_{key}", item)]


def value_names(variant: Variant, weights: Weights) -> dict[Node, str]:
    """A name of its own for each value of the graph, in order."""
    taken: set[str] = set()
    paths = leaf_names(variant.signature)
    found: dict[Node, str] = {}
    for node, source in zip(variant.graph.inputs, variant.signature.inputs, strict=True):
        ((kind, value),) = source.items()
        if kind == "argument":
            wanted = paths[value]
        elif kind == "number":
            wanted = value
        else:
            wanted = f"{_prefix(value, weights)}_{value}"
        found[node] = _own(wanted, taken)
    for node in _computed(variant):
        wanted = "getitem" if node.op is get_ else node.op.name
        found[node] = _own(wanted, taken)
    return found


def _computed(variant: Variant) -> Iterator[Node]:
    return (node for node in variant.graph.nodes if node.op is not input_)


def _prefix(name: str, weights: Weights) -> str:
    if name in weights.parameters:
        return "p"
    return "b" if name in weights.state or name in weights.buffers else "c"


def _own(wanted: str, taken: set[str]) -> str:
    name = re.sub(r"[^0-9a-zA-Z_]+", "_", wanted).strip("_") or "value"
    found, count = name, 0
    while found in taken:
        count += 1
        found = f"{name}_{count}"
    taken.add(found)
    return found
