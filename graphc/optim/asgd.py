"""ASGD."""

from __future__ import annotations

from typing import Any

from ..frontend import functions as T
from ..frontend.tensor import Tensor
from .optimizer import check, no_steps, scalar_dtype, scalar_like, step_number
from .per_parameter import PerParameter
from .real_parts import real_parts


class ASGD(PerParameter):
    """Averaged stochastic gradient descent (Polyak and Juditsky 1992)."""

    _graphc_counts = ("step", "eta", "mu")

    def __init__(
        self, params: Any, lr: Any = 1e-2, lambd: float = 1e-4, alpha: float = 0.75,
        t0: float = 1e6, weight_decay: float = 0, foreach: bool | None = None,
        maximize: bool = False, differentiable: bool = False, capturable: bool = False,
    ) -> None:
        check(lr, 0.0, weight_decay)
        super().__init__(params, {
            "lr": lr, "lambd": lambd, "alpha": alpha, "t0": t0, "weight_decay": weight_decay,
            "foreach": foreach, "maximize": maximize, "differentiable": differentiable,
            "capturable": capturable,
        })

    def _graphc_update(self, group: Any, param: Tensor, grad: Tensor) -> None:
        state = self._graphc_new_state(
            param, step=no_steps,
            eta=lambda param: T.full((), float(group["lr"]), dtype=scalar_dtype()),
            mu=lambda param: T.ones((), dtype=scalar_dtype()), ax=T.zeros_like,
        )
        param, grad, mean = real_parts(param, grad, state["ax"])
        step, eta, mu = state["step"], state["eta"], state["mu"]
        step.add_(1)
        if group["maximize"]:
            grad = -grad
        if group["weight_decay"] != 0:
            grad = grad.add(param, alpha=group["weight_decay"])
        steps, rate = step_number(step), step_number(eta)
        lambd, lr = group["lambd"], group["lr"]
        param.mul_(scalar_like(1 - lambd * rate, param))
        param.add_(grad, alpha=scalar_like(-rate, param))
        share = mu.to(param.dtype)
        mean.copy_(T.where(share == 1, param, mean + (param - mean) * share))
        eta.fill_(lr / (1 + lambd * lr * steps) ** group["alpha"])
        passed = steps - group["t0"]
        bounded = passed.clamp_min(1.0) if isinstance(passed, Tensor) else max(1, passed)
        mu.fill_(1 / bounded)
