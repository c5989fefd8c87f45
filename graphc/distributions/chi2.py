"""torch.distributions.Chi2."""

from __future__ import annotations

from typing import Any

from ..frontend.tensor import Tensor
from . import constraints
from .gamma import Gamma


class Chi2(Gamma):
    """Of df degrees of freedom."""

    arg_constraints = {"df": constraints.positive}

    def __init__(self, df: Any, validate_args: bool | None = None) -> None:
        super().__init__(0.5 * df, 0.5, validate_args=validate_args)

    @property
    def df(self) -> Tensor:
        """The degrees of freedom."""
        return self.concentration * 2
