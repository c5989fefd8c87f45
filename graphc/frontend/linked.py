"""The steps that a replayed function has come to (replayed.py) as one operator of the history."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from graphc.ir.chain import Link as ChainLink
from graphc.ir.chain import chain_of
from graphc.ir.dtypes import from_numpy
from graphc.ir.types import TensorType

from .eager import Signature, _wrap
from .history import requires_grad
from .nodes import class_of
from .programs import GradientPlan
from .replayed_steps import Arrays, Step
from .sequenced import Sequenced
from .tensor import Tensor
from .values import Link

_COMPOSED = frozenset({"MeanBackward0", "SumBackward0", "AbsBackward0"})


class Linked:
    """Steps as one operator, with a history of one node."""

    __slots__ = ("_sequence", "_whole")

    def __init__(self, whole: Callable[[Any], Any]) -> None:
        """`whole`: what computes it, of arrays."""
        self._whole = whole
        self._sequence: Sequenced | None = None

    def is_of(self, sequence: Sequenced) -> None:
        """What makes its history."""
        self._sequence = sequence

    def run(self, tensors: list[Tensor]) -> list[Tensor] | None:
        """The result without a history; None: not on such arrays."""
        array = self._whole([t._graphc_array for t in tensors])
        return None if array is None else [_wrap(array)]

    def recorded(self, tensors: list[Tensor]) -> Tensor | None:
        """The same with one."""
        assert self._sequence is not None
        found = self._sequence.run(tensors)
        return None if found is None else found[0]


def leaves_dims(step: Step) -> bool:
    """Whether it is a sum over some dims: with history, a link of chains of few numbers alone."""
    return step.op.name == "sum" and bool(step.signature.results[0].shape)


def links_of(steps: list[Step], given: int) -> tuple[list[Tensor], list[Link]]:
    """The operands that never change, which come behind those that are given, and the steps."""
    constants: list[Tensor] = []
    for step in steps:
        constants += [s for s in step.sources if type(s) is not int]
    links, used = [], given
    for step in steps:
        sources = []
        for s in step.sources:
            if type(s) is not int:
                sources.append(used)
                used += 1
            else:
                sources.append(s if s < given else s + len(constants))
        links.append(Link(step.op, step.attrs, tuple(sources), step.signature.results[0]))
    return constants, links


def linked(
    steps: list[Step], tensors: list[Tensor], whole: Callable[[Any], Any],
    made: list[tuple[Step, Tensor]],
) -> Linked:
    """Steps as one node; `made`: the first result of each, with its history."""
    constants, links = links_of(steps, len(tensors))
    operands = [*tensors, *constants]
    types = tuple(
        [TensorType(from_numpy(t._graphc_array.dtype), t._graphc_array.shape) for t in operands]
    )
    op = chain_of([
        ChainLink(
            link.op, {} if step.op.name == "sum" and not leaves_dims(step) else link.attrs,
            link.sources,
        ) for link, step in zip(links, steps, strict=True)
    ], len(types))
    kind = steps[-1].kind or class_of(steps[-1].op)
    signature = Signature(op, types, {})
    needs = tuple([requires_grad(t) for t in operands])
    plan = GradientPlan(op, signature.inputs, signature.results, {}, needs)
    signature.plans[needs] = plan
    copied = frozenset([i for i in plan.inputs if i < len(tensors)]) - _kept(made)
    if not hasattr(whole, "of_few"):
        # what torch composes, too, saves none of these: many numbers are copied if they change
        plan.late = copied if kind.__name__ in _COMPOSED else frozenset()
        copied = frozenset()
    found = Linked(whole)
    runner: Any = found
    if hasattr(whole, "in_order"):  # which may become a program
        last = len(tensors) + len(steps) - 1
        runner = Arrays.of(steps, [last], len(tensors), False, False) or found
    sequence = Sequenced(
        runner, op, {}, signature, plan, needs, kind, constants, list(range(len(operands))),
        len(tensors),
    )
    sequence.given, sequence.copied = len(tensors), copied
    found.is_of(sequence)
    return found


def _kept(made: list[tuple[Step, Tensor]]) -> set[Any]:
    """Numbers of the operands that nodes have kept."""
    found: set[Any] = set()
    for step, result in made:
        saved = getattr(result._graphc_node, "saved_in", None) or ()
        found.update(s for s, value in zip(step.sources, saved, strict=False) if value is not None)
    return {s for s in found if type(s) is int}
