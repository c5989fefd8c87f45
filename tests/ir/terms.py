"""What every element of a graph's outputs is made of, as one number: equal numbers are equal terms.

Movements move the numbers. Any other operator gives each element of its result a number of its own,
drawn from the operator, its attributes and all the numbers it reads; only what is added to -0.0 is
what it was. Loops are run. So two graphs
with equal terms compute the same operators on the same values, however they are arranged.
"""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np

from graphc.backends.numpy import TABLE
from graphc.ir.graph import Graph, Node, attrs_key, const
from graphc.ir.types import TupleType

Terms = np.ndarray[Any, np.dtype[np.int64]]
_MOVED = ("slice", "slice_update", "reshape", "permute", "expand", "concat", "flip")


def terms(graph: Graph, inputs: list[Terms] | None = None) -> list[Terms]:
    """The terms of the outputs; by default the inputs' elements are all different."""
    if inputs is None:
        inputs = [_drawn(f"input {i}", _shape(node)) for i, node in enumerate(graph.inputs)]
    values: dict[Node, Any] = dict(zip(graph.inputs, inputs, strict=True))
    for node in graph.nodes:
        if node not in values:
            values[node] = _of(node, [values[x] for x in node.inputs])
    return [values[node] for node in graph.outputs]


def _shape(node: Node) -> tuple[int, ...]:
    return tuple(int(n) for n in node.shape)


def _of(node: Node, given: list[Any]) -> Any:
    name = node.op.name
    if name == "get":
        return given[0][node.attrs["index"]]
    if name == "scan":
        return _scan(node, given)
    if name in _MOVED:
        return np.ascontiguousarray(TABLE[name](*given, **node.attrs))
    if node.op is const:
        array = node.attrs["value"].array
        numbers = [_number(x, node) for x in array.reshape(-1)]
        return np.array(numbers, np.int64).reshape(array.shape)
    if name == "full":
        value = node.dtype.numpy.type(node.attrs["value"])
        return np.full(_shape(node), _number(value, node), np.int64)
    if name == "add":
        neutral = _number(node.dtype.numpy.type(-0.0), node)
        for one, other in (given, given[::-1]):
            if other.shape == _shape(node) and (one == neutral).all():
                return other
    text = f"{name} {attrs_key(dict(node.attrs))} "
    text += " ".join(f"{x.shape}{x.tobytes().hex()}" for x in given)
    return _drawn(text, _shape(node))


def _scan(node: Node, given: list[Terms]) -> tuple[Terms, ...]:
    count, body = node.attrs["n_carried"], node.graphs[0]
    carried, rows = given[:count], given[count:]
    order = range(len(rows[0]))
    stacked: list[tuple[Terms, ...]] = []
    for i in reversed(order) if node.attrs["reverse"] else order:
        out = terms(body, [*carried, *(np.asarray(x[i]) for x in rows)])
        carried = out[:count]
        stacked.append(tuple(out[count:]))
    if node.attrs["reverse"]:
        stacked.reverse()
    results = (*carried, *(np.stack(x) for x in zip(*stacked, strict=True)))
    return results if isinstance(node.type, TupleType) else results[0]


def _number(value: Any, node: Node) -> int:
    return int(_drawn(f"number {node.dtype} {value.tobytes().hex()}", ()))


def _drawn(text: str, shape: tuple[int, ...]) -> Terms:
    digest = hashlib.blake2b(text.encode(), digest_size=8).digest()
    rng = np.random.default_rng(int.from_bytes(digest, "little"))
    return np.asarray(rng.integers(-(2**62), 2**62, shape))
