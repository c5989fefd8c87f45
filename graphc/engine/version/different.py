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
from .call import Call
from .guards import Asked, Guard
from .guards_of_calls import HooksOf, Identity, hooks_of
from .sources import owner_of


def different(
    traced: TracedGraph, leaves: list[Any], differentiated: list[Tensor]
) -> Iterator[Guard]:
    """What to ask of arguments. `differentiated`: tensors at which gradients have arrived."""
    arguments: dict[int, int] = {}
    for i, leaf in enumerate(leaves):
        if isinstance(leaf, Tensor):
            arguments.setdefault(id(leaf), i)
    for tensor in differentiated:
        if id(tensor) in arguments:
            yield HooksOf(arguments[id(tensor)], hooks_of(tensor))
    if any(tensor._graphc_node is not None for tensor in differentiated):
        yield OwnHistories([(t, arguments.get(id(t), -1)) for t in differentiated])
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


def _by_id(tensors: list[Any]) -> dict[int, Tensor]:
    return {id(tensor): tensor for tensor in tensors if isinstance(tensor, Tensor)}


def _facts(tensor: Tensor) -> tuple[Any, ...]:
    """What is asked of arguments, and of tensors that are read, anyway."""
    return tensor.dtype, tensor.ndim, gradient_kind(tensor), tensor._graphc_node is None


class OwnHistories(Guard):
    """No tensor that the call differentiates is behind another one, which has a history from before
    the call, and no hook is on such a history."""

    __slots__ = ("differentiated",)
    asked = Asked.CALL

    def __init__(self, differentiated: list[tuple[Any, int]]) -> None:
        """Tensors, each with its argument's number, or -1."""
        self.differentiated, self.path = differentiated, "histories from before the call"

    @property
    def cost(self) -> int:
        return 100 * len(self.differentiated)

    def holds_for(self, call: Call) -> bool:
        found = [owner_of(tensor, index, call.arguments) for tensor, index in self.differentiated]
        places = [_place(tensor) for tensor in found]
        origins = [place for place in places if place is not None and place.edges]
        if any(node.tensor_hooks or node.retained for node in origins):
            return False
        first = [edge[0] for node in origins for edge in node.edges if edge is not None]
        known = [place for place in places if place is not None]
        return len(set(known)) == len(known) and set(known).isdisjoint(reachable(first))

    def let_go(self, kept: Callable[[Any, int], Any]) -> None:
        self.differentiated = [(kept(t, index), index) for t, index in self.differentiated]

    def reason(self, call: Call) -> str:
        return "a tensor was computed from another one that is differentiated, too, or has hooks"


def _place(tensor: Tensor) -> Node | None:
    """Where the gradient of a tensor arrives; None where nothing leads there."""
    if tensor._graphc_node is not None:
        return tensor._graphc_node
    return None if tensor._graphc_accumulator is None else tensor._graphc_accumulator()
