"""The tensor IR: frozen nodes, graphs of them, and the Builder, the only maker of nodes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from . import dtypes
from .dim import Dim, DimEnv, Size
from .dtypes import DType, rounded
from .late import late
from .named import NamedTuple
from .op import LIGHT, Attrs, Op, OpError, register
from .record import record
from .rounding import EXACT
from .shown import Shown
from .types import Shape, TensorType, TupleType, Type

_text = late("graphc.ir.text")  # which is written on graphs


class Loc(NamedTuple):
    """Where in the user's code a node was recorded.

    `module`: the path of the Module whose call was running ("blocks.0.attn"; "": none, or the
    root); `optimizer`: whether an optimizer's step was.
    """

    file: str
    line: int
    function: str = ""
    module: str = ""
    optimizer: bool = False

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


class Constant:
    """An immutable array payload of a `const` node, compared by contents."""

    __slots__ = ("_key", "array")

    def __init__(self, array: np.ndarray) -> None:
        self.array = np.array(array, order="C", copy=True)
        self.array.flags.writeable = False
        self._key = (self.array.dtype.str, str(self.array.dtype), self.array.shape,
                     self.array.tobytes())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Constant) and self._key == other._key

    def __hash__(self) -> int:
        return hash(self._key)


@record(eq=False)
class Node:
    """One operation and its result. Compared by identity; made by `Builder.emit` alone.

    `graphs` are sub-graphs (cond, while_loop, scan, fusion). `backward` is the number of the
    backward call that made the node, 0 for forward nodes.
    """

    op: Op
    inputs: tuple[Node, ...]
    attrs: Mapping[str, Any]
    type: Type
    loc: Loc | None = None
    graphs: tuple[Graph, ...] = ()
    backward: int = 0

    @property
    def tensor_type(self) -> TensorType:
        """The type of a single-result node. Raises TypeError on a node with several results."""
        if not isinstance(self.type, TensorType):
            raise TypeError(f"{self.op.name} has several results; take one with get")
        return self.type

    @property
    def shape(self) -> Shape:
        return self.tensor_type.shape

    @property
    def dtype(self) -> DType:
        return self.tensor_type.dtype

    @property
    def phase(self) -> str:
        """What of a training step it belongs to: "forward", "backward" or "optimizer"."""
        if self.loc is not None and self.loc.optimizer:
            return "optimizer"
        return "backward" if self.backward else "forward"

    @property
    def place(self) -> str:
        """The user's line, module and phase: "net.py:9, module blocks.0, backward"."""
        if self.loc is None:
            return ""
        module = f", module {self.loc.module}" if self.loc.module else ""
        phase = "" if self.phase == "forward" else f", {self.phase}"
        return f"{self.loc}{module}{phase}"

    def __repr__(self) -> str:
        return f"<{self.op.name} : {self.type}>"


@dataclass(frozen=True, eq=False)
class Graph:
    """A pure function on tensors. `nodes` is a topological order with the inputs first."""

    name: str
    inputs: tuple[Node, ...]
    outputs: tuple[Node, ...]
    env: DimEnv = field(default_factory=DimEnv)
    nodes: tuple[Node, ...] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "nodes", toposort(self.outputs, self.inputs))

    def users(self) -> dict[Node, list[Node]]:
        """Which nodes read each node (outputs are not users)."""
        users: dict[Node, list[Node]] = {n: [] for n in self.nodes}
        for node in self.nodes:
            for source in dict.fromkeys(node.inputs):
                users[source].append(node)
        return users

    def __str__(self) -> str:
        printed: str = _text.print_graph(self)
        return printed

    def _repr_svg_(self) -> str | None:
        return Shown.svg(self)


def on_complex(node: Node) -> bool:
    """Whether a node takes or gives complex numbers: it is never part of a kernel."""
    kind = node.type
    for each in kind.elements if isinstance(kind, TupleType) else (kind,):
        if each.dtype.is_complex:
            return True
    types = [x.type for x in node.inputs]
    return True in [isinstance(t, TensorType) and t.dtype.is_complex for t in types]


def toposort(outputs: Iterable[Node], first: Sequence[Node] = ()) -> tuple[Node, ...]:
    """Every node that `outputs` need, inputs before users; iterative, so any depth is fine."""
    order: dict[Node, None] = dict.fromkeys(first)
    for output in outputs:
        if output in order:
            continue
        begun, left = [output], [iter(output.inputs)]  # and what of their inputs is to be seen
        while begun:
            for node in left[-1]:
                if node not in order:
                    begun.append(node)
                    left.append(iter(node.inputs))
                    break
            else:
                order[begun.pop()] = None
                left.pop()
    return tuple(order)


# --- structural operators ------------------------------------------------------------------


def _input_type(inputs: tuple[TensorType, ...], attrs: Attrs, env: DimEnv) -> Type:
    type_: Type = attrs["type"]
    return type_


def _const_type(inputs: tuple[TensorType, ...], attrs: Attrs, env: DimEnv) -> Type:
    array = attrs["value"].array
    return TensorType(dtypes.from_numpy(array.dtype), tuple(array.shape))


def _get_type(inputs: tuple[Any, ...], attrs: Attrs, env: DimEnv) -> Type:
    if not isinstance(inputs[0], TupleType):
        raise OpError(f"get needs a node with several results, got {inputs[0]}")
    return inputs[0].elements[attrs["index"]]


input_ = register(Op(
    "input", "structure", _input_type, arity=0, attrs=("index", "name", "type"),
    cost=None, rounding=EXACT, takes_complex=True,
))
const = register(Op(
    "const", "structure", _const_type, arity=0, attrs=("value",),
    cost=LIGHT, rounding=EXACT, takes_complex=True,
))
get_ = register(Op(
    "get", "structure", _get_type, arity=1, attrs=("index",),
    cost=LIGHT, rounding=EXACT, takes_complex=True,
))


def attr_key(value: Any) -> Any:
    """A hashable stand-in for an attribute that keeps 1, 1.0, True and -0.0 apart."""
    if type(value) is int or type(value) is str:
        return value
    if isinstance(value, (bool, float)):
        return (type(value).__name__, repr(value))
    if isinstance(value, tuple):
        return tuple([attr_key(v) for v in value])
    return value


def attrs_key(attrs: Attrs) -> Any:
    """A hashable stand-in for all attributes of a node."""
    return tuple([(k, attr_key(v)) for k, v in attrs.items()]) if attrs else ()


class Builder:
    """Makes nodes: runs the type rule once, records the user's line, merges equal nodes."""

    def __init__(self, env: DimEnv | None = None) -> None:
        self.env = env if env is not None else DimEnv()
        self.inputs: list[Node] = []
        self.loc: Loc | None = None
        self.backward = 0
        self._interned: dict[Any, Node] = {}
        self._serial = 0

    def emit(
        self, op: Op, *inputs: Node, graphs: tuple[Graph, ...] = (), **attrs: Any
    ) -> Node:
        """The node `op(*inputs, **attrs)`. Raises OpError on operands the op does not take."""
        key: Any = op.name, inputs, graphs, attrs_key(attrs)
        if op.impure:  # never merged
            self._serial += 1
            key = (*key, self._serial)
        found = self.find(key)
        if found is not None:
            return found
        if op.arity is not None and len(inputs) != op.arity:
            raise OpError(f"{op.name} takes {op.arity} inputs, got {len(inputs)}", TypeError)
        types: tuple[Any, ...] = tuple(n.type for n in inputs)
        if graphs:
            attrs_with = {**attrs, "graphs": graphs}
            type_ = op.infer(types, attrs_with, self.env)
        else:
            type_ = op.infer(types, attrs, self.env)
        self._require_sizes(type_)
        return self.keep(key, Node(op, inputs, attrs, type_, self.loc, graphs, self.backward))

    def like(self, node: Node, inputs: tuple[Node, ...], attrs: Any) -> Node:
        """The node on other inputs, as `emit` gives it; `attrs`: its attrs_key. It is of no
        impure operator and has no sub-graphs."""
        key = node.op.name, inputs, (), attrs
        found = self.find(key)
        if found is not None:
            return found
        types = tuple([n.type for n in inputs])
        type_ = node.type
        if types != tuple([n.type for n in node.inputs]):
            type_ = node.op.infer(types, node.attrs, self.env)  # type: ignore[arg-type]
            self._require_sizes(type_)
        return self.keep(key, Node(node.op, inputs, node.attrs, type_, self.loc, (), self.backward))

    @property
    def count(self) -> int:
        """How many nodes were made."""
        return len(self._interned)

    def made(self) -> list[Node]:
        """The nodes that were made, oldest first."""
        return list(self._interned.values())

    def known(self, op: Op, inputs: tuple[Node, ...], attrs: Attrs) -> Node | None:
        """What `emit` would give, if it was made before."""
        if op.impure or "graphs" in attrs:
            return None
        return self.find((op.name, inputs, (), attrs_key(attrs)))

    def find(self, key: Any) -> Node | None:
        """The node that was kept under a key."""
        return self._interned.get(key)

    def keep(self, key: Any, node: Node) -> Node:
        """Give this node again for the same key."""
        self._interned[key] = node
        return node

    def _require_sizes(self, type_: Type) -> None:
        """Symbolic sizes of a result are never negative: a guard keeps them so."""
        for each in type_.elements if isinstance(type_, TupleType) else (type_,):
            for size in each.shape:
                if isinstance(size, Dim) and not self.env.not_negative(size):
                    shape = [self.env.hint(s) for s in each.shape]
                    raise OpError(
                        f"Trying to create tensor with negative dimension {self.env.hint(size)}: "
                        f"{shape}"
                    )

    def results(self, node: Node) -> tuple[Node, ...]:
        """The node's results as single values: itself, or a `get` for each of several."""
        if isinstance(node.type, TensorType):
            return (node,)
        return tuple(self.emit(get_, node, index=i) for i in range(len(node.type.elements)))

    def input(self, type_: TensorType, name: str = "") -> Node:
        """A new graph input."""
        node = self.emit(input_, index=len(self.inputs), name=name, type=type_)
        self.inputs.append(node)
        return node

    def const(self, value: Any, dtype: DType | None = None) -> Node:
        """A constant array or number; one that the dtype is too small for is infinite."""
        array = np.asarray(value) if dtype is None else rounded(value, dtype)
        return self.emit(const, value=Constant(array))

    def build(self, outputs: Sequence[Node], name: str = "graph") -> Graph:
        return Graph(name, tuple(self.inputs), tuple(outputs), self.env)

    @contextmanager
    def at(self, loc: Loc | None, backward: int = 0) -> Iterator[None]:
        """Nodes made inside carry this line and backward number."""
        saved = self.loc, self.backward
        self.loc, self.backward = loc, backward
        try:
            yield
        finally:
            self.loc, self.backward = saved


class Expr:
    """A node together with its builder: what gradient rules and decompositions compute on."""

    __slots__ = ("builder", "node")

    def __init__(self, builder: Builder, node: Node) -> None:
        self.builder = builder
        self.node = node

    @property
    def type(self) -> TensorType:
        return self.node.tensor_type

    @property
    def shape(self) -> Shape:
        return self.node.tensor_type.shape

    @property
    def dtype(self) -> DType:
        return self.node.tensor_type.dtype

    def _emit(self, op: Op, inputs: tuple[Any, ...], attrs: Attrs) -> Any:
        node = self.builder.emit(op, *(x.node for x in inputs), **attrs)
        if isinstance(node.type, TensorType):
            return Expr(self.builder, node)
        return tuple(Expr(self.builder, r) for r in self.builder.results(node))

    def _constant(self, value: float | int | bool, like: TensorType) -> Expr:
        return Expr(self.builder, self.builder.const(value, like.dtype))

    def _binary(self, name: str, other: Any, swap: bool = False) -> Any:
        op = OPERATORS[name]
        return op(other, self) if swap else op(self, other)

    def __add__(self, other: Any) -> Any:
        return self._binary("add", other)

    def __radd__(self, other: Any) -> Any:
        return self._binary("add", other, swap=True)

    def __sub__(self, other: Any) -> Any:
        return self._binary("sub", other)

    def __rsub__(self, other: Any) -> Any:
        return self._binary("sub", other, swap=True)

    def __mul__(self, other: Any) -> Any:
        return self._binary("mul", other)

    def __rmul__(self, other: Any) -> Any:
        return self._binary("mul", other, swap=True)

    def __truediv__(self, other: Any) -> Any:
        return self._binary("div", other)

    def __rtruediv__(self, other: Any) -> Any:
        return self._binary("div", other, swap=True)

    def __neg__(self) -> Any:
        return OPERATORS["neg"](self)


OPERATORS: dict[str, Op] = {}  # add, sub, mul, div, neg: filled in by ir/ops/elementwise.py


def size_text(size: Size) -> str:
    """A size as the text form spells it."""
    return str(size) if isinstance(size, Dim) else repr(size)
