"""What was compiled, as the runtime sees it, and how much was compiled."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..ir.types import TensorType


class CompileCounter:
    """How many versions were compiled in this process."""

    count = 0


class Engine:
    """A Built as the runtime sees it."""

    def __init__(self, built: Any, output_types: list[TensorType], dims: tuple[str, ...]) -> None:
        self.built = built
        self.output_types = output_types
        self.dims = dims

    def run(
        self, inputs: list[np.ndarray], outputs: list[np.ndarray], dims: tuple[int, ...]
    ) -> None:
        """The native call."""
        self.built.run(inputs, outputs, dims)
