"""Anomaly detection: backward() stops at the first NaN and names the forward line it belongs to."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from .errors import located

if TYPE_CHECKING:
    from .nodes import Node


class Anomaly:
    """Whether forward lines are noted, and gradients looked at; for all threads."""

    enabled = False
    check_nan = True


def check(node: Node, found: Sequence[Any]) -> None:
    """Raise RuntimeError where a gradient that `node` computed holds a NaN."""
    for i, value in enumerate(found):
        array = getattr(getattr(value, "tensor", value), "_graphc_array", value)
        if isinstance(array, np.ndarray) and array.dtype.kind not in "biu" and bool(
            np.isnan(array).any()
        ):
            made = "" if node.loc is None else (
                f" The forward call that caused it: {node.loc}"
                + (f" in {node.loc.function}" if node.loc.function else "")
            )
            raise RuntimeError(located(
                f"Function '{node.name()}' returned nan values in its {i}th output.{made}"
            ))
