"""NAdam."""

from __future__ import annotations

from typing import Any

from ..frontend import functions as T
from ..frontend.tensor import Tensor
from .optimizer import check, no_steps, scalar_dtype, scalar_like, step_number
from .per_parameter import PerParameter
from .real_parts import real_parts


class NAdam(PerParameter):
    """Adam with Nesterov momentum (Dozat 2016)."""

    _graphc_counts = ("step", "mu_product")

    def __init__(
        self, params: Any, lr: Any = 2e-3, betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8, weight_decay: float = 0, momentum_decay: float = 4e-3,
        decoupled_weight_decay: bool = False, *, foreach: bool | None = None,
        maximize: bool = False, capturable: bool = False, differentiable: bool = False,
    ) -> None:
        check(lr, eps, weight_decay, betas)
        if not momentum_decay >= 0.0:
            raise ValueError(f"Invalid momentum_decay value: {momentum_decay}")
        super().__init__(params, {
            "lr": lr, "betas": tuple(betas), "eps": eps, "weight_decay": weight_decay,
            "momentum_decay": momentum_decay, "decoupled_weight_decay": decoupled_weight_decay,
            "maximize": maximize, "foreach": foreach, "capturable": capturable,
            "differentiable": differentiable,
        })

    def _graphc_update(self, group: Any, param: Tensor, grad: Tensor) -> None:
        state = self._graphc_new_state(
            param, step=no_steps, mu_product=lambda param: T.ones((), dtype=scalar_dtype()),
            exp_avg=T.zeros_like, exp_avg_sq=T.zeros_like,
        )
        step, product = state["step"], state["mu_product"]
        param, grad, average, square = real_parts(
            param, grad, state["exp_avg"], state["exp_avg_sq"]
        )
        step.add_(1)
        steps = step_number(step)
        (beta1, beta2), lr, slow = group["betas"], group["lr"], group["momentum_decay"]
        if group["maximize"]:
            grad = -grad
        if group["weight_decay"] != 0:
            if group["decoupled_weight_decay"]:
                param.mul_(1 - lr * group["weight_decay"])
            else:
                grad = grad.add(param, alpha=group["weight_decay"])
        now = beta1 * (1.0 - 0.5 * 0.96 ** (steps * slow))
        following = beta1 * (1.0 - 0.5 * 0.96 ** ((steps + 1) * slow))
        product.mul_(scalar_like(now, product))
        average.lerp_(grad, 1 - beta1)
        square.mul_(beta2).addcmul_(grad, grad, value=1 - beta2)
        root = square.div(scalar_like(1 - beta2**steps, square)).sqrt().add(group["eps"])
        so_far = step_number(product)
        here = -lr * (1.0 - now) / (1.0 - so_far)
        ahead = -lr * following / (1.0 - so_far * following)
        param.addcdiv_(grad, root, value=scalar_like(here, param))
        param.addcdiv_(average, root, value=scalar_like(ahead, param))
