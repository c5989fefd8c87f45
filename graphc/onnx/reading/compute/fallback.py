"""Operators without a row: computed by the function that the onnx package gives as their meaning.

Some functions depend on the types of the inputs, which the first call with such types tells.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ....frontend.tensor import Tensor
from ...package import onnx
from ..tensors import KINDS
from .carried import Carried
from .numbers import Numbers
from .program import Program, run
from .schemas import schema_of
from .table import Node, Operator

if TYPE_CHECKING:
    from .build import Builder


def _schema(node: Node) -> Any:
    return schema_of(node.op, node.version, node.domain)


def body_of(node: Node) -> Any:
    """The FunctionProto of an operator that has one for any types; None else."""
    schema = _schema(node)
    if schema is None or not schema.has_function:
        return None
    versions = [v for v in schema.function_opset_versions if v <= node.version]
    if not versions:
        return None
    return _parsed(schema, schema.get_function_with_opset_version(versions[-1]))


def _parsed(schema: Any, data: bytes) -> Any:
    """A function, with the operator's defaults for what the call leaves out."""
    function = onnx().FunctionProto()
    function.ParseFromString(data)
    if all(each.domain for each in function.opset_import):  # it is written in ai.onnx's operators
        function.opset_import.add(domain="", version=onnx().defs.onnx_opset_version())
    there = {each.name for each in function.attribute_proto}
    for name, attribute in schema.attributes.items():
        if name not in there and attribute.default_value.name:
            function.attribute_proto.append(attribute.default_value)
    return function


def grown(builder: Builder, proto: Any, node: Node) -> Operator | None:
    """A row for an operator whose function depends on types; None where there is none."""
    schema = _schema(node)
    if schema is None or not schema.has_context_dependent_function:
        return None
    programs: dict[Any, Program] = {}

    def compute(node: Node, *inputs: Any) -> tuple[Any, ...]:
        types = [_type(value) for value in inputs]
        key = tuple(each.SerializeToString() for each in types)
        if key not in programs:
            programs[key] = _grow(builder, schema, proto, node, key)
        absent = len(programs[key].inputs) - len(inputs)
        return tuple(run(programs[key], (), [*inputs, *[None] * absent]))

    return Operator(node.op, schema.since_version, compute, raw=True)


def _grow(builder: Builder, schema: Any, proto: Any, node: Node, types: Any) -> Program:
    versions = [
        v for v in schema.context_dependent_function_opset_versions if v <= node.version
    ]
    data = schema.get_context_dependent_function_with_opset_version(
        versions[-1], proto.SerializeToString(), list(types)
    )
    function = _parsed(schema, data)
    given = {
        each.name: builder.attribute(each, node.where) for each in function.attribute_proto
    }
    held = len(builder.model.held)
    program = builder.call(function, {**given, **node.attributes}, node.where)
    if builder.model.missing:
        node.refuse(f"its function needs {sorted(builder.model.missing)}", "export it without")
    if len(builder.model.held) != held:
        node.refuse("its function has large constants", "export the model without it")
    return program


def _type(value: Any) -> Any:
    """The TypeProto of a value; an empty one where there is none."""
    made = onnx().TypeProto()
    if isinstance(value, (Tensor, Numbers, Carried)):
        kind: Any = (
            value.dtype.numpy if isinstance(value, Tensor)
            else value.kind.numpy if isinstance(value, Carried) else value.kind
        )
        made.tensor_type.elem_type = next(n for n, (_, k, _) in KINDS.items() if k == kind)
        made.tensor_type.shape.SetInParent()
        for size in value.shape:
            dim = made.tensor_type.shape.dim.add()
            if type(size) is int:
                dim.dim_value = size
    return made
