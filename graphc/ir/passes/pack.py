"""pack: what products inside a loop read at every step, and the loop does not change, is laid out
for them once, before the loop.

A product goes through panels of the right operand, a register tile wide. A recurrent weight
[n, k] would be packed into panels, or read against the grain, at every step; here it becomes a
value [panels, k, columns of a panel], made by an ordinary kernel outside.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from ..dim import product as sizes
from ..dim import unwrap
from ..graph import Builder, Graph, Node, get_, input_
from ..machine import Machine, Tiling
from ..op import get
from ..record import record
from ..rewrite import everywhere, rebuilt, with_inputs
from ..types import TensorType
from .panels import Panels, panels_for, rows_of, size_of


def pack(graph: Graph, machine: Machine) -> Graph:
    """The graph with the right operands of products in its scans packed outside."""
    tiling = machine.tiling
    if tiling is None or not any(node.op.name == "scan" for node in graph.nodes):
        return graph
    return everywhere(graph, lambda part: _pack(part, tiling))


@record
class _Layout:
    """How one carried value of a loop is laid out: dims `free` and `contract` of the product, in
    `panels`; None: no panels, but n contiguous."""

    operand: int
    free: tuple[int, ...]
    contract: tuple[int, ...]
    panels: Panels | None

    def made(self, builder: Builder, value: Node) -> Node:
        """The value laid out; what was put together is laid out part by part."""
        if value.op.name == "concat" and value.attrs["dim"] == self.contract[0] and all(
            self.panels is None or size_of(x, self.contract) % self.panels.shape.group == 0
            for x in value.inputs
        ):
            parts = [self.made(builder, part) for part in value.inputs]
            return builder.emit(get("concat"), *parts, dim=1 if self.panels else 0)
        if self.panels is None:
            return builder.emit(get("permute"), value, dims=(*self.contract, *self.free))
        return self.panels.made(builder, value)

    def product(self, builder: Builder, node: Node, left: Node, packed: Node) -> Node:
        """The product `node` with the value laid out as its right operand."""
        right, contract = packed, tuple(range(len(self.contract)))
        if self.panels is not None:
            right = self.panels.rows(builder, packed, node.inputs[1])
            contract = tuple(range(1, len(right.shape)))
        attrs = {**node.attrs, "batch_a": (), "batch_b": (), "contract_b": contract}
        found = builder.emit(node.op, left, right, **attrs)
        return builder.emit(get("reshape"), found, shape=node.shape)


def _pack(graph: Graph, tiling: Tiling) -> Graph:
    builder = Builder(graph.env)
    new: dict[Node, Node] = {}
    renumbered: dict[Node, tuple[Node, ...]] = {}
    for node in graph.nodes:
        if node.op is get_ and node.inputs[0] in renumbered:
            new[node] = renumbered[node.inputs[0]][node.attrs["index"]]
            continue
        new[node] = current = with_inputs(node, [new[x] for x in node.inputs])
        found = _products(node, tiling) if _is_long(node, graph, tiling) else {}
        if found:
            renumbered[node] = _packed(builder, current, found)
    return rebuilt(graph, new)


def _is_long(node: Node, graph: Graph, tiling: Tiling) -> bool:
    """Whether a node is a loop of enough steps; of a symbolic number, the first one counts."""
    if node.op.name != "scan":
        return False
    steps = node.inputs[node.attrs["n_carried"]].shape[0]
    return graph.env.hint(steps) >= tiling.pack_steps


def _products(scan: Node, tiling: Tiling) -> dict[Node, _Layout]:
    """The products of a body that read a value which the loop does not change."""
    (body,) = scan.graphs
    invariant = {
        value: i for i, value in enumerate(body.inputs[: scan.attrs["n_carried"]])
        if body.outputs[i] is value
    }
    found: dict[Node, _Layout] = {}
    for node in body.nodes:
        if node.op.name == "dot_general" and node.inputs[1] in invariant:
            layout = _layout(node, invariant[node.inputs[1]], tiling, body)
            if layout is not None:
                found[node] = layout
    return found


def _layout(product: Node, operand: int, tiling: Tiling, body: Graph) -> _Layout | None:
    """How a product's right operand is best laid out; None where it is well as it is."""
    right, attrs = product.inputs[1], product.attrs
    itemsize = product.dtype.itemsize
    if attrs["batch_b"] or not product.dtype.is_float:
        return None
    contract: tuple[int, ...] = attrs["contract_b"]
    free = tuple(d for d in range(len(right.shape)) if d not in contract)
    n, k = (unwrap(sizes(right.shape[d] for d in dims)) for dims in (free, contract))
    if not isinstance(n, int) or not isinstance(k, int) or n <= tiling.dot_columns or k == 0:
        return None
    panels = panels_for(product, tiling, body.env.hint(rows_of(product)))
    if itemsize < 4:
        return None if panels is None else _Layout(operand, free, contract, panels)
    if panels is not None and n % panels.shape.columns == 0 and (
        n * k * itemsize > tiling.in_place_bytes or contract[-1:] == (len(right.shape) - 1,)
    ):
        return _Layout(operand, free, contract, panels)
    if contract == tuple(range(len(free), len(right.shape))):
        return _Layout(operand, free, contract, None)
    return None


def _packed(builder: Builder, scan: Node, found: Mapping[Node, _Layout]) -> tuple[Node, ...]:
    """The results of a scan whose body reads the layouts; what it then reads no more it does not
    carry."""
    carried: int = scan.attrs["n_carried"]
    layouts = tuple(dict.fromkeys(found.values()))
    gone = {x.operand for x in layouts if _read_by(scan.graphs[0], x.operand, found)}
    kept = [value for i, value in enumerate(scan.inputs[:carried]) if i not in gone]
    with builder.at(scan.loc, scan.backward):
        made = [layout.made(builder, scan.inputs[layout.operand]) for layout in layouts]
        body = _body(scan.graphs[0], carried, found, gone, {
            layout: value.tensor_type for layout, value in zip(layouts, made, strict=True)
        })
        packed = builder.emit(
            scan.op, *kept, *made, *scan.inputs[carried:], graphs=(body,),
            **{**scan.attrs, "n_carried": len(kept) + len(made)},
        )
    results = builder.results(packed)
    left = iter(results)
    ends = [scan.inputs[i] if i in gone else next(left) for i in range(carried)]
    return (*ends, *results[len(kept) + len(made) :])


def _read_by(body: Graph, i: int, found: Collection[Node]) -> bool:
    """Whether a carried value is read by these products alone."""
    value = body.inputs[i]
    others = [node for node in body.nodes if value in node.inputs and node not in found]
    return not others and body.outputs.count(value) == 1


def _body(
    body: Graph, carried: int, found: Mapping[Node, _Layout], gone: Collection[int],
    types: Mapping[_Layout, TensorType],
) -> Graph:
    """The body with the layouts among what it carries, unchanged, and without what is gone."""
    builder = Builder(body.env)
    new: dict[Node, Node] = {}
    packed: dict[_Layout, Node] = {}
    for i, value in enumerate(body.inputs):
        if i == carried:
            packed = {layout: builder.input(type_) for layout, type_ in types.items()}
        if i not in gone:
            new[value] = builder.input(value.tensor_type, value.attrs["name"])
    for node in body.nodes:
        if node.op is input_:
            continue
        layout = found.get(node)
        if layout is None:
            new[node] = with_inputs(node, [new[x] for x in node.inputs])
            continue
        with builder.at(node.loc, node.backward):
            new[node] = layout.product(builder, node, new[node.inputs[0]], packed[layout])
    outputs = [new[x] for i, x in enumerate(body.outputs) if i not in gone]
    outputs[carried - len(gone) : carried - len(gone)] = packed.values()
    return builder.build(outputs, body.name)
