"""torch.utils.tensorboard._proto_graph: a node of a graph, as TensorBoard's message."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from .packages import AttrValue, NodeDef, shape_proto


def tensor_shape_proto(outputsize: Sequence[int]) -> Any:
    """The message that says a shape."""
    return shape_proto(outputsize)


def attr_value_proto(
    dtype: object, shape: Sequence[int] | None, s: str | None
) -> dict[str, Any]:
    """A node's attributes: its result's shape, and a text that says the others. `dtype` is not
    shown."""
    return attributes(None if shape is None else [shape], {} if s is None else {"attr": s})


def attributes(shapes: Sequence[Sequence[int]] | None, texts: Mapping[str, str]) -> dict[str, Any]:
    """The shape of each result, where TensorBoard looks for them, and texts by name."""
    found = {name: AttrValue(s=text.encode()) for name, text in texts.items()}
    if shapes is not None:
        messages = [shape_proto(shape) for shape in shapes]
        found["_output_shapes"] = AttrValue(list=AttrValue.ListValue(shape=messages))
    return found


def node_proto(
    name: str, op: str = "UnSpecified", input: Sequence[str] | str | None = None,
    dtype: object = None, shape: Sequence[int] | None = None,
    outputsize: Sequence[int] | None = None, attributes: str = "",
) -> Any:
    """A node with one result. `shape` is not shown: `outputsize` is."""
    inputs = [] if input is None else [input] if isinstance(input, str) else list(input)
    return NodeDef(
        name=name, op=op, input=inputs, attr=attr_value_proto(dtype, outputsize, attributes)
    )
