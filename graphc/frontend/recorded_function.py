"""Custom Functions and hooks of a recording, as data from which each call's own can be laid out.

Their Python runs again, for real, when the unfolded tape does: a Function's backward gets a context
with the saved tensors of that call, and history as eager mode's have it. So what they leave out of
the gradients (detach, no_grad, once_differentiable) is left out of the gradients' gradients, too.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from types import CellType, FunctionType, MethodType
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from graphc.ir import dtypes
from graphc.ir.dim import evaluate
from graphc.ir.named import NamedTuple
from graphc.ir.record import record
from graphc.ir.types import TensorType

from .function import FunctionCtx, FunctionNode, _Saved
from .held import Holds, Read, read_of_tensor
from .history import edge, requires_grad
from .hooks import Hooks, new_hooks
from .nodes import AccumulateGrad, Edge, Stamped
from .nodes import Node as GradNode
from .numbers import LiftedNumber, SymInt
from .tensor import Tensor, current, from_array
from .texts import is_traced_value
from .tree import children, flatten, map_leaves

if TYPE_CHECKING:
    from .trace import Trace

Place = tuple[int, int]
FindEdge = Callable[[Place], "Edge | None"]


@record
class Value:
    """A tensor of the recording: its value, and where its gradient goes (None: nowhere).
    `output`: which result of the Function it is; -1 for none."""

    tree_leaf: ClassVar[bool] = True
    read: Read
    place: Place | None
    output: int = -1


@record
class Size:
    """A symbolic size in a context's attribute."""

    tree_leaf: ClassVar[bool] = True
    dim: Any


@record
class Number:
    """A run-time number in a context's attribute."""

    tree_leaf: ClassVar[bool] = True
    read: Read
    kind: type


class Call(NamedTuple):
    """A custom Function that was applied."""

    kind: type[FunctionNode]
    function: Any
    is_tensor: tuple[bool, ...]  # of what forward returned
    needs: tuple[bool, ...]
    materialize: bool
    fields: dict[str, Any]  # the attributes of its context, tensors as Values
    saved: tuple[Value | None, ...]
    edges: tuple[Place | None, ...]
    out_types: tuple[TensorType, ...]

    @property
    def reads(self) -> list[Read]:
        """The value of every tensor and number that it keeps."""
        leaves = [*self.saved, *flatten(self.fields)[0]]
        return [leaf.read for leaf in leaves if isinstance(leaf, (Value, Number))]


class NotLaidOut(Exception):
    """The recording holds what only that call has."""


# --- from the recording --------------------------------------------------------------------------


def recorded_call(
    trace: Trace, node: FunctionNode, edges: tuple[Place | None, ...], places: Mapping[Edge, Place],
    holds: Holds,
) -> Call:
    """A custom Function's node as data. Raises NotLaidOut."""
    ctx = node.ctx
    if ctx._saved is None:
        raise NotLaidOut
    values = _Values(trace, node, places, holds)
    saved = tuple([None if each is None else values.saved(each) for each in ctx._saved])
    fields = {
        name: map_leaves(values.field, field) for name, field in vars(ctx).items()
        if name not in _OWN
    }
    return Call(
        type(node), node.function, node.is_tensor, ctx.needs_input_grad, ctx.materialize_grads,
        fields, saved, edges, node.out_types,
    )


class _Values:
    def __init__(
        self, trace: Trace, node: FunctionNode, places: Mapping[Edge, Place], holds: Holds
    ) -> None:
        self.trace, self.node, self.places, self.holds = trace, node, places, holds

    def saved(self, each: Any) -> Value:
        if each.packed is not None or each.storage.version != each.version:
            raise NotLaidOut
        if each.output is not None:
            return Value(self.read(current(each.tensor)), None, each.output)
        return self.of(each.tensor)

    def of(self, tensor: Tensor) -> Value:
        state = current(tensor)
        place = None
        if requires_grad(state):
            made_by, output = edge(state)
            if made_by is self.node:  # one of its own results, kept as an attribute
                return Value(self.read(state), None, output)
            place = self.places.get((made_by, output))
            if place is None:
                raise NotLaidOut
        return Value(self.read(state), place)

    def read(self, state: Tensor) -> Read:
        return read_of_tensor(state, self.trace.read(state), self.holds)

    def field(self, leaf: Any) -> Any:
        if isinstance(leaf, Tensor):
            return self.of(leaf)
        if type(leaf) is SymInt:
            return Size(leaf.dim)
        if type(leaf) is LiftedNumber:
            kind = type(leaf.expression.value)
            dtype = dtypes.f64 if kind is float else dtypes.i64
            number = self.trace.number_operand(leaf.expression, dtype)
            return Number(Read(self.trace.read(number)), kind)
        if holds_traced(leaf):
            raise NotLaidOut
        return leaf


def holds_traced(value: Any) -> bool:
    """Whether a function or an object holds what a trace has in place of tensors and numbers."""
    stack, seen = [value], set()
    while stack:
        item = stack.pop()
        if is_traced_value(item) or (isinstance(item, Tensor) and item._graphc_trace is not None):
            return True
        if id(item) in seen or isinstance(item, (Tensor, type)):
            continue
        seen.add(id(item))
        inside = children(item)
        if inside is not None:
            stack += inside
        elif isinstance(item, (set, frozenset)):
            stack += item
        elif isinstance(item, FunctionType):
            stack += [*(item.__closure__ or ()), *(item.__defaults__ or ())]
            stack += (item.__kwdefaults__ or {}).values()
        elif isinstance(item, CellType):
            stack += [item.cell_contents] if _is_filled(item) else []
        elif isinstance(item, MethodType):
            stack += [item.__func__, item.__self__]
        else:
            stack += getattr(item, "__dict__", {}).values()
    return False


def _is_filled(cell: CellType) -> bool:
    try:
        return cell.cell_contents is not cell
    except ValueError:
        return False


class NodeHooks(NamedTuple):
    """The hooks on a node, and on what it made."""

    tensors: dict[int, Hooks]
    before: Hooks | None
    after: Hooks | None

    def put_on(self, node: GradNode) -> None:
        """Hook a node of the tape that is laid out."""
        node.pre_hooks, node.post_hooks = _again(self.before), _again(self.after)
        node.tensor_hooks = {output: _copy(hooks) for output, hooks in self.tensors.items()}


def recorded_hooks(node: GradNode) -> NodeHooks | None:
    """The hooks of a recording's node; None where it has none. Raises NotLaidOut."""
    if node.retained:
        raise NotLaidOut
    if not (node.tensor_hooks or node.pre_hooks or node.post_hooks):
        return None
    tensors = {output: _copy(hooks) for output, hooks in (node.tensor_hooks or {}).items()}
    found = NodeHooks(tensors, _again(node.pre_hooks), _again(node.post_hooks))
    if holds_traced([tensors, found.before, found.after]):
        raise NotLaidOut
    return found


def _copy(hooks: Hooks) -> Hooks:
    made = new_hooks()
    made.update(hooks)
    return made


def _again(hooks: Hooks | None) -> Hooks | None:
    return _copy(hooks) if hooks else None


# --- in a call -----------------------------------------------------------------------------------


class CallValues:
    """The tensors of one call that Functions kept."""

    def __init__(
        self, read: Mapping[Read, int], arrays: Sequence[np.ndarray],
        stamps: Mapping[int, tuple[Stamped, int]], find: FindEdge, dims: Mapping[str, int],
    ) -> None:
        self.read, self.arrays, self.stamps, self.find, self.dims = (
            read, arrays, stamps, find, dims
        )

    def node(self, call: Call, edges: tuple[Edge | None, ...], types: Any) -> FunctionNode:
        """The node of a Function with a context of its own."""
        ctx = FunctionCtx(call.needs)
        ctx.materialize_grads = call.materialize
        node = call.kind(call.function, ctx, edges, types, call.is_tensor)
        for name, field in call.fields.items():
            setattr(ctx, name, map_leaves(functools.partial(self._leaf, node), field))
        ctx._graphc_node = node
        ctx._saved = tuple([None if v is None else self._saved(v) for v in call.saved])
        return node

    def _leaf(self, node: FunctionNode, leaf: Any) -> Any:
        if type(leaf) is Size:
            return evaluate(leaf.dim, dict(self.dims))
        if type(leaf) is Number:
            return leaf.kind(self.arrays[self.read[leaf.read]].item())
        if type(leaf) is not Value:
            return leaf
        tensor = self._tensor(leaf)
        if leaf.output >= 0:
            tensor._graphc_node, tensor._graphc_output = node, leaf.output
        return tensor

    def _saved(self, value: Value) -> _Saved:
        saved = _Saved(self._tensor(value), None if value.output < 0 else value.output)
        stamp = self.stamps.get(self.read[value.read])
        if stamp is not None:
            saved.version = stamp[1]
        return saved

    def _tensor(self, value: Value) -> Tensor:
        number = self.read[value.read]
        array = self.arrays[number]
        place = None if value.place is None else self.find(value.place)
        if place is not None and isinstance(place[0], AccumulateGrad):
            leaf: Tensor = place[0].variable
            if leaf._graphc_array is array:
                return leaf
        tensor = from_array(array)
        if number in self.stamps:
            storage: Any = self.stamps[number][0]
            tensor._graphc_storage = storage
        if place is not None:
            tensor._graphc_node, tensor._graphc_output = place
        return tensor


_OWN = frozenset(vars(FunctionCtx(())))
