"""Run a Graph node by node with a table of functions: the meaning of a Graph.

The table maps an operator's name to function(*arrays, **attrs) -> array or tuple; the NumPy
backend's is `graphc.backends.numpy.TABLE`. Control flow and fused sub-graphs are run here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias
from weakref import WeakKeyDictionary

import numpy as np

from .device_array import DeviceArray
from .dim import Dim, Size, substitute
from .dim import evaluate as evaluate_size
from .dtypes import from_numpy
from .graph import Builder, Graph, Node
from .op import Op
from .slots import Slots
from .types import TensorType, TupleType, Type

Table: TypeAlias = Mapping[str, Callable[..., Any]]
Arrays: TypeAlias = Sequence[np.ndarray]
Dims: TypeAlias = Mapping[str, int]
# called after each node that an operator computes with its value, an array or a tuple of arrays
Observer: TypeAlias = Callable[[Node, Any], None]


def evaluate(
    graph: Graph,
    arrays: Arrays,
    table: Table,
    dims: Dims | None = None,
    observe: Observer | None = None,
) -> list[np.ndarray]:
    """The graph's outputs for these inputs; a value is freed after its last use.

    Symbolic dims get their values from the inputs' shapes (and from `dims`). An output may share
    memory with an input. Raises ValueError where an input does not match its declared type.
    """
    with np.errstate(all="ignore"):
        return _evaluate(graph, arrays, table, dims or {}, observe)


def _evaluate(
    graph: Graph, arrays: Arrays, table: Table, dims: Dims, observe: Observer | None
) -> list[np.ndarray]:
    prepared = _prepared(graph)
    if prepared.symbolic:
        dims = bind_dims(graph, arrays, dims)
    prepared.check_inputs(graph, arrays)

    def run(node: Node, inputs: list[Any], attrs: Any) -> Any:
        if node in prepared.sized:
            attrs = resolve_attrs(attrs, dims)
        special = _SPECIAL.get(node.op.name)
        # bodies on a device are the device's code
        if special is None or (node.graphs and any(isinstance(x, DeviceArray) for x in inputs)):
            value = table[node.op.name](*inputs, **attrs)
        else:
            value = special(node, inputs, attrs, table, dims)
        if observe is not None:
            observe(node, value)
        return value

    values = prepared.start.copy()
    for slot, array in zip(prepared.inputs, arrays, strict=True):
        values[slot] = array
    prepared.fill(values, run)
    return [values[slot] for slot in prepared.outputs]


class _Prepared(Slots):
    """A Graph's steps, and what has to be known of sizes before they run."""

    __slots__ = ("sized", "static", "symbolic")

    def __init__(self, graph: Graph) -> None:
        super().__init__(graph, lambda node: node)
        self.symbolic = any(_symbolic_type(n.type) or has_dims(n.attrs) for n in graph.nodes)
        # those whose attributes hold symbolic sizes
        self.sized = frozenset(n for n in graph.nodes if self.symbolic and has_dims(n.attrs))
        self.static = tuple(
            None if _symbolic_type(n.type) else (n.dtype.numpy, n.shape) for n in graph.inputs
        )

    def check_inputs(self, graph: Graph, arrays: Arrays) -> None:
        """Raise ValueError for a wrong number of inputs, a wrong dtype or a wrong shape."""
        if len(arrays) != len(self.inputs):
            raise ValueError(
                f"graph {graph.name} takes {len(self.inputs)} inputs, got {len(arrays)}"
            )
        for i, (array, want) in enumerate(zip(arrays, self.static, strict=True)):
            if want is not None and (array.dtype != want[0] or array.shape != want[1]):
                raise ValueError(
                    f"input {i} of graph {graph.name} is {graph.inputs[i].type}, "
                    f"got {array.dtype} {array.shape}"
                )


_known: WeakKeyDictionary[Graph, _Prepared] = WeakKeyDictionary()


def _prepared(graph: Graph) -> _Prepared:
    """The graph's steps, made once."""
    found = _known.get(graph)
    if found is None:
        found = _known[graph] = _Prepared(graph)
    return found


# --- symbolic sizes --------------------------------------------------------------------------


def _symbolic_type(type_: Type) -> bool:
    if isinstance(type_, TupleType):
        return any(_symbolic_type(t) for t in type_.elements)
    return any(isinstance(size, Dim) for size in type_.shape)


def has_dims(value: Any) -> bool:
    if isinstance(value, Dim):
        return True
    if isinstance(value, tuple):
        return any(has_dims(v) for v in value)
    if isinstance(value, Mapping):
        return any(has_dims(v) for v in value.values())
    return False


def resolve_attrs(attrs: Mapping[str, Any], dims: Dims) -> dict[str, Any]:
    """Attributes with every symbolic size replaced by its value."""
    return {name: _resolve(value, dims) for name, value in attrs.items()}


def _resolve(value: Any, dims: Dims) -> Any:
    if isinstance(value, Dim):
        return evaluate_size(value, dims)
    if isinstance(value, tuple):
        return tuple(_resolve(v, dims) for v in value)
    return value


def bind_dims(graph: Graph, arrays: Arrays, known: Dims | None = None) -> dict[str, int]:
    """The values of the graph's named dims, read off its inputs' shapes.

    Raises ValueError where two inputs disagree, or a shape is not what its type says.
    """
    dims = dict(known or {})
    sizes: list[tuple[int, Size, int]] = []
    for i, (node, array) in enumerate(zip(graph.inputs, arrays, strict=True)):
        shape = node.shape
        if array.dtype != node.dtype.numpy or len(shape) != array.ndim:
            raise ValueError(
                f"input {i} of graph {graph.name} is {node.type}, got {array.dtype} {array.shape}"
            )
        sizes.extend((i, size, got) for size, got in zip(shape, array.shape, strict=True))
    # plain names first; then what is linear in one unknown name
    sizes.sort(key=lambda item: len(str(item[1])))
    for _, size, got in sizes:
        if isinstance(size, Dim):
            _solve(size, got, dims)
    for i, size, got in sizes:
        if isinstance(size, Dim) and not size.variables() <= dims.keys():
            continue
        if evaluate_size(size, dims) != got:
            raise ValueError(
                f"input {i} of graph {graph.name} is {graph.inputs[i].type}, got size {got} "
                f"for {size}"
            )
    return dims


def _solve(size: Dim, got: int, dims: dict[str, int]) -> None:
    """Find the one unknown name of a size that is linear in it."""
    unknown = [name for name in size.variables() if name not in dims]
    if len(unknown) != 1:
        return
    name = unknown[0]
    at = [substitute(size, {**dims, name: value}) for value in (0, 1, 2)]
    zero, one, two = at
    if not (isinstance(zero, int) and isinstance(one, int) and isinstance(two, int)):
        return
    slope = one - zero
    if slope and two - one == slope and (got - zero) % slope == 0:
        dims[name] = (got - zero) // slope


def run_control(
    op: Op, arrays: Arrays, attrs: Mapping[str, Any], table: Table, dims: Dims | None = None
) -> Any:
    """Run one operator that holds sub-graphs on arrays: an array, or a tuple of them.

    `dims` are the values of the named dims that the sub-graphs use.
    """
    builder = Builder()
    builder.env.hints.update(dims or {})
    nodes = [builder.input(TensorType(from_numpy(a.dtype), tuple(a.shape))) for a in arrays]
    node = builder.emit(op, *nodes, **attrs)
    results = evaluate(builder.build(builder.results(node), op.name), arrays, table, dims)
    return _packed(node, results)


# --- structure and control flow --------------------------------------------------------------


def _fusion(node: Node, inputs: list[Any], attrs: Any, table: Table, dims: Dims) -> Any:
    return _packed(node, _evaluate(node.graphs[0], inputs, table, dims, None))


def _packed(node: Node, results: list[Any]) -> Any:
    return results[0] if isinstance(node.type, TensorType) else tuple(results)


def _cond(node: Node, inputs: list[Any], attrs: Any, table: Table, dims: Dims) -> Any:
    branch = node.graphs[0] if inputs[0].all() else node.graphs[1]
    return _packed(node, _evaluate(branch, inputs[1:], table, dims, None))


def _while_loop(node: Node, inputs: list[Any], attrs: Any, table: Table, dims: Dims) -> Any:
    condition, body = node.graphs
    carried = list(inputs)
    while _evaluate(condition, carried, table, dims, None)[0].all():
        carried = _evaluate(body, carried, table, dims, None)
    return _packed(node, carried)


def _unwind(node: Node, inputs: list[Any], attrs: Any, table: Table, dims: Dims) -> Any:
    condition, body, back = node.graphs
    state, slopes = list(inputs[: attrs["n_state"]]), list(inputs[attrs["n_state"] :])
    began: list[list[Any]] = []
    while len(began) < attrs["most"] and _evaluate(condition, state, table, dims, None)[0].all():
        began.append(state)
        state = _evaluate(body, state, table, dims, None)
    for state in reversed(began):
        slopes = _evaluate(back, [*slopes, *state], table, dims, None)
    return _packed(node, slopes)


def _scan(node: Node, inputs: list[Any], attrs: Any, table: Table, dims: Dims) -> Any:
    body, n = node.graphs[0], attrs["n_carried"]
    carried, xs = list(inputs[:n]), inputs[n:]
    stacked: list[list[np.ndarray]] = [[] for _ in body.outputs[n:]]
    order = range(len(xs[0]))
    for step in reversed(order) if attrs["reverse"] else order:
        results = _evaluate(body, [*carried, *(np.asarray(x[step]) for x in xs)], table, dims, None)
        carried = results[:n]
        for column, y in zip(stacked, results[n:], strict=True):
            column.append(y)
    if attrs["reverse"]:
        for column in stacked:
            column.reverse()
    ys = [
        np.stack(column) if column else _empty(node.type, n + i, dims)
        for i, column in enumerate(stacked)
    ]
    return _packed(node, [*carried, *ys])


def _empty(type_: Type, index: int, dims: Dims) -> np.ndarray:
    element = type_.elements[index] if isinstance(type_, TupleType) else type_
    return np.empty([evaluate_size(size, dims) for size in element.shape], element.dtype.numpy)


_SPECIAL: dict[str, Callable[[Node, list[Any], Any, Table, Dims], Any]] = {
    "fusion": _fusion,
    "cond": _cond,
    "while_loop": _while_loop,
    "unwind": _unwind,
    "scan": _scan,
}
