"""RAdam."""

from __future__ import annotations

from typing import Any

from ..frontend import functions as T
from ..frontend.tensor import Tensor
from .optimizer import check, no_steps, scalar_like, step_number
from .per_parameter import PerParameter
from .real_parts import real_parts


class RAdam(PerParameter):
    """Adam with a rectified variance (Liu et al. 2019)."""

    def __init__(
        self, params: Any, lr: Any = 1e-3, betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8, weight_decay: float = 0, decoupled_weight_decay: bool = False, *,
        foreach: bool | None = None, maximize: bool = False, capturable: bool = False,
        differentiable: bool = False,
    ) -> None:
        check(lr, eps, weight_decay, betas)
        super().__init__(params, {
            "lr": lr, "betas": tuple(betas), "eps": eps, "weight_decay": weight_decay,
            "maximize": maximize, "foreach": foreach, "capturable": capturable,
            "decoupled_weight_decay": decoupled_weight_decay, "differentiable": differentiable,
        })

    def _graphc_update(self, group: Any, param: Tensor, grad: Tensor) -> None:
        state = self._graphc_new_state(
            param, step=no_steps, exp_avg=T.zeros_like, exp_avg_sq=T.zeros_like,
        )
        param, grad, average, square = real_parts(
            param, grad, state["exp_avg"], state["exp_avg_sq"]
        )
        step = state["step"]
        step.add_(1)
        (beta1, beta2), lr = group["betas"], group["lr"]
        if group["maximize"]:
            grad = -grad
        if group["weight_decay"] != 0:
            if group["decoupled_weight_decay"]:
                param.mul_(1 - lr * group["weight_decay"])
            else:
                grad = grad.add(param, alpha=group["weight_decay"])
        average.lerp_(grad, 1 - beta1)
        square.mul_(beta2).addcmul_(grad, grad, value=1 - beta2)
        steps = step_number(step)
        update = average / scalar_like(1 - beta1**steps, average) * lr
        for factor in _scales(steps, beta2, square, group["eps"]):
            update = update * factor
        param.add_(update, alpha=-1.0)


def _scales(steps: Any, beta2: Any, square: Tensor, eps: Any) -> tuple[Any, ...]:
    """Adam's scale and its rectification; none while the variance has too few terms."""
    correction = 1 - beta2**steps
    most = 2 / (1 - beta2) - 1
    terms = most - 2 * steps * beta2**steps / correction
    few = terms <= 5.0
    if not isinstance(few, Tensor) and few:
        return ()
    ratio = (terms - 4) * (terms - 2) * most / ((most - 4) * (most - 2) * terms)
    root = scalar_like(correction**0.5, square) / square.sqrt().add(eps)
    if not isinstance(few, Tensor):
        return root, ratio**0.5
    rectified = scalar_like(ratio.clamp_min(0.0) ** 0.5, square)
    return T.where(few, 1.0, root), T.where(few, 1.0, rectified)
