"""Results of a call that are arrays by themselves: making them, and the history of those that have
one (plain_history.py), is all that is left when the native code has run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from ...frontend.nodes import SpentNode
from ...frontend.tensor import Tensor, from_array
from ...ir.named import NamedTuple
from ...ir.types import TensorType
from ..built import concrete_shape
from .results import edges_of
from .version import Specialisation


class PlainResult(NamedTuple):
    """A tensor that a call gives."""

    output: int
    writes: int
    inference: bool
    # where a pass has used its history up: its type, what made it, and the leaves behind it
    spent: tuple[TensorType, str, Callable[[], Any]] | None
    number: int  # which of those that the call's history is of; -1: none
    order: tuple[int, ...] | None  # how the array is to be transposed

    def of(self, array: np.ndarray) -> Tensor:
        """The tensor."""
        tensor = from_array(array if self.order is None else array.transpose(self.order))
        storage = tensor._graphc_storage
        storage.version, storage.inference = self.writes, self.inference
        if self.spent is not None:
            tensor._graphc_node = SpentNode(*self.spent)
        return tensor


def plain_results(version: Specialisation, dims: dict[str, int]) -> Sequence[PlainResult] | None:
    """What a call with these dims gives; None where more is to be done."""
    traced = version.traced
    if (
        version.writes or version.stored or version.replay
        or version.order or traced.deferred or traced.rebinds or traced.flags
    ):
        return None
    plan = version.plan
    numbers = {} if plan is None else {id(each): i for i, each in enumerate(plan.outputs)}
    found = []
    for output in traced.result:
        if (
            output.kind != "value" or output.method or output.outdated
            or output.index in version.engine.mutated
        ):
            return None
        spent, number = None, numbers.pop(id(output), -1)
        if output.requires_grad and number < 0:
            leaves = version.leaves.get(id(output)) if output.behind else []
            if leaves is None or output.unrecorded or version.changes_history:
                return None
            type_ = version.engine.output_types[output.index]
            known = TensorType(type_.dtype, concrete_shape(type_, dims))
            spent = known, output.made_by, partial(edges_of, leaves)
        found.append(PlainResult(
            output.index, output.versions, output.inference, spent, number, output.order
        ))
    several = len({each.output for each in found}) < len(found)
    return None if several or numbers else found
