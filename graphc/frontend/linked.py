"""The steps that a replayed function has come to (replayed.py) as one operator of the history."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from graphc.ir.chain import Link as ChainLink
from graphc.ir.chain import chain_of
from graphc.ir.dtypes import from_numpy
from graphc.ir.op import Op
from graphc.ir.types import TensorType

from .eager import Signature, _wrap, record_known
from .history import requires_grad
from .nodes import OpNode, class_of
from .programs import GradientPlan
from .replayed_steps import Step
from .tensor import Tensor
from .values import Link

_COMPOSED = frozenset({"MeanBackward0", "SumBackward0", "AbsBackward0"})


class Linked:
    """Steps as one operator, with a history of one node."""

    __slots__ = ("_constants", "_copied", "_kind", "_op", "_signature", "_whole")

    def __init__(
        self, whole: Callable[[Any], Any], op: Op, signature: Signature, constants: list[Tensor],
        kind: type[OpNode], copied: frozenset[int],
    ) -> None:
        """`whole`: what computes it; `constants` are operands behind the tensors that are given;
        `copied`: operands that the rule reads and no step has kept, of few numbers: they may be
        written to before."""
        self._copied = copied
        self._whole, self._op, self._signature = whole, op, signature
        self._constants, self._kind = constants, kind

    def run(self, tensors: list[Tensor]) -> Tensor | None:
        """The result; None: not on such arrays."""
        array = self._whole([t._graphc_array for t in tensors])
        if array is None:
            return None
        result = _wrap(array)
        record_known(self._op, (*tensors, *self._constants), self._signature, result, self._kind)
        node: Any = result._graphc_node
        if node is None:
            return result
        node.given = len(tensors)
        if self._copied and not node.packed:
            node.saved_in = tuple([
                x.copy("K") if i in self._copied and x is not None else x
                for i, x in enumerate(node.saved_in)
            ])
            node.stamps = tuple([s for s in node.stamps if s[2] not in self._copied])
        return result


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
    return Linked(whole, op, signature, constants, kind, copied)


def _kept(made: list[tuple[Step, Tensor]]) -> set[Any]:
    """Numbers of the operands that nodes have kept."""
    found: set[Any] = set()
    for step, result in made:
        saved = getattr(result._graphc_node, "saved_in", None) or ()
        found.update(s for s, value in zip(step.sources, saved, strict=False) if value is not None)
    return {s for s in found if type(s) is int}
