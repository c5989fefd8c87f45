"""torch.utils.tensorboard._onnx_graph: an ONNX file's graph; the onnx package reads it."""

from __future__ import annotations

import itertools
from typing import Any

from .packages import AttrValue, GraphDef, NodeDef, VersionDef, shape_proto


def load_onnx_graph(fname: Any) -> Any:
    """The GraphDef of a file."""
    import onnx

    return parse(onnx.load(fname).graph)


def parse(graph: Any) -> Any:
    """The GraphDef of an ONNX graph."""
    nodes = []
    for value in itertools.chain(graph.input, graph.output):
        type_ = value.type.tensor_type
        shape = shape_proto([dim.dim_value for dim in type_.shape.dim])
        nodes.append(NodeDef(name=value.name, op="Variable", attr={
            "dtype": AttrValue(type=type_.elem_type), "shape": AttrValue(shape=shape),
        }))
    for node in graph.node:
        settings = [" = ".join(str(field[1]) for field in a.ListFields()) for a in node.attribute]
        nodes.append(NodeDef(
            name=node.output[0], op=node.op_type, input=list(node.input),
            attr={"parameters": AttrValue(s=", ".join(settings).encode())},
        ))
    return GraphDef(node=nodes, versions=VersionDef(producer=22))
