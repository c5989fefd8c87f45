"""SparseAdam."""

from __future__ import annotations

from typing import Any

from .optimizer import Optimizer, check, one_element, run_closure, with_grad


class SparseAdam(Optimizer):
    """Adam for sparse gradients; graphc's are all dense, which it refuses as torch's does."""

    def __init__(
        self, params: Any, lr: Any = 1e-3, betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8, maximize: bool = False,
    ) -> None:
        one_element(lr)
        one = lr.item() if hasattr(lr, "item") else lr
        if not one > 0.0:
            raise ValueError(f"Invalid learning rate: {lr}")
        if not eps > 0.0:
            raise ValueError(f"Invalid epsilon value: {eps}")
        check(lr, eps, 0.0, betas)
        super().__init__(params, {
            "lr": lr, "betas": tuple(betas), "eps": eps, "maximize": maximize,
        })

    def step(self, closure: Any = None) -> Any:
        """Raises RuntimeError where there is a gradient: it is dense."""
        loss = run_closure(closure)
        for group in self.param_groups:
            for _ in with_grad(group):
                raise RuntimeError(
                    "SparseAdam does not support dense gradients, please consider Adam instead"
                )
        return loss
