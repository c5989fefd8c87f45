"""layout: what convolutions read and write has its channels last in memory, on a Machine that wants
it so.

The operators keep torch's order of dims. A convolution reads permuted views, which lowering folds
into the indices of its operands, and its result is permuted at once, which its epilogue stores.
What stands between convolutions is computed on the permuted values: elementwise operators,
reductions, views, and pooling, which takes the channels into its window with a width of 1. Permutes
are left where other operators, inputs and outputs meet such values; a weight is permuted once, in
whatever kernel makes it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from ..graph import Builder, Graph, Node, get_, input_
from ..machine import Machine
from ..op import get
from ..rewrite import everywhere
from ..types import TensorType
from .unpool import gathered

_CONVOLUTIONS = frozenset({"conv", "conv_input_grad", "conv_weight_grad"})
_RANKS = (3, 4, 5)

T = TypeVar("T")


def layout(graph: Graph, machine: Machine) -> Graph:
    """The graph, its sub-graphs included, with the channels of convolutions last in memory; itself
    without one."""
    least = machine.channels_last

    def one(graph: Graph) -> Graph:
        if not any(node.op.name in _CONVOLUTIONS for node in graph.nodes):
            return graph
        return Layout(graph, least).made()

    return everywhere(graph, one) if least else graph


def in_last_order(graph: Graph, convolution: Rule) -> Graph:
    """The graph with what a rule makes of its convolutions, and what stands between them, in memory
    with the channels last."""
    return Layout(graph, 0, convolution).made()


def _to_last(rank: int) -> tuple[int, ...]:
    """The permute that puts dim 1 last."""
    return (0, *range(2, rank), 1)


def _to_first(rank: int) -> tuple[int, ...]:
    """The permute that puts the last dim behind the first."""
    return (0, rank - 1, *range(1, rank - 1))


def lies_last(node: Node) -> bool:
    """Whether a value is a permute of memory that has its channels last."""
    return node.op.name == "permute" and node.attrs["dims"] == _to_first(len(node.shape))


def _reordered(values: Sequence[T]) -> tuple[T, ...]:
    """What belongs to the dims, with that of dim 1 last."""
    return tuple([values[d] for d in _to_last(len(values))])


def _place(dim: int, rank: int) -> int:
    """Where a dim is once dim 1 is last."""
    return _to_last(rank).index(dim)


class Layout:
    """The new graph in the making. Each old node has a new one in `plain`, with the dims in their
    order, or in `last`, with dim 1 last; `views` are permutes of the former that were asked for."""

    def __init__(self, graph: Graph, least: int, convolution: Rule | None = None) -> None:
        """`convolution`: the rule for those, if it is another."""
        self.graph, self.least, self.convolution = graph, least, convolution
        self.builder = Builder(graph.env)
        self.plain: dict[Node, Node] = {}
        self.last: dict[Node, Node] = {}
        self.views: dict[Node, Node] = {}
        self.pools: dict[Node, Node] = {}  # max_pool -> the same over planes with channels
        self.indices: dict[Node, Node] = {}  # its second result -> flat indices in such planes

    def made(self) -> Graph:
        for node in self.graph.nodes:
            if node.op is input_:
                self.plain[node] = self.builder.input(node.tensor_type, node.attrs["name"])
                continue
            with self.builder.at(node.loc, node.backward):
                if not self._permuted(node):
                    self.plain[node] = self.builder.emit(
                        node.op, *map(self.as_plain, node.inputs), graphs=node.graphs, **node.attrs
                    )
        outputs = tuple([self.as_plain(node) for node in self.graph.outputs])
        return Graph(self.graph.name, tuple(self.builder.inputs), outputs, self.graph.env)

    def _permuted(self, node: Node) -> bool:
        """Make a node by its rule, if that applies to it."""
        rule = _RULES.get(node.op.name) or _FAMILIES.get(node.op.family)
        if node.op.elementwise:
            rule = _elementwise
        elif self.convolution is not None and node.op.name in _CONVOLUTIONS:
            rule = self.convolution
        return rule is not None and rule(self, node)

    # --- values ---------------------------------------------------------------------------------

    def as_plain(self, node: Node) -> Node:
        """An old node's value with its dims in their order."""
        if node not in self.plain:
            last = self.last[node]
            with self.builder.at(node.loc, node.backward):
                self.plain[node] = self.moved(last, _to_first(len(last.shape)))
        return self.plain[node]

    def as_last(self, node: Node) -> Node:
        """An old node's value with dim 1 last."""
        if node in self.last:
            return self.last[node]
        if node not in self.views:
            with self.builder.at(node.loc, node.backward):
                self.views[node] = self._view(node)
        return self.views[node]

    def _view(self, node: Node) -> Node:
        shape = _reordered(node.shape)
        if node.op.name == "cast" and node.inputs[0].dtype.itemsize < node.dtype.itemsize:
            return self.emit("cast", self.as_last(node.inputs[0]), **node.attrs)  # less to move
        if node.op.name == "expand":
            return self.emit("expand", self.aligned(node.inputs[0], len(shape)), shape=shape)
        if node.op.name == "full":
            return self.emit("full", **{**node.attrs, "shape": shape})
        return self.moved(self.as_plain(node), _to_last(len(shape)))

    def aligned(self, node: Node, rank: int) -> Node:
        """A value that is broadcast to `rank` dims, of which dim 1 is last."""
        missing = rank - len(node.shape)
        if not node.shape:
            return self.as_plain(node)
        if not missing:
            return self.as_last(node)
        whole = self.reshaped(self.as_plain(node), (*(1,) * missing, *node.shape))
        return self.moved(whole, _to_last(rank))

    def keep(self, node: Node, last: Node) -> bool:
        """Note what an old node is, with dim 1 last."""
        self.last[node] = last
        return True

    # --- making nodes ---------------------------------------------------------------------------

    def emit(self, name: str, *inputs: Node, **attrs: Any) -> Node:
        return self.builder.emit(get(name), *inputs, **attrs)

    def reshaped(self, node: Node, shape: Sequence[Any]) -> Node:
        """A value in another shape; itself, or what it is a reshape of, if that has it."""
        if node.op.name == "reshape":
            (node,) = node.inputs
        if node.shape == tuple(shape):
            return node
        return self.emit("reshape", node, shape=tuple(shape))

    def moved(self, node: Node, dims: Sequence[int]) -> Node:
        """A value permuted: reshaped, where that moves no element."""
        kept = [d for d in dims if node.shape[d] != 1]
        if kept == sorted(kept):
            return self.reshaped(node, [node.shape[d] for d in dims])
        return self.emit("permute", node, dims=tuple(dims))


Rule = Callable[[Layout, Node], bool]  # whether the node was made


# --- convolutions -----------------------------------------------------------------------------


def _convolution(layout: Layout, node: Node) -> bool:
    weight = node if node.op.name == "conv_weight_grad" else node.inputs[1]
    if not node.dtype.is_float or not all(isinstance(size, int) for size in weight.shape):
        return False  # no kernel
    operands = [_operand(layout, x) for x in node.inputs]
    result = layout.builder.emit(node.op, *operands, **node.attrs)
    if node is weight or _few(layout, node):
        layout.plain[node] = result
        return True
    return layout.keep(node, layout.moved(result, _to_last(len(node.shape))))


def _operand(layout: Layout, x: Node) -> Node:
    """A value as a convolution reads it: a view of one with its channels last. Few channels stay
    where they are, if that is not last already."""
    if x not in layout.last and _few(layout, x):
        return layout.as_plain(x)
    return layout.moved(layout.as_last(x), _to_first(len(x.shape)))


def _few(layout: Layout, x: Node) -> bool:
    channels = x.shape[1]
    return isinstance(channels, int) and channels < layout.least


# --- what is computed on such values --------------------------------------------------------------


def _elementwise(layout: Layout, node: Node) -> bool:
    if not any(x in layout.last and x.shape == node.shape for x in node.inputs):
        return False
    inputs = [layout.aligned(x, len(node.shape)) for x in node.inputs]
    return layout.keep(node, layout.builder.emit(node.op, *inputs, **node.attrs))


def _reduction(layout: Layout, node: Node) -> bool:
    (x,) = node.inputs
    if x not in layout.last:
        return False
    rank = len(x.shape)
    if "dims" in node.attrs:
        dims = node.attrs["dims"]
        attrs: dict[str, Any] = {"dims": tuple(sorted(_place(d, rank) for d in dims))}
    else:
        dims = (node.attrs["dim"],)
        attrs = {"dim": _place(*dims, rank)}
    result = layout.emit(
        node.op.name, layout.last[x], keepdim=node.attrs["keepdim"], **attrs
    )
    if node.attrs["keepdim"]:
        return layout.keep(node, result)
    left = [d for d in _to_last(rank) if d not in dims]
    layout.plain[node] = layout.moved(result, [left.index(d) for d in sorted(left)])
    return True


def _permute(layout: Layout, node: Node) -> bool:
    (x,) = node.inputs
    dims, rank = node.attrs["dims"], len(node.shape)
    if x in layout.last:
        layout.plain[node] = layout.moved(layout.last[x], [_place(d, rank) for d in dims])
        return True
    # the user's own code has the channels last here
    return rank in _RANKS and dims == _to_first(rank) and layout.keep(node, layout.as_plain(x))


def _reshape(layout: Layout, node: Node) -> bool:
    """Positions in other dims; not where channels are taken apart or joined with them."""
    (x,) = node.inputs
    if x not in layout.last or len(node.shape) not in _RANKS or node.shape[:2] != x.shape[:2]:
        return False
    return layout.keep(node, layout.reshaped(layout.last[x], _reordered(node.shape)))


def _expand(layout: Layout, node: Node) -> bool:
    (x,) = node.inputs
    if x not in layout.last or len(x.shape) != len(node.shape):
        return False
    return layout.keep(node, layout.emit("expand", layout.last[x], shape=_reordered(node.shape)))


def _by_dims(*names: str) -> Rule:
    """Operators whose attributes `names` have an entry for each dim."""

    def rule(layout: Layout, node: Node) -> bool:
        if node.inputs[0] not in layout.last:
            return False
        attrs = {**node.attrs, **{name: _reordered(node.attrs[name]) for name in names}}
        inputs = map(layout.as_last, node.inputs)
        return layout.keep(node, layout.builder.emit(node.op, *inputs, **attrs))

    return rule


def _flip(layout: Layout, node: Node) -> bool:
    (x,) = node.inputs
    if x not in layout.last:
        return False
    dims = tuple(sorted(_place(d, len(x.shape)) for d in node.attrs["dims"]))
    return layout.keep(node, layout.emit("flip", layout.last[x], dims=dims))


def _concat(layout: Layout, node: Node) -> bool:
    if layout.last.keys().isdisjoint(node.inputs):
        return False
    dim = _place(node.attrs["dim"], len(node.shape))
    return layout.keep(node, layout.emit("concat", *map(layout.as_last, node.inputs), dim=dim))


# --- windows: the channels are the last dim of the plane ------------------------------------------

_NEUTRAL = {"window": 1, "stride": 1, "pad_low": 0, "pad_high": 0, "dilation": 1}


def _window(layout: Layout, node: Node) -> bool:
    (x,) = node.inputs
    if x not in layout.last or len(x.shape) != len(node.attrs["window"]) + 2:
        return False
    if not isinstance(x.shape[1], int):
        return False
    attrs = {name: (*node.attrs[name], neutral) for name, neutral in _NEUTRAL.items()}
    made = layout.emit(node.op.name, layout.last[x], **attrs)
    if isinstance(node.type, TensorType):
        return layout.keep(node, made)
    layout.pools[node] = made
    return True


def _get(layout: Layout, node: Node) -> bool:
    pool = layout.pools.get(node.inputs[0])
    if pool is None:
        return False
    result = layout.builder.emit(get_, pool, index=node.attrs["index"])
    if node.attrs["index"] == 1:
        layout.indices[node] = result
        channels = layout.builder.const(node.shape[1], node.dtype)
        result = layout.emit("floor_divide", result, channels)
    return layout.keep(node, result)


def _max_pool_grad(layout: Layout, node: Node) -> bool:
    g, where = node.inputs
    plane = tuple(node.attrs["plane_shape"])
    pool = where.inputs[0] if where.op is get_ else where
    if pool.op.name != "max_pool" or len(plane) != len(pool.attrs["window"]):
        return False
    if plane != pool.inputs[0].shape[-len(plane) :]:
        return False
    if pool not in layout.pools:
        made = gathered(
            layout.builder, layout.as_plain(g), layout.as_plain(where), plane, pool.attrs
        )
        layout.plain.update({} if made is None else {node: made})
        return made is not None
    slopes, indices = layout.as_last(g), layout.indices[where]
    whole, attrs = (*plane, where.shape[1]), layout.pools[pool].attrs
    made = gathered(layout.builder, slopes, indices, whole, attrs)
    if made is None:
        made = layout.emit("max_pool_grad", slopes, indices, plane_shape=whole)
    return layout.keep(node, made)


_RULES: dict[str, Rule] = {
    **dict.fromkeys(_CONVOLUTIONS, _convolution),
    "permute": _permute, "reshape": _reshape, "expand": _expand, "flip": _flip,
    "concat": _concat, "slice": _by_dims("starts", "stops", "steps"),
    "slice_update": _by_dims("starts", "stops", "steps"),
    "pad": _by_dims("low", "high", "interior"),
    "max_pool": _window, "window_sum": _window, "get": _get, "max_pool_grad": _max_pool_grad,
}
_FAMILIES: dict[str, Rule] = {"reduce": _reduction, "arg_reduce": _reduction}
