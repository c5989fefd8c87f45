"""Values that are known while tracing: they follow from constants alone.

`torch.tensor(len(x))`, and what is computed of it, needs no run of the graph: Python may ask for
its number (as a size, a slice bound, by item()) without ending a segment.
"""

from __future__ import annotations

import numpy as np

from graphc.ir.dim import Dim, is_static
from graphc.ir.graph import Node
from graphc.ir.types import TensorType

from .context import local
from .tensor import Tensor, concrete
from .values import Eager

_MOST_NODES = 32
_MOST_ELEMENTS = 1024
_FOLDED = frozenset("""
    cast full iota reshape permute expand slice slice_update concat sum prod amax amin any all
""".split())


def values(tensor: Tensor, what: str, cure: str) -> np.ndarray:
    """concrete(), for code that reads numbers and does not keep the array."""
    found = known(tensor)
    return concrete(tensor, what, cure) if found is None else found


def known(tensor: Tensor) -> np.ndarray | None:
    """The values of a traced tensor that follow from constants; None for any other tensor."""
    trace = local.trace
    if trace is None or tensor._graphc_trace is not trace:
        return None
    node = trace.read(tensor)
    if _reads_input(node):
        return None
    try:
        return _folded(node, {})
    except RuntimeError:  # an integer division by zero, say: the graph raises it
        return None


def _reads_input(node: Node) -> bool:
    """Whether the first operands lead to an input, or far away: most do, and are not looked at."""
    for _ in range(_MOST_NODES):
        if not node.inputs:
            return node.op.name == "input"
        node = node.inputs[0]
    return bool(node.inputs)


def _folded(node: Node, found: dict[Node, np.ndarray | None]) -> np.ndarray | None:
    """The value of a node; None where it needs an input, or work."""
    if node.op.name == "const":
        array: np.ndarray = node.attrs["value"].array
        return array
    if node in found:
        return found[node]
    found[node] = None
    if len(found) > _MOST_NODES or type(node.type) is not TensorType or (
        not (node.op.elementwise or node.op.name in _FOLDED)
    ):
        return None
    if any(isinstance(value, Dim) for value in node.attrs.values()) or (
        not is_static(node.shape) or node.type.elements > _MOST_ELEMENTS  # type: ignore[operator]
    ):
        return None
    inputs = []
    for x in node.inputs:
        value = _folded(x, found)
        if value is None:
            return None
        inputs.append(value)
    found[node] = np.asarray(Eager.run(node.op, inputs, dict(node.attrs)))
    return found[node]
