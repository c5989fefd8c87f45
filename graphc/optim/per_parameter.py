"""The step of most optimizers: each parameter that has a gradient is updated by itself."""

from __future__ import annotations

from typing import Any

from ..frontend.tensor import Tensor
from .optimizer import Optimizer, run_closure, with_grad


class PerParameter(Optimizer):
    """An Optimizer that says how one parameter is updated: `_update(group, param, grad)`."""

    def step(self, closure: Any = None) -> Any:
        """One update of every parameter that has a gradient."""
        loss = run_closure(closure)
        for group in self.param_groups:
            for param, grad in with_grad(group):
                self._update(group, param, grad)
        return loss

    def _update(self, group: Any, param: Tensor, grad: Tensor) -> None:
        raise NotImplementedError
