"""Results of a call that are arrays by themselves, of which no history goes on: making them is all
that is left when the native code has run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from ...frontend.nodes import SpentNode
from ...frontend.tensor import Tensor, from_array
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

    def of(self, array: np.ndarray) -> Tensor:
        """The tensor."""
        tensor = from_array(array)
        storage = tensor._graphc_storage
        storage.version, storage.inference = self.writes, self.inference
        if self.spent is not None:
            tensor._graphc_node = SpentNode(*self.spent)
        return tensor


def plain_results(version: Specialisation, dims: dict[str, int]) -> Sequence[PlainResult] | None:
    """What a call with these dims gives; None where more is to be done."""
    traced = version.traced
    if (
        version.plan is not None or version.writes or version.stored or version.replay
        or version.order or traced.deferred or traced.rebinds or traced.flags
    ):
        return None
    found = []
    for output in traced.result:
        if (
            output.kind != "value" or output.method or output.outdated
            or output.order is not None or output.index in version.engine.mutated
        ):
            return None
        spent = None
        if output.requires_grad:
            leaves = version.leaves.get(id(output)) if output.behind else []
            if leaves is None or output.unrecorded or version.changes_history:
                return None
            type_ = version.engine.output_types[output.index]
            known = TensorType(type_.dtype, concrete_shape(type_, dims))
            spent = known, output.made_by, partial(edges_of, leaves)
        found.append(PlainResult(output.index, output.versions, output.inference, spent))
    return found if len({each.output for each in found}) == len(found) else None
