"""Stochastic gradient descent."""

from __future__ import annotations

from typing import Any

from ..frontend import functions as T
from ..frontend.context import local
from ..frontend.tensor import Tensor
from .optimizer import Optimizer, required, run_closure, with_grad


class SGD(Optimizer):
    """SGD with momentum, dampening, Nesterov's form and weight decay (torch.optim.SGD)."""

    def __init__(
        self, params: Any, lr: Any = 1e-3, momentum: float = 0, dampening: float = 0,
        weight_decay: float = 0, nesterov: bool = False, *, maximize: bool = False,
        foreach: bool | None = None, differentiable: bool = False, fused: bool | None = None,
    ) -> None:
        if lr is not required and lr < 0.0:
            raise ValueError(f"Invalid learning rate: {lr}")
        if momentum < 0.0:
            raise ValueError(f"Invalid momentum value: {momentum}")
        if weight_decay < 0.0:
            raise ValueError(f"Invalid weight_decay value: {weight_decay}")
        if nesterov and (momentum <= 0 or dampening != 0):
            raise ValueError("Nesterov momentum requires a momentum and zero dampening")
        super().__init__(params, {
            "lr": lr, "momentum": momentum, "dampening": dampening, "weight_decay": weight_decay,
            "nesterov": nesterov, "maximize": maximize, "foreach": foreach,
            "differentiable": differentiable, "fused": fused,
        })

    def step(self, closure: Any = None) -> Any:
        """One update of every parameter that has a gradient."""
        loss = run_closure(closure)
        for group in self.param_groups:
            for param, grad in with_grad(group):
                self._update(group, param, grad)
        return loss

    def _update(self, group: Any, param: Tensor, grad: Tensor) -> None:
        if group["maximize"]:
            grad = -grad
        if group["weight_decay"] != 0:
            grad = grad.add(param, alpha=group["weight_decay"])
        if group["momentum"] != 0:
            momentum, dampening = group["momentum"], group["dampening"]
            state = self.state[param]
            buffer = state.get("momentum_buffer")
            damped = group["dampening"] != 0
            if buffer is None and local.trace is not None and not damped:
                # 0 * momentum + grad is the first step's value; the buffer is made for real
                state = self.new_state(param, momentum_buffer=lambda: T.zeros_like(param))
                buffer = state["momentum_buffer"]
            if buffer is None:
                buffer = grad.clone().detach()
                state["momentum_buffer"] = buffer
            else:
                buffer.mul_(momentum).add_(grad, alpha=1 - dampening if damped else 1)
            grad = grad.add(buffer, alpha=momentum) if group["nesterov"] else buffer
        param.add_(grad, alpha=-group["lr"])
