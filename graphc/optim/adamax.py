"""Adamax."""

from __future__ import annotations

from typing import Any

from ..frontend import functions as T
from ..frontend.tensor import Tensor
from .optimizer import check, no_steps, scalar_like, step_number
from .per_parameter import PerParameter
from .real_parts import real_parts


class Adamax(PerParameter):
    """Adam with the infinity norm (Kingma and Ba 2014, section 7)."""

    def __init__(
        self, params: Any, lr: Any = 2e-3, betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8, weight_decay: float = 0, foreach: bool | None = None, *,
        maximize: bool = False, differentiable: bool = False, capturable: bool = False,
    ) -> None:
        check(lr, eps, weight_decay, betas)
        super().__init__(params, {
            "lr": lr, "betas": tuple(betas), "eps": eps, "weight_decay": weight_decay,
            "foreach": foreach, "maximize": maximize, "differentiable": differentiable,
            "capturable": capturable,
        })

    def _graphc_update(self, group: Any, param: Tensor, grad: Tensor) -> None:
        state = self._graphc_new_state(
            param, step=no_steps, exp_avg=T.zeros_like, exp_inf=T.zeros_like,
        )
        param, grad, average, largest = real_parts(
            param, grad, state["exp_avg"], state["exp_inf"]
        )
        step = state["step"]
        step.add_(1)
        beta1, beta2 = group["betas"]
        if group["maximize"]:
            grad = -grad
        if group["weight_decay"] != 0:
            grad = grad.add(param, alpha=group["weight_decay"])
        average.lerp_(grad, 1 - beta1)
        largest.copy_(T.maximum(largest.mul(beta2), grad.abs().add_(group["eps"])))
        rate = group["lr"] / (1 - beta1 ** step_number(step))
        param.addcdiv_(average, largest, value=scalar_like(-rate, param))
