"""pairs: arithmetic on complex numbers as arithmetic on their parts, which kernels are made of.

A complex value lies in memory as [..., 2]: `view_as_real` and `view_as_complex` cost nothing. Moves
and sums go by those rows, products and the like by the parts, which are read at every second place
and put together again where somebody wants the number itself: a Fourier transform, a caller.
"""

from __future__ import annotations

from typing import Any

from .. import ops
from ..graph import Builder, Expr, Graph, Node, const, on_complex
from ..rewrite import everywhere, rebuilt, scalar_value, with_inputs
from ..types import TensorType
from .pair_rules import EACH, IN_PARTS, Pair, by_rows, known


def pairs(graph: Graph) -> Graph:
    """The graph, its sub-graphs included, with such operators in real ones; itself where there are
    none."""
    return everywhere(graph, _in_parts)


def _in_parts(graph: Graph) -> Graph:
    if not any(_done_apart(node) for node in graph.nodes):
        return graph
    return _Apart(graph).graph


def _is_complex(node: Node) -> bool:
    return isinstance(node.type, TensorType) and node.type.dtype.is_complex


def _is_view(node: Node) -> bool:
    return node.op.name in ("view_as_real", "view_as_complex")


def _done_apart(node: Node) -> bool:
    return not node.graphs and known(node) and on_complex(node)


class _Apart:
    """Rewrites one graph. Of a complex value it keeps whichever forms somebody asked for."""

    def __init__(self, graph: Graph) -> None:
        self.builder = Builder(graph.env)
        self.whole: dict[Node, Node] = {}  # of real values their only form
        self.rows: dict[Node, Any] = {}
        self.parts: dict[Node, Pair] = {}
        for node in graph.nodes:
            with self.builder.at(node.loc, node.backward):
                self._add(node)
        self.graph = rebuilt(graph, {node: self._whole(node) for node in graph.outputs})

    def _add(self, node: Node) -> None:
        if _is_view(node):
            self._view(node)
        elif not _done_apart(node):
            self.whole[node] = with_inputs(node, [self._whole(x) for x in node.inputs])
        elif node.op.name in EACH:
            self._alike(node)
        elif node.op.name == "full":
            self.parts[node] = self._filled(node, complex(node.attrs["value"]))
        else:
            self._keep(node, IN_PARTS[node.op.name](*map(self._operand, node.inputs), **node.attrs))

    def _view(self, node: Node) -> None:
        (source,) = node.inputs
        if _is_complex(node):
            self.rows[node] = Expr(self.builder, self.whole[source])
        else:
            self.whole[node] = self._rows(source).node

    def _alike(self, node: Node) -> None:
        """By rows, unless an operand is at hand in parts alone."""
        attrs = by_rows(node)
        if attrs is None or any(self._is_apart(x) for x in node.inputs):
            self.parts[node] = EACH[node.op.name](*map(self._parts, node.inputs), **node.attrs)
        else:
            op = getattr(ops, node.op.name)
            self.rows[node] = op(*map(self._rows, node.inputs), **attrs)

    def _is_apart(self, node: Node) -> bool:
        return node in self.parts and node not in self.rows and node not in self.whole

    def _keep(self, node: Node, found: Any) -> None:
        if isinstance(found, Pair):
            self.parts[node] = found
        else:
            self.whole[node] = found.node

    # --- forms of a value -----------------------------------------------------------------------

    def _operand(self, node: Node) -> Any:
        return self._parts(node) if _is_complex(node) else Expr(self.builder, self.whole[node])

    def _whole(self, node: Node) -> Node:
        if node not in self.whole:
            self.whole[node] = ops.view_as_complex(self._rows(node)).node
        return self.whole[node]

    def _rows(self, node: Node) -> Any:
        if node not in self.rows:
            if node in self.parts:
                self.rows[node] = _together(self.parts[node])
            else:
                self.rows[node] = ops.view_as_real(Expr(self.builder, self.whole[node]))
        return self.rows[node]

    def _parts(self, node: Node) -> Pair:
        if node not in self.parts:
            value = scalar_value(node) if node.op is const else None
            self.parts[node] = Pair(*_cut(self._rows(node))) if value is None else (
                self._filled(node, complex(value))
            )
        return self.parts[node]

    def _filled(self, node: Node, value: complex) -> Pair:
        shape, dtype = tuple(node.shape), node.tensor_type.dtype.real
        return Pair(*(
            Expr(self.builder, self.builder.emit(
                ops.full, shape=shape, value=part, dtype=dtype
            ))
            for part in (value.real, value.imag)
        ))


def _cut(x: Any) -> list[Any]:
    """The parts of [..., 2]."""
    *shape, _ = x.shape
    none, steps = (0,) * len(shape), (1,) * len(x.shape)
    return [
        ops.reshape(
            ops.slice(x, starts=(*none, part), stops=(*shape, part + 1), steps=steps),
            shape=tuple(shape),
        )
        for part in (0, 1)
    ]


def _together(pair: Pair) -> Any:
    """[..., 2]."""
    shape = (*pair.real.shape, 1)
    return ops.concat(
        *(ops.reshape(part, shape=shape) for part in pair), dim=len(shape) - 1
    )
