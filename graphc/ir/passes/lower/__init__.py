"""Fusion nodes -> kernels for a machine, one lowering per distinct structure.

Pointwise groups over buffers of one length are lowered once for all lengths: their kernels take
the length as the named dim `n`.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from typing import Any

from ...dim import Dim, Size, product, unwrap
from ...graph import Constant, Graph, Node, attr_key
from ...kernel import Kernel, Template
from ...machine import Machine
from ...record import record
from ...types import TupleType
from .body import Body
from .kinds import KERNELS, LOOP, Kind
from .loops import is_flat
from .template_loops import as_loops


@record
class Lowered:
    """A kernel and the values of its named dims over the graph's dims."""

    kernel: Kernel
    dims: tuple[Size, ...]


_MEMO: dict[Hashable, Kernel] = {}
_MOST = 4096


def lower(
    fused: Graph, machine: Machine, renders: Callable[[Template], bool] = lambda template: True
) -> dict[Node, Lowered]:
    """The kernels of the fusion nodes of a fused graph and of the bodies of its control flow.
    Those with empty results have none. A template that the backend does not render becomes
    loops."""
    found: dict[Node, Lowered] = {}
    for node in fused.nodes:
        if node.op.name != "fusion":
            for body in node.graphs:
                found |= lower(body, machine, renders)
        elif not _empty(node):
            found[node] = _rendered(lower_node(node, machine), machine, renders)
    return found


def _rendered(
    lowered: Lowered, machine: Machine, renders: Callable[[Template], bool]
) -> Lowered:
    kernel = lowered.kernel
    if kernel.template is None or renders(kernel.template):
        return lowered
    return Lowered(as_loops(kernel, machine), lowered.dims)


def _empty(node: Node) -> bool:
    types = node.type.elements if isinstance(node.type, TupleType) else (node.type,)
    return all(unwrap(product(t.shape)) == 0 for t in types)


def lower_node(node: Node, machine: Machine) -> Lowered:
    """The kernel of one fusion node. Equal structures give the identical Kernel object."""
    graph, kind = node.graphs[0], KERNELS[node.attrs["kind"]]
    if kind is LOOP and is_flat(graph):
        total = unwrap(product(graph.outputs[0].shape))
        # the text does not depend on the length, nor on how it is cut into dims
        key: Hashable = ("flat", total == 1, structure(graph, shapes=False))
        dims: tuple[Size, ...] = () if total == 1 else (total,)
        return Lowered(_kernel(key, Body(graph, machine), kind), dims)
    names = sorted(_named_dims(graph))
    rename: dict[str, Size] = {name: Dim.var(f"d{i}") for i, name in enumerate(names)}
    hints = tuple(graph.env.hints.get(name) for name in names)
    key = (kind.name, hints, structure(graph, shapes=True))
    kernel = _kernel(key, Body(graph, machine, rename), kind)
    return Lowered(kernel, tuple(Dim.var(name) for name in names))


def _kernel(structure: Hashable, body: Body, kind: Kind) -> Kernel:
    key = (structure, body.machine)
    found = _MEMO.get(key)
    if found is None:
        if len(_MEMO) >= _MOST:
            _MEMO.clear()
        found = _MEMO[key] = kind.kernel(body)
    return found


def structure(
    graph: Graph, shapes: bool
) -> tuple[tuple[tuple[Hashable, ...], ...], tuple[int, ...]]:
    """A key of a body: a row for each node (operator, wiring, dtype and, if `shapes`, size,
    attributes), and the results."""
    number = {node: i for i, node in enumerate(graph.nodes)}
    total = product(graph.outputs[0].shape)
    rows: list[Any] = []
    for node in graph.nodes:
        sizes: Any = node.type if shapes else (node.dtype.name, product(node.shape) == total)
        attrs: Any = ()
        if node.op.name not in ("input", "reshape", "expand") or shapes:
            attrs = tuple(
                (k, _attr(v)) for k, v in node.attrs.items()
                if k not in ("name", "index", "type") and (shapes or k != "shape")
            ) if node.op.name != "get" else (node.attrs["index"],)
        rows.append((node.op.name, tuple(number[x] for x in node.inputs), sizes, attrs))
    return (tuple(rows), tuple(number[n] for n in graph.outputs))


def _attr(value: Any) -> Hashable:
    if isinstance(value, Constant):
        # values may be small tables: compare by bits, so that 0.0 and -0.0 differ
        return (value.array.dtype.str, str(value.array.dtype), value.array.shape,
                value.array.tobytes())
    found: Hashable = attr_key(value)
    return found


def _named_dims(graph: Graph) -> set[str]:
    names: set[str] = set()
    for node in graph.nodes:
        types = node.type.elements if isinstance(node.type, TupleType) else (node.type,)
        for type_ in types:
            _collect(type_.shape, names)
        _collect(node.attrs.values(), names)
    return names


def _collect(values: Iterable[Any], names: set[str]) -> None:
    for value in values:
        if isinstance(value, Dim):
            names |= value.variables()
        elif isinstance(value, tuple):
            _collect(value, names)
