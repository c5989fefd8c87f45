"""What a finished trace says: a Graph, and what its inputs and outputs are in the user's world.

`TracedGraph.graph` has one input per entry of `inputs` (same order); everything below refers to
its outputs by number. It is the graph to compile: each memory that is handed out or written to has
an output of its own, and gradients come last.

Inputs (in order; fetch their arrays at each call)
    TensorInput "argument"  the argument tensor number `index`: `arguments[index]._array`
    TensorInput "tensor"    a captured tensor: `tensor._array` (any strides: make it contiguous
                            for the native code; `strides` are those at the trace)
    TensorInput "grad"      the `.grad` of a tensor: `tensor.grad._array` (guard: not None)
    TensorInput "storage"   the whole flat memory under overlapping tensors:
                            `tensor._storage.root.flat()`; `tensor` is argument `index` if >= 0
    NumberInput             a Python number: float64 or int64 0-d; `expression.evaluate(...)`
    MadeInput               an array that `ahead.now(...)` makes of inputs before it

Results (`result` is a structure from tree.py whose leaves are Output records)
    Output "value"     graph output `index`; if `order` is not None the array must be transposed
                       by it (logical strides were not row-major)
    Output "view"      `chain` of views of graph output `index`, in its `order` (outputs that share
                       memory); `base`:
                       the Output that it is a view of, and by which views, if that leaves, too
    Output "input"     the very tensor object `tensor` (argument `argument` if >= 0)
    Output "alias"     `chain` of views of the tensor of input number `index`, detached first if
                       `detached`: replay it eagerly to get the autograd link (attrs may hold Dims),
                       in no_grad mode if `unrecorded`
    "alias", "view" with a `row`: `chain` of views of the row of another Output, whose places are
                       graph outputs (x[i] where only the call knows i)
    Output "number"    a Python number: `number.evaluate(sources, dims)`
    Output "object"    anything else, as it is: `tensor` is that object
    One traced Tensor is one Output object: `a is b` in the result is `a is b` here.
    `requires_grad` says that the output carries history (see backward below).

Effects (all to be done after the native call, in this order)
    mutations   input number `input`'s memory gets graph output `output`; the storage's version
                grows by `versions`; `history`: autograd must see it (the tensor then requires grad)
    rebinds     `.data` of `tensor` becomes the Output (also set_() like changes)
    grads       `.grad` of `tensor` becomes the Output, or None; `zero`: known to be all zeros
    flags       `.requires_grad` of `tensor` becomes the flag

Guards (beside the types of the inputs)
    grad_reads  `.grad` of `tensor` was None / was a tensor (`present`)
    numbers     a lifted number was decided upon: `guard.holds(sources, dims)`; with the line
    graph.env   guards on symbolic dims (`env.guards`); the dims are bound by the inputs' shapes
    Inputs that the trace saw apart must not overlap at a later call if one is written to;
    `overlaps` names the pairs of input numbers that were forwarded. `input_aliases`: tensors that
    are read through the memory of another's input must still lie at the same place in it.

backward (asked for by `finish(result, backward=True)`; for compile(model) with loss.backward()
outside): the graph then has one more input per differentiable output, its gradient, and one more
output per captured tensor that requires a gradient. It follows the tape, so detach(), no_grad
and custom Functions count; hooks of captured leaves are left to the eager pass that goes on.
Every node of it has `backward` > 0.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias

import numpy as np

from graphc.ir.graph import Graph, Node
from graphc.ir.record import record
from graphc.ir.types import Shape, TensorType

from .tree import flatten
from .views import Chain

if TYPE_CHECKING:
    from .ahead import Ahead
    from .number_expr import NumberExpr, NumberGuard
    from .recorded_tape import RecordedTape
    from .tensor import Tensor


class Unread:
    """`.grad` of a shadow that nobody has looked at."""


UNREAD = Unread()


@record(eq=False, frozen=False)
class TensorInput:
    """A graph input that is a tensor's memory."""

    kind: str  # "argument" | "tensor" | "grad" | "storage" | "tangent"
    tensor: Any  # or None, or what is in its place (TracedGraph.let_go)
    node: Node
    strides: Shape
    index: int = -1  # argument number
    number: int = -1  # which graph input
    requires_grad: bool | None = False  # gradient_kind()
    leaf: bool = True

    @property
    def type(self) -> TensorType:
        return self.node.tensor_type

    @property
    def owner(self) -> Tensor:
        """The concrete tensor on the input's memory, in the call that was recorded."""
        assert self.tensor is not None
        owner: Tensor = self.tensor._grad if self.kind == "grad" else self.tensor
        return owner

    @property
    def array(self) -> np.ndarray:
        """What the memory holds now: the owner's numbers, or all of a "storage", flat."""
        owner = self.owner
        found: np.ndarray = (
            owner._graphc_storage.root.flat() if self.kind == "storage" else owner._graphc_array
        )
        return found


@record(eq=False, frozen=False)
class NumberInput:
    """A graph input that is a Python number: a lifted one, or what Python computes of such."""

    node: Node
    expression: NumberExpr
    number: int = -1

    @property
    def value(self) -> float | int:
        """The number at the trace."""
        number: float | int = self.expression.value
        return number

    @property
    def type(self) -> TensorType:
        return self.node.tensor_type


@record(eq=False, frozen=False)
class MadeInput:
    """A graph input that Python makes of other inputs ahead of the native code (ahead.py)."""

    node: Node
    ahead: Ahead
    part: int  # which of the arrays that are made together
    value: np.ndarray  # at the trace
    number: int

    @property
    def type(self) -> TensorType:
        return self.node.tensor_type


Input: TypeAlias = TensorInput | NumberInput | MadeInput


@record(eq=False, frozen=False)
class Output:
    """One leaf of the result, or the new value of something the trace changed."""

    tree_leaf: ClassVar[bool] = True
    kind: str  # "value" | "view" | "input" | "alias" | "number" | "object"
    index: int = -1
    type: TensorType | None = None
    tensor: Any = None
    argument: int = -1
    chain: Chain = ()
    order: tuple[int, ...] | None = None
    detached: bool = False
    untracked: bool = False  # `.data` of it: its memory counts writes by itself
    unrecorded: bool = False
    outdated: bool = False  # made so, and its memory was written to since (history.py)
    inference: bool = False  # its memory was made in inference mode
    versions: int = 0  # in-place writes that its memory has seen
    base: tuple[Output, Chain] | None = None
    row: tuple[Output, int, tuple[int, ...]] | None = None  # of what, from which dim, the places
    requires_grad: bool = False
    made_by: str = ""  # what its grad_fn is called
    # which argument (-1: none) and tensor each leaf is that waits for it: it is used up
    behind: Sequence[tuple[int, Any]] = ()
    number: NumberExpr | None = None
    method: str = ""  # of the tensor, whose result is given in its place: item, numpy
    owner: Output | None = None  # of an array: the tensor on whose memory it is


@record(eq=False)
class Mutation:
    """Memory of an input that was written to."""

    input: int
    output: int
    versions: int
    history: bool
    zero: bool = False  # known to hold zeros now


@record(eq=False, frozen=False)
class GradWrite:
    """`.grad` of a concrete tensor was set; `value` None clears it."""

    tensor: Any
    value: Output | None
    zero: bool = False
    argument: int = -1  # which argument the tensor was


@record(eq=False, frozen=False)
class Rebind:
    """`.data` of a concrete tensor was set."""

    tensor: Any
    value: Output
    argument: int = -1


@record(eq=False, frozen=False)
class FlagWrite:
    """`.requires_grad` of a concrete tensor was set."""

    tensor: Any
    requires_grad: bool
    argument: int = -1


@record(eq=False, frozen=False)
class GradRead:
    """`.grad` of a concrete tensor was looked at and was (not) None."""

    tensor: Any
    present: bool
    argument: int = -1


@record(eq=False)
class InputAlias:
    """A tensor whose elements are read from the memory of input number `input`.

    `source` says how to find it at a call; `offset` is its distance there, in bytes.
    """

    source: TensorInput
    input: int
    offset: int
    shape: tuple[int, ...]


@record(eq=False)
class Backward:
    """What `finish(backward=True)` added.

    `outputs`: the Outputs that carry history (an "input" among them: a captured tensor that was
    written to, whose history must become this one); `tangents`: the graph input number of the
    gradient of each. `tensors`: concrete tensors that require a gradient, `gradients`: the graph
    output number of the gradient of each (None: nothing flows). `tape`: what was differentiated,
    where that can be done again; `inner`: outputs that others were computed from; `labels`: what
    the operation that made each output is called.
    """

    outputs: list[Output]
    tangents: list[int]
    tensors: list[Any]
    gradients: list[int | None]
    tape: RecordedTape | None = None
    inner: frozenset[int] = frozenset()
    labels: tuple[str, ...] = ()


@record(eq=False)
class TracedGraph:
    """A finished trace, which nobody changes but let_go(); see the module's docstring."""

    graph: Graph
    inputs: tuple[Input, ...]
    result: Any
    stored: dict[Any, Any]  # an Output, or containers of them, by place
    mutations: tuple[Mutation, ...] = ()
    rebinds: tuple[Rebind, ...] = ()
    grads: tuple[GradWrite, ...] = ()
    flags: tuple[FlagWrite, ...] = ()
    grad_reads: tuple[GradRead, ...] = ()
    numbers: tuple[NumberGuard, ...] = ()
    overlaps: tuple[tuple[int, int], ...] = ()
    input_aliases: tuple[InputAlias, ...] = ()
    backward: Backward | None = None
    deferred: tuple[Callable[[], None], ...] = ()

    @property
    def mutated(self) -> dict[int, int]:
        """Which graph output goes into which input's memory."""
        return {mutation.output: mutation.input for mutation in self.mutations}

    @property
    def forward(self) -> tuple[int, int]:
        """How many inputs and outputs of the graph are the forward's; gradients follow."""
        if self.backward is None:
            return len(self.graph.inputs), len(self.graph.outputs)
        found = sum(gradient is not None for gradient in self.backward.gradients)
        return (
            len(self.graph.inputs) - len(self.backward.tangents),
            len(self.graph.outputs) - found,
        )

    def outputs(self) -> list[Output]:
        """Every Output record."""
        found: list[Output] = []
        found += flatten(self.result, _is_output)[0]
        found += flatten(list(self.stored.values()), _is_output)[0]
        found += [write.value for write in self.grads if write.value is not None]
        found += [rebind.value for rebind in self.rebinds]
        found += [output.owner for output in found if output.owner is not None]
        for output in found:  # which grows: rows of rows
            if output.row is not None:
                found.append(output.row[0])
        return found

    def let_go(self, kept: Callable[[Any, int], Any]) -> None:
        """Refer to no tensor that was of the recorded call alone. `kept`: what a record says in
        place of a tensor, from it and the number of the argument that it was (-1: none)."""
        backward = self.backward
        if backward is not None:
            given = self.given()
            backward.tensors[:] = [kept(t, given.get(id(t), -1)) for t in backward.tensors]
        for output in {id(output): output for output in self.outputs()}.values():
            if output.kind == "input":
                output.tensor = kept(output.tensor, output.argument)
            output.behind = [(i, kept(tensor, i)) for i, tensor in output.behind]
        written: list[Any] = [*self.rebinds, *self.grads, *self.flags, *self.grad_reads]
        for write in written:
            write.tensor = kept(write.tensor, write.argument)
        for source in self._tensor_inputs():
            source.tensor = kept(source.tensor, source.index)

    def given(self) -> dict[int, int]:
        """The numbers of the arguments that are tensors, by the ids of these; of those, too, that
        are read through another's memory."""
        return {id(i.tensor): i.index for i in self._tensor_inputs() if i.index >= 0}

    def _tensor_inputs(self) -> Iterator[TensorInput]:
        for source in self.inputs:
            if isinstance(source, TensorInput):
                yield source
        for alias in self.input_aliases:
            yield alias.source


def _is_output(value: Any) -> bool:
    return isinstance(value, Output)
