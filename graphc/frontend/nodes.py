"""The autograd tape: what each result remembers of how it was made.

Edges point from a node to the nodes that made its inputs. A node keeps the values that its
gradient rule reads, each with the version of its storage, and nothing else. The same classes
serve eager mode (saved values are arrays) and traces (saved values are graph nodes).
"""

from __future__ import annotations

import functools
import itertools
import weakref
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeAlias, cast

from graphc.ir.autodiff import run_vjp, saved_values
from graphc.ir.dim import DimEnv
from graphc.ir.graph import Loc
from graphc.ir.graph import Node as IrNode
from graphc.ir.op import Attrs, Op, OpError
from graphc.ir.op import get as get_op
from graphc.ir.types import TensorType

from .context import local
from .errors import located, raise_op_error
from .hooks import Hooks, RemovableHandle, add_hook, new_hooks
from .saved_hooks import unpacked, unpacking
from .values import TypeValue

if TYPE_CHECKING:
    from .programs import GradientPlan
    from .segment_again import Operation
    from .tensor import Tensor
    from .trace import Trace

Edge: TypeAlias = "tuple[Node, int]"

TWICE = (
    "Trying to backward through the graph a second time (or directly access saved tensors after "
    "they have already been freed). Saved intermediate values of the graph are freed when you "
    "call .backward() or autograd.grad(). Specify retain_graph=True if you need to backward "
    "through the graph a second time or if you need to access saved tensors after calling "
    "backward."
)

next_sequence: Callable[[], int] = itertools.count(1).__next__


class Stamped(Protocol):
    """A storage, eager or traced: its version counts in-place writes."""

    version: int


class World(Protocol):
    """How a backward pass computes: on arrays, on graph nodes, or on Tensors.

    Gradients are passed along as the world's own values (arrays; Exprs); rules see Exprs.
    """

    env: DimEnv

    def rule(self, node: OpNode, grads: list[Any], needs: Sequence[bool]) -> Sequence[Any]:
        """The gradients of an operator's inputs, of the inputs' types."""

    def saved(self, value: Any, owner: Trace | None, edge: Edge | None) -> Any:
        """A value that a node of the trace `owner` saved, as an Expr; `edge` is where its
        gradient goes (for create_graph)."""

    def to_expr(self, value: Any) -> Any: ...

    def from_expr(self, value: Any) -> Any: ...

    def to_tensor(self, value: Any) -> Tensor: ...

    def from_tensor(self, tensor: Tensor) -> Any: ...

    def add(self, old: Any, new: Any) -> Any: ...


class Node:
    """A function of the backward graph (`grad_fn`). Attributes that most nodes never set are
    class-level defaults."""

    loc: Loc | None = None
    released: bool = False  # what it saved is gone
    # hooks of the tensors this node made: result number -> hooks
    tensor_hooks: dict[int, Hooks] | None = None
    pre_hooks: Hooks | None = None
    post_hooks: Hooks | None = None
    # retain_grad(): result number -> the tensor
    retained: dict[int, weakref.ref[Tensor]] | None = None
    metadata_: dict[Any, Any] | None = None
    folded: bool = False  # stands for many operations (folded.py)
    straight: bool = False  # a plain pass may run it by itself (straight.py)
    outside: Tensor | None = None  # stands for the history that this one had before the trace
    root: Any = None  # below which the classes are that torch's names are given to
    position: int | None = None  # in SegmentTrace.script; ~n: where its n-th entry's gradient goes

    def __init__(
        self, edges: tuple[Edge | None, ...], out_types: tuple[TensorType, ...]
    ) -> None:
        self.edges = edges
        self.out_types = out_types
        self.sequence: float = next_sequence()

    def name(self) -> str:
        """The name torch prints, e.g. AddBackward0."""
        return type(self).__name__

    def label(self, output: int) -> str:
        """The name of what eager mode would say has made a result: printed with it."""
        return self.name()

    def unfold(self) -> None:
        """Have the operations that a folded node stands for take its place."""

    def place(self, output: int) -> Edge:
        """Where the gradient of a result is complete."""
        return self, output

    def hooks_of(self, output: int) -> Hooks:
        """The hooks of the tensor that is a result."""
        node, output = self.place(output)
        if node.tensor_hooks is None:
            node.tensor_hooks = {}
        return node.tensor_hooks.setdefault(output, new_hooks())

    def retain(self, output: int, tensor: Tensor) -> None:
        """Let a result keep its gradient."""
        node, output = self.place(output)
        node.retained = {**(node.retained or {}), output: weakref.ref(tensor)}

    def keep_former(self, storage: Any, output: int) -> Node | None:
        """A result is about to be written to `storage`, which the node may read itself. What takes
        the node's place, if anything does."""
        return None

    @property
    def next_functions(self) -> tuple[tuple[Node | None, int], ...]:
        """(node, result number) that made each input; (None, 0) where no gradient goes. What a
        function of several operators (a mean, a mean squared error, a linear layer) is made of is
        left out where torch has one node for it."""
        return tuple((None, 0) if edge is None else edge for edge in beyond(self))

    @property
    def metadata(self) -> dict[Any, Any]:
        """A dictionary for the user's own notes."""
        if self.metadata_ is None:
            self.metadata_ = {}
        return self.metadata_

    def register_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """Call hook(grad_inputs, grad_outputs) after this node has run."""
        if self.post_hooks is None:
            self.post_hooks = {}
        return add_hook(self.post_hooks, hook)

    def register_prehook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """Call hook(grad_outputs) before this node runs."""
        if self.pre_hooks is None:
            self.pre_hooks = {}
        return add_hook(self.pre_hooks, hook)

    def gradients(self, grads: list[Any], needs: Sequence[bool], world: World) -> Sequence[Any]:
        """The gradients of the inputs as values, given those of the results (None: zero)."""
        raise NotImplementedError

    def release(self) -> None:
        """Forget saved values."""
        self.released = True

    def __repr__(self) -> str:
        return f"<{self.name()} object at {id(self):#x}>"


class GradientEdge(NamedTuple):
    """A place in the backward graph: a node, and which of its results."""

    node: Node
    output_nr: int
    ownership_token: Any = None


class AccumulateGrad(Node):
    """Where the gradient of a leaf arrives."""

    sequence = float("inf")  # runs as soon as its gradient is complete

    def __init__(self, variable: Tensor, type_: TensorType) -> None:
        self.edges = ()
        self.out_types = (type_,)
        self.variable = variable

    def name(self) -> str:
        return "torch::autograd::AccumulateGrad"


class DroppedGrad(Node):
    """Where the gradient of a view ends that was made in no_grad mode: nobody gets it."""

    def gradients(self, grads: list[Any], needs: Sequence[bool], world: World) -> Sequence[Any]:
        return ()


_TORCH_NAMES = {
    "reshape": "ViewBackward0", "concat": "CatBackward0", "cast": "ToCopyBackward0",
    "square": "PowBackward0", "dot_general": "MmBackward0", "conv": "ConvolutionBackward0",
    "clamp": "ClampBackward1", "layer_norm": "NativeLayerNormBackward0",
    "batch_norm": "NativeBatchNormBackward0", "cross_entropy": "NllLossBackward0",
    "sub": "SubBackward0", "max_pool": "MaxPool2DWithIndicesBackward0",
    "as_strided": "AsStridedBackward0", "pad": "ConstantPadNdBackward0",
    "conv_input_grad": "ConvolutionBackward0", "log1p": "Log1PBackward0",
    "attention": "ScaledDotProductFlashAttentionForCpuBackward0",
    "linalg_inv": "LinalgInvExBackward0", "linalg_cholesky": "LinalgCholeskyExBackward0",
    "matrix_exp": "LinalgMatrixExpBackward0", "fft_real": "FftR2CBackward0",
    "fft_complex": "FftC2CBackward0", "fft_inverse_real": "FftC2RBackward0",
}


_SAVED = frozenset({"saved_in", "saved_out", "stamps"})


class OpNode(Node):
    """An operator with its attributes, and those inputs and results that its rule reads."""

    # value or None per input and result; None altogether once released
    saved_in: tuple[Any, ...] | None
    saved_out: tuple[Any, ...] | None
    plan: GradientPlan  # of an eager node
    straight = True
    given: int | None = None  # of a function as one node (linked.py): its tensors, before constants
    flat = False  # of such a one: a slope on the way is piecewise constant (worlds.py)
    trace: Trace | None = None  # that recorded it
    late: frozenset[int] = frozenset()  # what torch does not save (unsaved.py)
    packed: bool = False  # saved values went through saved_tensors_hooks
    # (storage, version when saved, input number or ~result number)
    stamps: tuple[tuple[Stamped, int, int], ...]
    # of an operation recorded again: what is known of it, storage and views of each operand and
    # result, and (writes, version) of these, unless all are zero; the three above are made of it
    known: Operation | None = None
    held: list[Any]
    counts: list[tuple[int, int]] | None = None

    def __init__(
        self,
        op: Op,
        attrs: Attrs,
        edges: tuple[Edge | None, ...],
        in_types: tuple[TensorType, ...],
        out_types: tuple[TensorType, ...],
    ) -> None:
        self.edges = edges
        self.out_types = out_types
        self.sequence = next_sequence()
        self.op = op
        self.attrs = attrs
        self.in_types = in_types
        self.stamps = ()

    def __getattr__(self, name: str) -> Any:
        if name not in _SAVED or self.known is None:
            raise AttributeError(f"'{type(self).__name__}' object has no attribute '{name}'")
        self.known.fill(self)
        return self.__dict__[name]

    def release(self) -> None:
        self.released = True
        self.saved_in = self.saved_out = None
        self.stamps, self.held = (), []
        if self.known is not None:
            self.known.released(self)

    def keep(self, storage: Any, tracked: bool) -> bool:
        """`storage` is about to be written to: copy what the rule reads of it (`late` alone)."""
        if self.saved_in is None or self.saved_out is None:
            return False
        root: Any = storage.root
        saved = [*self.saved_in, *reversed(self.saved_out)]  # so that ~which is a place in it, too
        kept: list[Any] = []
        for stamp in self.stamps:
            owner, version, which = cast("tuple[Any, int, int]", stamp)
            if which in self.late and owner.root is root and owner.version == version:
                saved[which] = saved[which].copy("K")
                kept.append(stamp)
        count = len(self.saved_in)
        self.saved_in, self.saved_out = tuple(saved[:count]), tuple(saved[:count - 1:-1])
        self.stamps = tuple([stamp for stamp in self.stamps if stamp not in kept])
        return bool(kept)

    def gradients(self, grads: list[Any], needs: Sequence[bool], world: World) -> Sequence[Any]:
        if self.saved_in is None or self.saved_out is None:
            if any(saved_values(self.op, self.in_types, self.attrs, needs, world.env)):
                raise RuntimeError(located(TWICE))
            self.saved_in = (None,) * len(self.in_types)
            self.saved_out = (None,) * len(self.out_types)
        for storage, version, which in self.stamps:
            if storage.version != version:
                self._check_modified(storage.version, version, which, needs, world.env)
        if not self.packed:
            return world.rule(self, grads, needs)
        kept = self.saved_in, self.saved_out
        self._unpack(grads, world)
        try:
            return world.rule(self, grads, needs)
        finally:
            self.saved_in, self.saved_out = kept

    def _unpack(self, grads: list[Any], world: World) -> None:
        assert self.saved_in is not None and self.saved_out is not None
        outer = local.trace
        if self.trace is not None and self.trace is outer:
            unpacking.gradient = world.to_tensor(next(g for g in grads if g is not None))
        local.trace = self.trace
        try:
            self.saved_in = tuple([unpacked(v, self.trace) for v in self.saved_in])
            self.saved_out = tuple([unpacked(v, self.trace) for v in self.saved_out])
        finally:
            local.trace = outer
            unpacking.gradient = None

    def on_values(self, grads: list[Any], needs: Sequence[bool], world: World) -> Sequence[Any]:
        """The rule run on Exprs."""
        assert self.saved_in is not None and self.saved_out is not None
        like = next(g for g in grads if g is not None)
        inputs = [
            TypeValue(type_, like) if value is None else world.saved(value, self.trace, edge)
            for value, type_, edge in zip(self.saved_in, self.in_types, self.edges, strict=True)
        ]
        outs = [
            TypeValue(type_, like) if value is None else world.saved(value, self.trace, (self, i))
            for i, (value, type_) in enumerate(zip(self.saved_out, self.out_types, strict=True))
        ]
        try:
            return run_vjp(self.op, grads, inputs, outs, needs, self.attrs)
        except OpError as error:
            raise_op_error(error)

    def forget_unread(self, env: DimEnv) -> None:
        """Keep only the saved values that the rule reads: hooks are to see those alone."""
        assert self.saved_in is not None and self.saved_out is not None
        needs = [e is not None for e in self.edges]
        read_in, read_out = saved_values(self.op, self.in_types, self.attrs, needs, env)
        self.saved_in = tuple([v if i in read_in else None for i, v in enumerate(self.saved_in)])
        self.saved_out = tuple([v if i in read_out else None for i, v in enumerate(self.saved_out)])

    def check_saved(self) -> None:
        """Raise RuntimeError if a value that the rule reads was overwritten since."""
        needs = [e is not None for e in self.edges]
        for storage, version, which in self.stamps:
            if storage.version != version:
                self._check_modified(storage.version, version, which, needs, DimEnv())

    def _check_modified(
        self, now: int, then: int, which: int, needs: Sequence[bool], env: DimEnv
    ) -> None:
        # a trace saves every value, so ask what the rule reads before calling it an error
        read_in, read_out = saved_values(self.op, self.in_types, self.attrs, needs, env)
        if which not in read_in and ~which not in read_out:
            return
        type_ = self.in_types[which] if which >= 0 else self.out_types[~which]
        edge = self.edges[which] if which >= 0 else (self, ~which)
        made = "" if edge is None else f", which is output {edge[1]} of {edge[0].name()},"
        at = "" if self.loc is None else f" (recorded at {self.loc})"
        raise RuntimeError(located(
            "one of the variables needed for gradient computation has been modified by an inplace "
            f"operation: [torch.{_kind(type_)} {list(type_.shape)}]{made} is at version {now}; "
            f"expected version {then} instead. It was saved for {self.name()}{at}. Hint: use an "
            "out-of-place operation, or clone() the tensor before the in-place one."
        ))


@functools.cache
def named_class(name: str, base: Any) -> type[Any]:
    """A class of nodes under torch's name, which is also what type(grad_fn).__name__ says."""
    return type(name, (base,), {"__module__": base.__module__})


def rename(node: Node | None, name: str) -> None:
    """Let an operator's node go by another of torch's names."""
    if node is not None and node.root is not None:
        node.__class__ = named_class(name, node.root)


@functools.cache
def class_of(op: Op) -> type[OpNode]:
    """The class of an operator's nodes: AddBackward0 for add."""
    camel = "".join(part.capitalize() for part in op.name.split("_")) + "Backward0"
    return named_class(_TORCH_NAMES.get(op.name, camel), OpNode)


OpNode.root = OpNode


def _kind(type_: TensorType) -> str:
    names = {"float32": "Float", "float64": "Double", "float16": "Half", "bfloat16": "BFloat16",
             "int64": "Long", "int32": "Int", "int16": "Short", "int8": "Char", "uint8": "Byte",
             "bool": "Bool"}
    return names[type_.dtype.torch_name] + "Tensor"


# the nodes that lead from a result to what it was made of, by the first edge; not all are always
# there, but the last is
_WITHIN = {
    "MeanBackward0": ("SumBackward0",), "MeanBackward1": ("SumBackward0",),
    "MseLossBackward0": ("SumBackward0", "PowBackward0", "SubBackward0"),
}


def beyond(node: Node) -> tuple[Edge | None, ...]:
    """The edges of all that torch has one node for."""
    edges = node.edges
    if isinstance(node, OpNode) and node.given is not None:
        return edges[: node.given]
    if node.name() == "AddmmBackward0":
        products = [e for e in edges if e is not None and e[0].name() == "MmBackward0"]
        if not products:
            return edges
        own = max(products, key=lambda e: e[0].sequence)  # the other may be an operand
        return *[e for e in edges if e is not own], *own[0].edges
    for name in _WITHIN.get(node.name(), ()):
        first = edges[0]
        if first is not None and first[0].name() == name:
            edges = first[0].edges
    return edges


class OutsideHistory(Node):
    """Stands for the history that a captured tensor had before the trace."""

    def __init__(self, tensor: Tensor, type_: TensorType) -> None:
        super().__init__((), (type_,))
        self.tensor = self.outside = tensor
        self.sequence = 0.0

    def name(self) -> str:
        origin = self.tensor._graphc_node
        return "OutsideHistory" if origin is None else origin.label(self.tensor._graphc_output)

    def gradients(self, grads: list[Any], needs: Sequence[bool], world: World) -> Sequence[Any]:
        return ()


class BrokenNode(Node):
    """The history of a result whose saved values were overwritten: says so in backward()."""

    def __init__(
        self, message: str, edges: tuple[Edge | None, ...], out_types: tuple[TensorType, ...],
        made_by: str = "",
    ) -> None:
        super().__init__(edges, out_types)
        self.message = message
        self.made_by = made_by

    def label(self, output: int) -> str:
        return self.made_by or self.name()

    def gradients(self, grads: list[Any], needs: Sequence[bool], world: World) -> Sequence[Any]:
        raise RuntimeError(self.message)


class SpentNode(Node):
    """The history of a result whose backward() ran inside the compiled function."""

    released = True

    def __init__(
        self, type_: TensorType, made_by: str, leads_to: Callable[[], tuple[Edge | None, ...]]
    ) -> None:
        """`leads_to`: the leaves that it led to; a pass, which few are, has them wait for it."""
        self.out_types = (type_,)
        self.sequence = next_sequence()
        self.made_by = made_by
        self._leads_to = leads_to

    @functools.cached_property
    def edges(self) -> tuple[Edge | None, ...]:  # type: ignore[override]
        return self._leads_to()

    def name(self) -> str:
        return self.made_by

    def gradients(self, grads: list[Any], needs: Sequence[bool], world: World) -> Sequence[Any]:
        raise RuntimeError(located(TWICE))


def records(op: Op, node: IrNode) -> bool:
    """Whether a tape is worth keeping: some result of an operation can carry a gradient."""
    if op.vjp is None and op.nondifferentiable:
        return False
    type_ = node.type
    if isinstance(type_, TensorType):
        return type_.dtype.differentiable
    return any(t.dtype.differentiable for t in type_.elements)


def zeros(like: Any, type_: TensorType) -> Any:
    """Zeros of a type in the world of `like`."""
    value: float | int = 0.0 if type_.dtype.is_float else 0
    return get_op("full").like(like, shape=type_.shape, value=value, dtype=type_.dtype)
