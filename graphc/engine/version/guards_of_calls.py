"""Guards on what a call is given and fetches: arguments, the memory of tensors, sizes, numbers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ...frontend import placement
from ...frontend.captured import GradRead, InputAlias, MadeInput, NumberInput, TensorInput
from ...frontend.functionalize import span
from ...frontend.functions.strided import is_part
from ...frontend.history import gradient_kind
from ...frontend.number_expr import NumberGuard, operations_of
from ...frontend.storage import address, strides_of
from ...frontend.tensor import Tensor
from ...frontend.values import Eager
from ...ir.dim import Guard as SizeGuard
from ...ir.memory import shares
from ..capture.argument_writes import apart
from ..capture.places import Place
from .call import Call
from .expected import bind, expectation, is_laid_out, place_of_input
from .guards import Asked, Guard
from .sources import owner_of, tensor_of, written_to

# what the modes at the head of a version's key (Versions.key) are called
MODES = (
    "arguments", "grad mode", "inference mode", "device", "autocast", "default dtype",
    "GRAPHC_RANDOM", "TF32", "GRAPHC_CUDA_LIBRARIES",
)


class FoundBy(Guard):
    """What a version is found by: other calls do not come to it, so nothing is asked. `usual`: so
    it is with every version, and of little interest."""

    __slots__ = ("said", "usual")
    asked, cost = Asked.KEY, 0

    def __init__(self, path: str, said: str, usual: bool = False) -> None:
        self.path, self.said, self.usual = path, said, usual

    def holds(self) -> bool:
        return True

    def text(self) -> str:
        return f"{self.path} {self.said}"


class Apart(Guard):
    """The containers among the arguments are different ones, and none is known from elsewhere."""

    __slots__ = ("known",)
    asked, cost = Asked.CALL, 20

    def __init__(self, known: dict[int, Any]) -> None:
        self.path, self.known = "a container among the arguments", known

    def holds_for(self, call: Call) -> bool:
        return apart(call.given, self.known)

    def reason(self, call: Call) -> str:
        return "a container among the arguments is elsewhere, too"

    def text(self) -> str:
        return "containers among the arguments are in one place each"


class GradIsThere(Guard):
    """A tensor has a `.grad`, or has none. `made`: a missing one counts as zeros."""

    __slots__ = ("made", "read")
    asked, cost = Asked.CALL, 6

    def __init__(self, read: GradRead, made: bool) -> None:
        self.read, self.made = read, made
        self.path = f".grad of a {tuple(read.tensor._graphc_array.shape)} tensor"

    def holds_for(self, call: Call) -> bool:
        there = written_to(self.read, call.arguments)._grad is not None
        return there == self.read.present or (self.made and not there)

    def missing(self, call: Call) -> Tensor | None:
        """The tensor whose `.grad` is to be made zeros for this call."""
        if not self.made:
            return None
        tensor = written_to(self.read, call.arguments)
        return tensor if tensor._grad is None else None

    def reason(self, call: Call) -> str:
        return "a .grad is None now and was not, or the other way round"

    def text(self) -> str:
        return f"{self.path} {'is a tensor' if self.read.present else 'is None'}"


class Differentiable(Guard):
    """A captured tensor requires a gradient, or does not, and has these hooks."""

    __slots__ = ("flag", "hooks", "leaf", "tensor")
    asked, cost = Asked.CALL, 12

    def __init__(self, tensor: Tensor, flag: bool | None, leaf: bool, path: str) -> None:
        self.tensor, self.flag, self.leaf, self.path = tensor, flag, leaf, path
        self.hooks = hooks_of(tensor)

    def holds_for(self, call: Call) -> bool:
        tensor, flag = self.tensor, self.flag
        return (
            gradient_kind(tensor) == flag and hooks_of(tensor) == self.hooks
            and (not flag or (tensor._graphc_node is None) == self.leaf)
        )

    def about(self) -> Any:
        return self.tensor

    def reason(self, call: Call) -> str:
        return "requires_grad or hooks of a captured tensor changed"

    def text(self) -> str:
        grad = "requires a gradient" if self.flag else "requires no gradient"
        return f"{self.path} {grad}, with {len(self.hooks) or 'no'} hooks"


class HooksOf(Guard):
    """An argument at which the call's own gradients arrive has these hooks."""

    __slots__ = ("hooks", "index")
    asked, cost = Asked.CALL, 8

    def __init__(self, index: int, hooks: tuple[Any, ...]) -> None:
        self.index, self.hooks, self.path = index, hooks, f"argument {index}"

    def holds_for(self, call: Call) -> bool:
        return hooks_of(call.arguments[self.index]) == self.hooks

    def reason(self, call: Call) -> str:
        return f"the hooks of {self.path} changed"

    def text(self) -> str:
        return f"{self.path} has {len(self.hooks) or 'no'} hooks"


class NoView(Guard):
    """A tensor that the call writes to, with a history, is no view: what it would be a view of gets
    that history, too."""

    __slots__ = ("source",)
    asked, cost = Asked.CALL, 6

    def __init__(self, source: TensorInput) -> None:
        self.source, self.path = source, named(source)

    def holds_for(self, call: Call) -> bool:
        return tensor_of(self.source, call.arguments)._base is None

    def reason(self, call: Call) -> str:
        return f"{self.path} is a view"

    def text(self) -> str:
        return f"{self.path} is no view"


class WholeMemory(Guard):
    """A tensor is all of its memory, in which the call has looked for elements by their offset."""

    __slots__ = ("index", "tensor")
    asked, cost = Asked.CALL, 30

    def __init__(self, tensor: Any, index: int) -> None:
        self.tensor, self.index = tensor, index
        self.path = f"argument {index}" if index >= 0 else "a tensor that the function knows"

    def holds_for(self, call: Call) -> bool:
        return not is_part(owner_of(self.tensor, self.index, call.arguments))

    def let_go(self, kept: Callable[[Any, int], Any]) -> None:
        self.tensor = kept(self.tensor, self.index)

    def reason(self, call: Call) -> str:
        return f"{self.path} is a part of a larger memory"

    def text(self) -> str:
        return f"{self.path} is all of its memory"


class Renewed(Guard):
    """The tensor in a place that the function itself renews is differentiated as it was."""

    __slots__ = ("source",)
    asked, cost = Asked.CALL, 16

    def __init__(self, source: TensorInput, place: Place) -> None:
        self.source, self.path = source, place.path

    def holds_for(self, call: Call) -> bool:
        source = self.source
        tensor = tensor_of(source, call.arguments)
        flag = gradient_kind(tensor)
        if flag != source.requires_grad or (flag and (tensor._graphc_node is None) != source.leaf):
            return False
        return not hooks_of(tensor)

    def reason(self, call: Call) -> str:
        return f"requires_grad or hooks of {self.path} changed"

    def text(self) -> str:
        grad = "requires a gradient" if self.source.requires_grad else "requires no gradient"
        return f"{self.path} {grad}, with no hooks"


class SameArgument(Guard):
    """An argument is another one, too, or a tensor that the function knows."""

    __slots__ = ("index", "other")
    asked, cost = Asked.CALL, 3

    def __init__(self, index: int, other: int | Tensor | Place) -> None:
        self.index, self.other, self.path = index, other, f"argument {index}"

    def holds_for(self, call: Call) -> bool:
        return call.arguments[self.index] is _meant(self.other, call)

    def let_go(self, kept: Callable[[Any, int], Any]) -> None:
        self.other = kept(self.other, -1)

    def reason(self, call: Call) -> str:
        return f"argument {self.index} was another tensor, too"

    def text(self) -> str:
        other = self.other
        return f"{self.path} is " + (
            f"argument {other}" if type(other) is int else "a tensor that the function knows"
        )


Known = int | Tensor | Place | GradRead  # an argument's number, a tensor, or where one is


class Identity(Guard):
    """Whether two tensors are one, of which an argument is one, or the `.grad` of a tensor."""

    __slots__ = ("a", "b", "same")
    asked, cost = Asked.CALL, 4

    def __init__(self, a: Known, b: Known, same: bool) -> None:
        self.a, self.b, self.same = a, b, same
        names = [
            f"argument {x}" if type(x) is int else "a .grad" if isinstance(x, GradRead)
            else "a tensor" for x in (a, b)
        ]
        self.path = f"{names[0]} is {names[1]}"

    def holds_for(self, call: Call) -> bool:
        return (_meant(self.a, call) is _meant(self.b, call)) == self.same

    def let_go(self, kept: Callable[[Any, int], Any]) -> None:
        self.a, self.b = (
            x if isinstance(x, GradRead) else kept(x, -1) for x in (self.a, self.b)
        )

    def reason(self, call: Call) -> str:
        return "tensors are one now that were two, or the other way round"

    def text(self) -> str:
        return f"{self.path}: {self.same}"


def _meant(known: Known, call: Call) -> Any:
    """The tensor of this call."""
    if type(known) is int:
        return call.arguments[known]
    if isinstance(known, GradRead):
        return written_to(known, call.arguments)._grad
    return known.get() if isinstance(known, Place) else known


class MemoryOf(Guard):
    """The memory of an input has this shape, dtype, layout and device; named sizes are bound."""

    __slots__ = ("dtype", "number", "rows", "shape", "source", "strides", "where")
    asked, cost = Asked.MEMORY, 8

    def __init__(self, source: TensorInput) -> None:
        self.source, self.number, self.where = source, source.number, place_of_input(source)
        self.shape, self.dtype, self.rows, self.strides = expectation(source)
        self.path = str(source.node.attrs["name"])

    def holds_for(self, call: Call) -> bool:
        array = call.arrays[self.number]
        if array.shape != self.shape and not bind(array.shape, self.shape, call.dims):
            return False
        if array.dtype is not self.dtype and array.dtype != self.dtype:
            return False
        if Eager.elsewhere is not None and placement.of(array) is not self.where:
            return False
        # Python may have asked for the layout, and results have it
        return array.flags.c_contiguous == self.rows and (
            self.rows or is_laid_out(array, self.strides, call.dims)
        )

    def about(self) -> Any:
        return self.source.tensor if self.source.kind == "tensor" else None

    def reason(self, call: Call) -> str:
        array = call.arrays[self.number]
        if array.shape != self.shape and not bind(array.shape, self.shape, {**call.dims}):
            return f"{self.path} has shape {array.shape}, was {self.shape}"
        if array.dtype != self.dtype:
            return f"{self.path} is {array.dtype}, was {self.dtype}"
        if Eager.elsewhere is not None and placement.of(array) is not self.where:
            return f"{self.path} is on another device"
        return f"the memory layout of {self.path} changed"

    def text(self) -> str:
        source = self.source
        grad = ", requires_grad" if source.requires_grad and source.kind == "argument" else ""
        laid = "" if self.rows else f", strides {list(self.strides)}"
        return f"{named(source)} is {source.type}{grad}{laid}"


class Sizes(Guard):
    """What was decided about named sizes."""

    __slots__ = ("decided",)
    asked, cost = Asked.FETCHED, 50

    def __init__(self, decided: SizeGuard) -> None:
        self.decided, self.path = decided, "sizes"

    def holds_for(self, call: Call) -> bool:
        return self.decided.check(call.dims)

    def reason(self, call: Call) -> str:
        return f"sizes no longer satisfy {self.decided.text()}"

    def text(self) -> str:
        return f"sizes: {self.decided.text()}"


class Aliases(Guard):
    """A tensor still lies at the same place in another input's memory, through which it is read."""

    __slots__ = ("alias",)
    asked, cost = Asked.FETCHED, 12

    def __init__(self, alias: InputAlias) -> None:
        self.alias, self.path = alias, named(alias.source)

    def holds_for(self, call: Call) -> bool:
        alias = self.alias
        array = tensor_of(alias.source, call.arguments)._graphc_array
        return (
            address(array) - address(call.arrays[alias.input]) == alias.offset
            and array.shape == alias.shape and strides_of(array) == alias.source.strides
        )

    def reason(self, call: Call) -> str:
        return "tensors no longer share memory in the same way"

    def text(self) -> str:
        return f"{self.path} lies in the memory of input {self.alias.input}"


class NoOverlap(Guard):
    """Memory that is written is not another input's, but for the pairs that the trace knew."""

    __slots__ = ("inputs", "known", "places", "written")
    asked = Asked.FETCHED

    def __init__(
        self, written: Sequence[int], known: Sequence[tuple[int, int]], inputs: int
    ) -> None:
        self.written = frozenset(written)
        self.inputs = inputs
        self.known = {frozenset(pair) for pair in known}
        self.places: list[int] = []  # addresses at which the inputs were seen not to overlap
        self.path = f"memory of {len(self.written)} inputs that are written"

    @property
    def cost(self) -> int:
        return 5 * self.inputs  # where addresses are those of the last call

    def holds_for(self, call: Call) -> bool:
        arrays = call.arrays
        places = [address(a) for a in arrays]
        if places == self.places:
            return True
        spans = sorted((p, p + span(arrays[i]), i) for i, p in enumerate(places))
        active: list[tuple[int, int]] = []
        for low, high, i in spans:
            active = [(end, j) for end, j in active if end > low]
            for _, j in active:
                if not (i in self.written or j in self.written) or frozenset((i, j)) in self.known:
                    continue
                if shares(arrays[i], arrays[j]):
                    return False
            if high > low:
                active.append((high, i))
        self.places = places
        return True

    def reason(self, call: Call) -> str:
        return "inputs that were apart share memory"

    def text(self) -> str:
        return f"{self.path} is no other input's" + (
            f", but for {len(self.known)} pairs" if self.known else ""
        )


class Decided(Guard):
    """A run-time number that was decided upon: the same would be decided now."""

    __slots__ = ("number",)
    asked = Asked.NUMBERS

    def __init__(self, number: NumberGuard) -> None:
        self.number, self.path = number, "a number"

    @property
    def cost(self) -> int:
        return 25 * operations_of(self.number.expression)

    def holds_for(self, call: Call) -> bool:
        return self.number.holds(call.sources, call.dims)

    def reason(self, call: Call) -> str:
        return f"a number that was decided upon changed, at {self.number.loc}"

    def text(self) -> str:
        loc = self.number.loc
        where = "" if loc is None else f", decided at {loc}"
        return f"a number keeps the value {self.number.value!r}{where}"


def any_number(source: NumberInput) -> FoundBy:
    """Of a run-time number, the type alone matters."""
    expression = source.expression
    path = f"{expression.op}() of numbers"
    if expression.op == "source":
        found = expression.args[0]
        path = f"argument {found[1]}" if isinstance(found, tuple) else repr(found)
    return FoundBy(path, f"is a {type(source.value).__name__}: any value")


def of_made_input(source: MadeInput) -> FoundBy:
    """What Python makes ahead of the native code may have any value."""
    return FoundBy(repr(source.ahead), "is computed ahead of each call")


def named(source: TensorInput) -> str:
    """An input, in words."""
    if source.kind == "argument":
        return f"argument {source.index}"
    name = source.node.attrs["name"]
    if source.kind == "grad":
        return f"the .grad {name}"
    return f"the memory {name}" if source.kind == "storage" else f"the captured tensor {name}"


def hooks_of(tensor: Tensor) -> tuple[Any, ...]:
    """The hooks on a tensor, with their numbers."""
    node = tensor._graphc_accumulator and tensor._graphc_accumulator()
    groups = (
        tensor._graphc_hooks,
        tensor._graphc_post_hooks,
        node and node.pre_hooks,
        node and node.post_hooks,
    )
    if not any(groups):
        return ()
    return tuple([(i, hook) for i, group in enumerate(groups) for hook in (group or {}).values()])
