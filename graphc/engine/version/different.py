"""Arguments that have to be other tensors than each other, and than those that the function knows.

A call leaves gradients, flags and `.data` with tensors, each by its argument's number or itself,
and reads them there: where two are one, eager mode finds what it has put there. (Of writes to
memory NoOverlap tells.)
"""

from __future__ import annotations

from collections.abc import Iterator
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
from ...frontend.tensor import Tensor
from .guards_of_calls import HooksOf, Identity, hooks_of


def different(
    traced: TracedGraph, leaves: list[Any], differentiated: list[Tensor]
) -> Iterator[Identity | HooksOf]:
    """What to ask of arguments. `differentiated`: tensors at which gradients have arrived."""
    arguments: dict[int, int] = {}
    for i, leaf in enumerate(leaves):
        if isinstance(leaf, Tensor):
            arguments.setdefault(id(leaf), i)
    for tensor in differentiated:
        if id(tensor) in arguments:
            yield HooksOf(arguments[id(tensor)], hooks_of(tensor))
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
