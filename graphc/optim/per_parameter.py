"""The step of most optimizers: each parameter that has a gradient is updated by itself."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..frontend.context import local
from ..frontend.layouts import strided
from ..frontend.tensor import Tensor
from .optimizer import Optimizer, run_closure, with_grad
from .whole_step import whole_step


class PerParameter(Optimizer):
    """An Optimizer that says how one parameter is updated: `_graphc_update(group, param, grad)`."""

    # states without dimensions, whose numbers Python works with; None: an update is more than a
    # loop over the elements of a parameter and of states like it
    _graphc_counts: tuple[str, ...] | None = ("step",)

    # (group, param): makes a parameter's state, looking at options alone. None: a first update is
    # another one than those after it, or needs no state
    _graphc_state: Callable[[Any, Tensor], Any] | None = None

    def __init__(self, params: Any, defaults: dict[str, Any]) -> None:
        super().__init__(params, defaults)
        if defaults.get("fused"):
            if defaults["differentiable"]:
                raise RuntimeError("`fused` does not support `differentiable`")
            if defaults["foreach"]:
                raise RuntimeError("`fused` and `foreach` cannot be `True` together.")

    def step(self, closure: Any = None) -> Any:
        """One update of every parameter that has a gradient."""
        loss = run_closure(closure)
        counts = self._graphc_counts
        if local.trace is None and counts is not None and whole_step(self, counts):
            return loss
        for group in self.param_groups:
            if recorded(self, group):
                continue
            for param, grad in with_grad(group):
                if type(grad) is not Tensor and grad.layout is not strided:
                    update_sparse(self, group, param, grad)
                else:
                    self._graphc_update(group, param, grad)
        return loss

    def _graphc_only_writes(self) -> bool:
        """Whether a step is graphc's own, and does nothing but write to tensors."""
        hooks = self._optimizer_step_pre_hooks or self._optimizer_step_post_hooks
        return type(self).__module__.startswith("graphc.optim.") and not hooks

    def _graphc_update(self, group: Any, param: Tensor, grad: Tensor) -> None:
        """One update. It looks at nothing but `param`, `grad`, options of `group` and what
        `_graphc_new_state` and `_graphc_has_state` give: who records it need not watch each
        line."""
        raise NotImplementedError

    def _graphc_update_sparse(self, group: Any, param: Tensor, grad: Tensor) -> None:
        """The same for a sparse gradient. Raises RuntimeError, as most optimizers do."""
        raise RuntimeError(
            f"{type(self).__name__} does not support sparse gradients"
        )


def update_sparse(optimizer: PerParameter, group: Any, param: Tensor, grad: Tensor) -> None:
    """One update for a sparse gradient, which no recording sees."""
    trace = local.trace
    if trace is None:
        optimizer._graphc_update_sparse(group, param, grad)
        return
    trace.end_segment("a sparse gradient", "make the step outside of it")
    with trace.suspended():
        optimizer._graphc_update_sparse(group, param, grad)


def recorded(optimizer: PerParameter, group: Any) -> bool:
    """Update a group's parameters where a recording does so by itself, which looks at what is read
    instead of at the lines that read it (engine/capture/optimizers.py). False: nothing was done."""
    return False
