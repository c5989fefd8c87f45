"""Branches and loops. ONNX's inner graphs see the values around them, ours take them as inputs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from graphc.ir import dtypes
from graphc.ir.graph import Node
from graphc.ir.types import TensorType, TupleType

from .rules import rule
from .walk import write

if TYPE_CHECKING:
    from .writer import Writer


def _types(node: Node) -> tuple[TensorType, ...]:
    return node.type.elements if isinstance(node.type, TupleType) else (node.tensor_type,)


def _graph(
    w: Writer, nodes: Sequence[Any], inputs: Sequence[tuple[str, TensorType]],
    outputs: Sequence[tuple[str, TensorType]],
) -> Any:
    return w.onnx.helper.make_graph(
        list(nodes), w.name("inner"), [w.value_info(*each) for each in inputs],
        [w.value_info(*each) for each in outputs],
    )


def _inputs(w: Writer, types: Sequence[TensorType], wanted: str) -> list[str]:
    return [w.input(wanted, each.dtype) for each in types]


@rule("cond")
def _cond(w: Writer, node: Node, predicate: str, *operands: str) -> Any:
    types = _types(node)
    branches = []
    for graph in node.graphs:
        with w.inside() as nodes:
            names = w.own(nodes, write(w, graph, operands))
        branches.append(_graph(w, nodes, [], list(zip(names, types, strict=True))))
    then, otherwise = branches
    return w.raw(
        "If", [predicate], [each.dtype for each in types], then_branch=then, else_branch=otherwise
    )


@rule("while_loop")
def _while_loop(w: Writer, node: Node, *carried: str) -> Any:
    condition, body = node.graphs
    types = _types(node)
    flag, number = TensorType(dtypes.bool_, ()), TensorType(dtypes.i64, ())
    (first,) = write(w, condition, carried)
    with w.inside() as nodes:
        step, unused = w.input("step", dtypes.i64), w.input("before", dtypes.bool_)
        names = _inputs(w, types, "carried")
        results = write(w, body, names)
        again = write(w, condition, results)
        outputs = w.own(nodes, [*again, *results])
    inner = _graph(
        w, nodes, [(step, number), (unused, flag), *zip(names, types, strict=True)],
        list(zip(outputs, (flag, *types), strict=True)),
    )
    return w.raw("Loop", ["", first, *carried], [each.dtype for each in types], body=inner)


@rule("scan")
def _scan(w: Writer, node: Node, *inputs: str) -> Any:
    (body,) = node.graphs
    count, reverse = node.attrs["n_carried"], int(node.attrs["reverse"])
    types = [each.tensor_type for each in body.inputs]
    made = [each.tensor_type for each in body.outputs]
    with w.inside() as nodes:
        names = _inputs(w, types, "row")
        outputs = w.own(nodes, write(w, body, names))
    inner = _graph(
        w, nodes, list(zip(names, types, strict=True)), list(zip(outputs, made, strict=True))
    )
    rows, stacked = len(types) - count, len(made) - count
    directions: dict[str, Any] = {"scan_input_directions": [reverse] * rows}
    if stacked:
        directions["scan_output_directions"] = [reverse] * stacked
    return w.raw(
        "Scan", list(inputs), [each.dtype for each in made], body=inner, num_scan_inputs=rows,
        **directions,
    )


@rule("unwind")
def _unwind(w: Writer, node: Node, *inputs: str) -> Any:
    w.refuse("it is a gradient's loop", "export the forward pass alone")
