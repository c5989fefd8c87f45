"""What the onnx package says of an operator: nodes are held to it before anything runs."""

from __future__ import annotations

import functools
from typing import Any

from ...package import onnx
from ..errors import refuse


@functools.lru_cache(maxsize=4096)
def schema_of(op: str, version: int, domain: str) -> Any:
    """The operator's schema; None where the package has none."""
    defs = onnx().defs
    if not defs.has(op, domain):
        return None
    try:
        return defs.get_schema(op, version, domain)
    except defs.SchemaError:
        return None


def check_node(proto: Any, version: int, domain: str, where: str) -> None:
    """Refuse a node with too few or too many inputs or outputs, or attributes that do not fit."""
    schema = schema_of(proto.op_type, version, domain)
    if schema is None:
        return
    for what, have, least, most in (
        ("inputs", len(proto.input), schema.min_input, schema.max_input),
        ("outputs", len(proto.output), schema.min_output, schema.max_output),
    ):
        if not least <= have <= most:
            refuse(
                f"{where} has {have} {what}; {proto.op_type}-{schema.since_version} has "
                f"{least} to {most}", "the file is damaged",
            )
    for each, formal in zip(proto.input, schema.inputs, strict=False):
        if not each and formal.option == onnx().defs.OpSchema.FormalParameterOption.Single:
            refuse(f"{where} lacks its input {formal.name}", "the file is damaged")
    given = {each.name: each for each in proto.attribute}
    if len(given) != len(proto.attribute):
        refuse(f"{where} has an attribute twice", "the file is damaged")
    for name, formal in schema.attributes.items():
        if formal.required and name not in given:
            refuse(f"{where} lacks its attribute {name}", "the file is damaged")
    for name, each in given.items():
        formal = schema.attributes.get(name)
        if formal is not None and each.type not in (0, int(formal.type.value)):
            refuse(f"{where} has the attribute {name} of another type", "the file is damaged")
