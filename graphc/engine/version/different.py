"""Arguments that have to be other tensors than each other, and than those that the function knows.

A call leaves gradients, flags and `.data` with tensors, each by its argument's number or itself,
and reads them there: where two are one, eager mode finds what it has put there. (Of writes to
memory NoOverlap tells.) Nor may one be computed from another, if the call differentiates both.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from ...frontend.captured import (
    FlagWrite,
    GradRead,
    GradWrite,
    Rebind,
    TensorInput,
    TracedGraph,
)
from ...frontend.history import gradient_kind
from ...frontend.nodes import Node
from ...frontend.outside_history import reachable
from ...frontend.tensor import Tensor
from ..capture.observer import Observer
from .call import Call
from .guards import Asked, Guard
from .guards_of_calls import HooksOf, Identity, Known, NoView, hooks_of
from .sources import owner_of


def different(
    traced: TracedGraph, leaves: list[Any], observer: Observer, renewed: set[int]
) -> Iterator[Guard]:
    """What to ask of arguments, and of gradients. `renewed`: ids of tensors that each call puts
    into their places anew."""
    differentiated = observer.differentiated
    arguments: dict[int, int] = {}
    for i, leaf in enumerate(leaves):
        if isinstance(leaf, Tensor):
            arguments.setdefault(id(leaf), i)
    for tensor in differentiated:
        if id(tensor) in arguments:
            yield HooksOf(arguments[id(tensor)], hooks_of(tensor))
    for each in observer.trace.passed:
        yield OwnHistories(*(
            [(tensor, arguments.get(id(tensor), -1)) for tensor in tensors] for tensors in each
        ))
    grads = {
        id(read.tensor._grad): read for read in traced.grad_reads
        if read.present and read.tensor._grad is not None
    }
    yield from _grads(traced, arguments)
    for a, b, same in observer.pairs:
        if same and id(a) in grads and observer.is_known(a):
            yield Identity(grads[id(a)], a, same=True)
        elif not same:
            names = [arguments.get(id(x), grads.get(id(x), x)) for x in (a, b)]
            if not all(isinstance(x, Tensor) for x in names) or {id(a), id(b)} & renewed:
                yield Identity(names[0], names[1], same=False)
    for mutation in traced.mutations:
        source = traced.inputs[mutation.input]
        if mutation.history and isinstance(source, TensorInput):
            yield NoView(source)
    records: list[GradRead | GradWrite] = [*traced.grads, *traced.grad_reads]
    graded = _by_id([*differentiated, *(record.tensor for record in records)])
    left: list[FlagWrite | Rebind] = [*traced.flags, *traced.rebinds]
    changed = _by_id([record.tensor for record in left])
    read = _by_id([source.tensor for source in traced.inputs if type(source) is TensorInput])
    met = read | graded | changed
    for a in met.values():
        if id(a) not in arguments:
            continue
        for b in met.values():
            second = arguments.get(id(b), -1)
            if 0 <= second <= arguments[id(a)]:
                continue
            if (second >= 0 or id(b) in read) and _facts(a) != _facts(b):
                continue  # a call that fits otherwise cannot be given one for both
            if type(a) is type(b) and (
                (id(a) in graded and id(b) in graded) or id(a) in changed or id(b) in changed
            ):
                yield Identity(arguments[id(a)], b if second < 0 else second, same=False)


def _grads(traced: TracedGraph, arguments: dict[int, int]) -> Iterator[Identity]:
    """Gradients that are known by another name, too."""
    known: dict[int, Known] = {
        id(source.tensor): source.tensor for source in traced.inputs
        if type(source) is TensorInput and source.kind == "tensor"
    }
    known |= arguments
    for read in traced.grad_reads:
        found = read.tensor._grad
        if read.present and found is not None:
            if id(found) in known:
                yield Identity(read, known[id(found)], same=True)
            known.setdefault(id(found), read)


def _by_id(tensors: list[Any]) -> dict[int, Tensor]:
    return {id(tensor): tensor for tensor in tensors if isinstance(tensor, Tensor)}


def _facts(tensor: Tensor) -> tuple[Any, ...]:
    """What is asked of arguments, and of tensors that are read, anyway."""
    return tensor.dtype, tensor.ndim, gradient_kind(tensor), tensor._graphc_node is None


class OwnHistories(Guard):
    """A backward pass of the call came to histories from before it. No tensor whose gradient it
    asks for is behind one of these, and no hook is there."""

    __slots__ = ("met", "wanted")
    asked = Asked.CALL

    def __init__(self, met: list[tuple[Any, int]], wanted: list[tuple[Any, int]]) -> None:
        """Tensors, each with its argument's number, or -1."""
        self.met, self.wanted, self.path = met, wanted, "histories from before the call"

    @property
    def cost(self) -> int:
        return 100 * len(self.met)

    def holds_for(self, call: Call) -> bool:
        met, wanted = (
            [owner_of(tensor, index, call.arguments) for tensor, index in tensors]
            for tensors in (self.met, self.wanted)
        )
        places = [(tensor, _place(tensor)) for tensor in met]
        if any(node is None or node.tensor_hooks or node.retained for _, node in places):
            return False
        first = [e[0] for _, node in places if node for e in node.edges if e is not None]
        behind = {id(node) for node in reachable(first)}
        asked = {id(tensor) for tensor in wanted}
        targets = {id(_place(tensor)) for tensor in wanted}
        return targets.isdisjoint(behind) and all(
            id(node) not in targets or id(tensor) in asked for tensor, node in places
        )

    def let_go(self, kept: Callable[[Any, int], Any]) -> None:
        self.met = [(kept(tensor, index), index) for tensor, index in self.met]
        self.wanted = [(kept(tensor, index), index) for tensor, index in self.wanted]

    def reason(self, call: Call) -> str:
        return "a tensor was computed from another one that is differentiated, too, or has hooks"


def _place(tensor: Tensor) -> Node | None:
    """Where the gradient of a tensor arrives; None where nothing leads there."""
    if tensor._graphc_node is not None:
        return tensor._graphc_node
    return None if tensor._graphc_accumulator is None else tensor._graphc_accumulator()
