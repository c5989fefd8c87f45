"""`max_memory=`: how much memory a compiled call may need, its backward included.

A limit is a number of bytes, as people write it, and what counts into it besides a graph's own.
What does not fit is refused (MemoryLimitError) with a table of what needs how much.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from ..frontend.captured import Output, TensorInput, TracedGraph
from ..frontend.tensor import Parameter
from ..ir.dim import evaluate, product
from ..ir.graph import Graph, Node
from ..ir.named import NamedTuple

if TYPE_CHECKING:
    from ..ir.passes.partition import Split

Rows = tuple[tuple[str, int], ...]

PARAMETERS, ARGUMENTS, GRADIENTS = "parameters", "arguments", "gradients"
STATE = "state: buffers, moments, captured tensors"
FORMER = "gradients of the call before"
SAVED, RESULTS, COTANGENTS = "saved for the backward pass", "results", "gradients of the results"

_UNITS = {
    "": 1, "b": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12,
    "kib": 1 << 10, "mib": 1 << 20, "gib": 1 << 30, "tib": 1 << 40,
}


def parse_bytes(given: int | str) -> int:
    """Bytes of `500_000_000`, "500MB", "1.5 GB", "512MiB". Raises ValueError, TypeError."""
    if isinstance(given, bool) or not isinstance(given, (int, str)):
        raise TypeError(f"max_memory takes bytes or a text like '500MB', got {given!r}")
    if isinstance(given, str):
        found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([a-zA-Z]*)\s*", given)
        if found is None or found[2].lower() not in _UNITS:
            raise ValueError(f"max_memory={given!r}: expected bytes or a text like '500MB', '2GiB'")
        given = int(float(found[1]) * _UNITS[found[2].lower()])
    if given <= 0:
        raise ValueError(f"max_memory={given}: expected more than 0 bytes")
    return given


def asked_for(max_memory: int | str | None, dynamic: bool | None) -> int | None:
    """The bytes of compile(max_memory=...); memory is known for known sizes alone."""
    if max_memory is None:
        return None
    if dynamic:
        raise ValueError(
            "compile(max_memory=..., dynamic=True): what a call needs is known for known sizes "
            "alone. Cure: leave out dynamic=True; each size is then compiled by itself"
        )
    return parse_bytes(max_memory)


class Limit(NamedTuple):
    """`bytes` for a graph, its inputs and results among them, and for what is there besides
    (`held`). `inputs`, `outputs`: what each of the graph's is to the user."""

    bytes: int
    held: Rows
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]

    @property
    def room(self) -> int:
        """What the graph may have."""
        return self.bytes - sum(size for _, size in self.held)

    def of_forward(self, split: Split) -> Limit:
        """For the forward part of a joint graph that this one is for."""
        results = self.outputs[: _results(split)]
        more = len(split.forward.outputs) - len(results)
        return self._replace(
            inputs=self.inputs[: len(split.forward.inputs)], outputs=(*results, *[SAVED] * more)
        )

    def of_backward(self, split: Split) -> Limit:
        """For the backward part, while which all is there that the forward part was given, and
        has given."""
        forward = split.forward
        outputs = self.outputs[: _results(split)]
        outputs = (*outputs, *[SAVED] * (len(forward.outputs) - len(outputs)))
        sides = {"input": (forward.inputs, self.inputs), "output": (forward.outputs, outputs)}
        read = set(split.saved)
        held = [
            (words[i], bytes_of_node(nodes[i], forward.env.hints))
            for side, (nodes, words) in sides.items()
            for i in range(len(nodes)) if (side, i) not in read
        ]
        inputs = [sides[side][1][i] for side, i in split.saved]
        given = [COTANGENTS] * (len(split.backward.inputs) - len(inputs))
        return self._replace(
            held=(*self.held, *_summed(held)), inputs=(*inputs, *given),
            outputs=(GRADIENTS,) * len(split.backward.outputs),
        )

    def of_part(self, reduced: Graph) -> Limit:
        """For a backward part of which some cotangents, and so some values, are missing."""
        return self._replace(
            inputs=(SAVED,) * len(reduced.inputs), outputs=(GRADIENTS,) * len(reduced.outputs)
        )


def _results(split: Split) -> int:
    """How many of a forward's outputs are the user's: saved values that are not follow them."""
    more = {i for side, i in split.saved if side == "output"}
    count = len(split.forward.outputs)
    while count and count - 1 in more:
        count -= 1
    return count


def _summed(rows: Sequence[tuple[str, int]]) -> Rows:
    found: dict[str, int] = {}
    for what, size in rows:
        found[what] = found.get(what, 0) + size
    return tuple(found.items())


def bytes_of_node(node: Node, dims: Mapping[str, int]) -> int:
    """Of a value, at these sizes."""
    return evaluate(product(node.shape), dims) * node.dtype.itemsize


def limit_of(traced: TracedGraph, limit: int) -> Limit:
    """For what a recording says."""
    inputs = tuple(_word(source) for source in traced.inputs)
    outputs = [RESULTS] * len(traced.graph.outputs)
    former, written = 0, [write.value for write in traced.grads if write.value is not None]
    for i in {value.index for value in written if _is_new(value, traced.mutated)}:
        outputs[i] = GRADIENTS
        former += bytes_of_node(traced.graph.outputs[i], traced.graph.env.hints)
    return Limit(limit, ((FORMER, former),) if former else (), inputs, tuple(outputs))


def _is_new(value: Output, mutated: Mapping[int, int]) -> bool:
    return value.kind in ("value", "view") and value.index not in mutated


def _word(source: object) -> str:
    if not isinstance(source, TensorInput) or source.kind == "argument":
        return ARGUMENTS
    if source.kind == "grad":
        return GRADIENTS
    if source.kind == "tangent":
        return COTANGENTS
    return PARAMETERS if isinstance(source.tensor, Parameter) else STATE
