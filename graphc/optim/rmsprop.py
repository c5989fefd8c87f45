"""RMSprop."""

from __future__ import annotations

from typing import Any

from ..frontend import functions as T
from ..frontend.tensor import Tensor
from .optimizer import check, no_steps
from .per_parameter import PerParameter
from .real_parts import real_parts


class RMSprop(PerParameter):
    """RMSprop (Hinton's lecture 6e), torch's order of operations."""

    def __init__(
        self, params: Any, lr: Any = 1e-2, alpha: float = 0.99, eps: float = 1e-8,
        weight_decay: float = 0, momentum: float = 0, centered: bool = False,
        capturable: bool = False, foreach: bool | None = None, maximize: bool = False,
        differentiable: bool = False,
    ) -> None:
        check(lr, eps, weight_decay)
        for name, value in (("momentum", momentum), ("alpha", alpha)):
            if not value >= 0.0:
                raise ValueError(f"Invalid {name} value: {value}")
        super().__init__(params, {
            "lr": lr, "momentum": momentum, "alpha": alpha, "eps": eps, "centered": centered,
            "weight_decay": weight_decay, "capturable": capturable, "foreach": foreach,
            "maximize": maximize, "differentiable": differentiable,
        })

    def _graphc_update(self, group: Any, param: Tensor, grad: Tensor) -> None:
        momentum = group["momentum"] > 0
        makers: dict[str, Any] = {
            "step": no_steps, "square_avg": T.zeros_like,
        }
        if momentum:
            makers["momentum_buffer"] = T.zeros_like
        if group["centered"]:
            makers["grad_avg"] = T.zeros_like
        state = self._graphc_new_state(param, **makers)
        state["step"].add_(1)
        alpha = group["alpha"]
        if group["maximize"]:
            grad = -grad
        if group["weight_decay"] != 0:
            grad = grad.add(param, alpha=group["weight_decay"])
        param, grad, square = real_parts(param, grad, state["square_avg"])
        square.mul_(alpha).addcmul_(grad, grad, value=1 - alpha)
        if group["centered"]:
            (mean,) = real_parts(state["grad_avg"])
            mean.lerp_(grad, 1 - alpha)
            average = square.addcmul(mean, mean, value=-1).sqrt()
        else:
            average = square.sqrt()
        average = average.add(group["eps"])
        if momentum:
            (buffer,) = real_parts(state["momentum_buffer"])
            buffer.mul_(group["momentum"]).addcdiv_(grad, average)
            param.add_(buffer, alpha=-group["lr"])
        else:
            param.addcdiv_(grad, average, value=-group["lr"])
