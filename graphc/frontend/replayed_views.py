"""What a replayed function (replayed.py) comes to that takes views of what it is given, and is one
loop on those: halves of rows, all columns but the last and all but the first, one number of each
channel. Other steps may come before the loop, too: a norm before its scale and shift."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .context import local
from .eager import _wrap, apply_known
from .linked import Linked, leaves_dims, linked
from .replayed_steps import DETACH, Step
from .tensor import Tensor

MANY = 1 << 16  # numbers of a tensor on which one loop is worth making
Whole = Callable[[list[Any]], Any]


class Viewed:
    """`views` of tensors, or other steps, and the rest on `used` ones of what is given and what
    these give: as a function of arrays, or, with a history, as one node."""

    __slots__ = ("linked", "used", "views", "whole")

    def __init__(
        self, views: list[Step], used: list[int], whole: Whole, linked: Linked | None
    ) -> None:
        self.views, self.used, self.whole, self.linked = views, used, whole, linked

    def run(self, tensors: list[Tensor]) -> Tensor | None:
        """The result; None: not of tensors that lie so."""
        if self.linked is not None and local.saved_hooks:  # they see what each step saves
            return None
        values = list(tensors)
        for step in self.views:
            sources = tuple([values[s] if type(s) is int else s for s in step.sources])
            made = apply_known(step.op, sources, step.attrs, step.signature)
            results = made if type(made) is tuple else (made,)
            if step.kind is not None and results[0]._graphc_node is not None:
                results[0]._graphc_node.__class__ = step.kind
            values += results
        given = [values[i] for i in self.used]
        if self.linked is not None:
            return self.linked.recorded(given)
        array = self.whole([t._graphc_array for t in given])
        return None if array is None else _wrap(array)


def after_views(
    steps: list[Step], values: list[Tensor], tensors: int, recorded: bool,
    made: list[tuple[Step, Tensor]], whole_of: Callable[..., Whole | None],
) -> Viewed | Linked | Whole | None:
    """What runs steps that end with a loop; None: there is none after views or others, or of few
    numbers. `values`: those of the first call; `made`: the first result of each step, with its
    history; `whole_of`: steps as one function of arrays."""
    if any(step.op is DETACH for step in steps):
        return None
    count = max([i + 1 for i, step in enumerate(steps) if not _is_of_a_loop(step)], default=0)
    views, rest = steps[:count], steps[count:]
    if not views or not rest:
        return None
    if max(value._graphc_array.size for value in values) < MANY:
        return None
    # the value that the first of the others makes
    first = tensors + sum(len(step.signature.results) for step in views)
    used = sorted({s for x in rest for s in x.sources if type(s) is int and s < first})
    new: dict[Any, int] = {old: i for i, old in enumerate(used)}
    shift = first - len(used)
    moved = [
        x.on(tuple([
            s if type(s) is not int else new[s] if s < first else s - shift for s in x.sources
        ]))
        for x in rest
    ]
    given = [values[i] for i in used]
    whole = whole_of(moved, [len(given) + len(moved) - 1], given, recorded)
    if whole is None:
        return None
    folded = _folded(whole, views, used, tensors)
    if folded is not None:
        return linked(steps, values[:tensors], folded, made) if recorded else folded
    if not recorded:
        return Viewed(views, used, whole, None)
    of = {id(step): after for step, after in zip(rest, moved, strict=True)}
    later = [(of[id(step)], result) for step, result in made if id(step) in of]
    return Viewed(views, used, whole, linked(moved, given, whole, later))


def _is_of_a_loop(step: Step) -> bool:
    return step.op.pointwise or (step.op.name == "sum" and not leaves_dims(step))


def _folded(whole: Whole, views: list[Step], used: list[int], tensors: int) -> Whole | None:
    """`whole` on what is given itself, of which it sees the numbers alone: of row-major tensors
    with other sizes; None: of other views."""
    for step in views:
        if step.op.name != "reshape":
            return None
        source = step.sources[0]
        if type(source) is not int or source >= tensors:
            return None
    picked = [i if i < tensors else views[i - tensors].sources[0] for i in used]
    if sorted(picked) != list(range(tensors)):
        return None

    def folded(arrays: list[Any]) -> Any:
        for array in arrays:
            if not array.flags.c_contiguous:
                return None
        return whole([arrays[i] for i in picked])

    return folded
