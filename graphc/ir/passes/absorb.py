"""absorb: a product in front of a loop, whose rows the loop's own product is added to, becomes a
part of that: x[t] U + h V is [x[t], h] [U; V].

One product over all steps, made in front of the loop, is written to memory and read again, row by
row, by way of distant caches; in the loop its sums stay in registers. This is worth it where a step
has so many rows that its own arithmetic, and not reading the weights, is what it waits for; with
few rows, all steps together read the weights once.
"""

from __future__ import annotations

from collections.abc import Mapping

from ..dim import product as sizes
from ..dim import unwrap
from ..graph import Builder, Graph, Node, get_, input_
from ..machine import Machine, Tiling
from ..op import get
from ..record import record
from ..rewrite import everywhere, rebuilt, with_inputs
from ..types import TensorType

Users = Mapping[Node, list[Node]]


def absorb(graph: Graph, machine: Machine) -> Graph:
    """The graph with products in front of its scans made part of the scans' own."""
    tiling = machine.tiling
    if tiling is None or not any(node.op.name == "scan" for node in graph.nodes):
        return graph
    return everywhere(graph, lambda part: _absorb(part, tiling))


@record
class _Joint:
    """A product in front of a loop, and the one in its body that its rows are added to."""

    sequence: int  # the number of the loop's input, and of its body's
    outer: Node
    offset: Node | None  # what is added to each row of the outer one
    inner: Node
    total: Node  # the sum of both in the body
    weight: int  # the number of the inner one's right operand

    def carried(self, builder: Builder, below: Node, new: Mapping[Node, Node]) -> list[Node]:
        """What the loop gets to carry: both right operands, one behind the other along what is
        summed over, and the offset."""
        (first,), (second,) = self.outer.attrs["contract_b"], self.inner.attrs["contract_b"]
        above = new[self.outer.inputs[1]]
        if first != second:
            order = [d for d in range(len(below.shape)) if d != first]
            order.insert(second, first)
            above = builder.emit(get("permute"), above, dims=tuple(order))
        weight = builder.emit(get("concat"), above, below, dim=second)
        return [weight] if self.offset is None else [weight, new[self.offset]]

    def product(self, builder: Builder, row: Node, left: Node, carried: list[Node]) -> Node:
        """The one product, of the rows of both left operands."""
        weight, *offset = carried
        (dim,) = self.inner.attrs["contract_a"]
        both = builder.emit(get("concat"), row, left, dim=dim)
        found = builder.emit(self.inner.op, both, weight, **self.inner.attrs)
        return builder.emit(get("add"), found, *offset) if offset else found


def _absorb(graph: Graph, tiling: Tiling) -> Graph:
    builder, users = Builder(graph.env), graph.users()
    new: dict[Node, Node] = {}
    renumbered: dict[Node, tuple[Node, ...]] = {}
    for node in graph.nodes:
        if node.op is get_ and node.inputs[0] in renumbered:
            new[node] = renumbered[node.inputs[0]][node.attrs["index"]]
            continue
        new[node] = with_inputs(node, [new[x] for x in node.inputs])
        if node.op.name == "scan":
            joints = [x for x in _joints(graph, node, users) if _gains(graph, x, tiling)]
            if joints:
                renumbered[node] = _joined(builder, node, joints, new)
    return rebuilt(graph, new)


# --- what fits together ----------------------------------------------------------------------


def _joints(graph: Graph, scan: Node, users: Users) -> list[_Joint]:
    """The products that can be made one, of each sum in the body at most two."""
    (body,) = scan.graphs
    inside = body.users()
    found: dict[Node, _Joint] = {}
    for i in range(scan.attrs["n_carried"], len(scan.inputs)):
        total = _reader(body, inside, body.inputs[i])
        value = scan.inputs[i]
        if total is None or total.op.name != "add" or _reader(graph, users, value) is not scan:
            continue
        (other,) = [x for x in total.inputs if x is not body.inputs[i]]
        outer, offset = _without_offset(value)
        if outer is not value and _reader(graph, users, outer) is not value:
            continue
        weight = _weight(scan, other)
        if weight is not None and _reader(body, inside, other) is total and _fit(outer, other):
            found.setdefault(total, _Joint(i, outer, offset, other, total, weight))
    return list(found.values())


def _reader(graph: Graph, users: Users, value: Node) -> Node | None:
    """What alone reads a value, at one place."""
    found = users[value]
    if len(found) != 1 or found[0].inputs.count(value) != 1 or value in graph.outputs:
        return None
    return found[0]


def _without_offset(value: Node) -> tuple[Node, Node | None]:
    """What all steps add the same to, and that; else the value."""
    if value.op.name == "add":
        for one, other in (value.inputs, value.inputs[::-1]):
            if one.type == value.type and len(other.shape) < len(value.shape):
                return one, other
    return value, None


def _weight(scan: Node, product: Node) -> int | None:
    """The number of a product's right operand among what the loop does not change."""
    (body,) = scan.graphs
    for i in range(scan.attrs["n_carried"]):
        if product.inputs[1:] == body.inputs[i : i + 1] and body.outputs[i] is body.inputs[i]:
            return i
    return None


def _fit(outer: Node, inner: Node) -> bool:
    """Whether two values are products that differ, but for the steps, by what they sum over."""
    if not _is_plain(outer) or not _is_plain(inner) or outer.shape[1:] != inner.shape:
        return False
    if outer.attrs.get("tf32") != inner.attrs.get("tf32"):
        return False
    return outer.inputs[0].shape[1:-1] == inner.inputs[0].shape[:-1] and all(
        a.dtype is b.dtype for a, b in zip(outer.inputs, inner.inputs, strict=True)
    )


def _is_plain(node: Node) -> bool:
    """Whether a node is a product summed over the last dim of the left operand and one of the
    right."""
    if node.op.name != "dot_general" or not node.dtype.is_float or node.attrs["batch_a"]:
        return False
    last = len(node.inputs[0].shape) - 1
    return node.attrs["contract_a"] == (last,) and len(node.attrs["contract_b"]) == 1


def _gains(graph: Graph, joint: _Joint, tiling: Tiling) -> bool:
    """Whether a step is large enough; of symbolic sizes, the first ones count."""
    hint, steps, result = graph.env.hint, joint.outer.shape[0], joint.inner.shape
    (_, *rows, outer_k), inner_k = joint.outer.inputs[0].shape, joint.inner.inputs[0].shape[-1]
    n, k = unwrap(sizes(result[len(rows) :])), unwrap(outer_k + inner_k)
    if not isinstance(n, int) or not isinstance(k, int) or not isinstance(outer_k, int):
        return False
    if hint(steps) < tiling.pack_steps or hint(unwrap(sizes(rows))) < tiling.joint_rows:
        return False
    # what is read instead of the product's rows is no larger; the weights stay in a cache
    return outer_k <= n and k * n * joint.inner.dtype.itemsize <= tiling.in_place_bytes


# --- the loop --------------------------------------------------------------------------------


def _joined(
    builder: Builder, scan: Node, joints: list[_Joint], new: Mapping[Node, Node]
) -> tuple[Node, ...]:
    """The results of a scan whose body computes the joint products."""
    n: int = scan.attrs["n_carried"]
    inputs = [new[x] for x in scan.inputs]
    with builder.at(scan.loc, scan.backward):
        added = [joint.carried(builder, inputs[joint.weight], new) for joint in joints]
        for joint in joints:
            inputs[joint.sequence] = new[joint.outer.inputs[0]]
        flat = [value for values in added for value in values]
        body = _body(scan, joints, [[x.tensor_type for x in values] for values in added])
        joined = builder.emit(
            scan.op, *inputs[:n], *flat, *inputs[n:], graphs=(body,),
            **{**scan.attrs, "n_carried": n + len(flat)},
        )
    results = builder.results(joined)
    return (*results[:n], *results[n + len(flat) :])


def _body(scan: Node, joints: list[_Joint], added: list[list[TensorType]]) -> Graph:
    """The body with what is added to what it carries, unchanged."""
    (body,) = scan.graphs
    builder = Builder(body.env)
    n: int = scan.attrs["n_carried"]
    rows = {x.sequence: TensorType(x.outer.dtype, x.outer.inputs[0].shape[1:]) for x in joints}
    new: dict[Node, Node] = {}
    carried: dict[Node, tuple[_Joint, list[Node]]] = {}
    for i, value in enumerate(body.inputs):
        if i == n:
            carried = {
                joint.total: (joint, [builder.input(type_) for type_ in types])
                for joint, types in zip(joints, added, strict=True)
            }
        new[value] = builder.input(rows.get(i, value.tensor_type), value.attrs["name"])
    gone = {joint.inner for joint in joints}
    for node in body.nodes:
        if node.op is input_ or node in gone:
            continue
        if node not in carried:
            new[node] = with_inputs(node, [new[x] for x in node.inputs])
            continue
        joint, values = carried[node]
        with builder.at(node.loc, node.backward):
            row, left = new[body.inputs[joint.sequence]], new[joint.inner.inputs[0]]
            new[node] = joint.product(builder, row, left, values)
    outputs = [new[x] for x in body.outputs]
    outputs[n:n] = [x for _, values in carried.values() for x in values]
    return builder.build(outputs, body.name)
