"""Adam, AdamW, RMSprop, Adagrad: first-order methods with running second moments."""

from __future__ import annotations

from typing import Any

from ..frontend import functions as T
from ..frontend.tensor import Tensor
from .optimizer import Optimizer, run_closure, step_number, with_grad


def _check(lr: Any, eps: float, betas: tuple[float, float], weight_decay: float) -> None:
    if not lr >= 0.0:
        raise ValueError(f"Invalid learning rate: {lr}")
    if not eps >= 0.0:
        raise ValueError(f"Invalid epsilon value: {eps}")
    for i, beta in enumerate(betas):
        if not 0.0 <= beta < 1.0:
            raise ValueError(f"Invalid beta parameter at index {i}: {beta}")
    if not weight_decay >= 0.0:
        raise ValueError(f"Invalid weight_decay value: {weight_decay}")


class Adam(Optimizer):
    """Adam (Kingma and Ba 2014), in torch's single-tensor order of operations."""

    decoupled = False

    def __init__(
        self, params: Any, lr: Any = 1e-3, betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8, weight_decay: float = 0, amsgrad: bool = False, *,
        foreach: bool | None = None, maximize: bool = False, capturable: bool = False,
        differentiable: bool = False, fused: bool | None = None,
        decoupled_weight_decay: bool = False,
    ) -> None:
        _check(lr, eps, betas, weight_decay)
        super().__init__(params, {
            "lr": lr, "betas": tuple(betas), "eps": eps, "weight_decay": weight_decay,
            "amsgrad": amsgrad, "maximize": maximize, "foreach": foreach,
            "capturable": capturable, "differentiable": differentiable, "fused": fused,
            "decoupled_weight_decay": decoupled_weight_decay or self.decoupled,
        })

    def step(self, closure: Any = None) -> Any:
        """One update of every parameter that has a gradient."""
        loss = run_closure(closure)
        for group in self.param_groups:
            for param, grad in with_grad(group):
                self._update(group, param, grad)
        return loss

    def _update(self, group: Any, param: Tensor, grad: Tensor) -> None:
        makers: dict[str, Any] = {
            "step": lambda: T.zeros((), dtype=T.float32),
            "exp_avg": lambda: T.zeros_like(param),
            "exp_avg_sq": lambda: T.zeros_like(param),
        }
        if group["amsgrad"]:
            makers["max_exp_avg_sq"] = lambda: T.zeros_like(param)
        state = self.new_state(param, **makers)
        beta1, beta2 = group["betas"]
        lr, eps = group["lr"], group["eps"]
        if group["maximize"]:
            grad = -grad
        step, average, square = state["step"], state["exp_avg"], state["exp_avg_sq"]
        step.add_(1)
        if group["weight_decay"] != 0:
            decay = group["weight_decay"]
            if group["decoupled_weight_decay"]:
                param.mul_(1 - lr * decay)
            else:
                grad = grad.add(param, alpha=decay)
        average.lerp_(grad, 1 - beta1)
        square.mul_(beta2).addcmul_(grad, grad, value=1 - beta2)
        steps = step_number(step)
        step_size = lr / (1 - beta1**steps)
        root = (1 - beta2**steps) ** 0.5
        if group["amsgrad"]:
            largest = state["max_exp_avg_sq"]
            largest.copy_(T.maximum(largest, square))
            square = largest
        denominator = (square.sqrt() / root).add_(eps)
        param.addcdiv_(average, denominator, value=-step_size)


class AdamW(Adam):
    """Adam with decoupled weight decay (Loshchilov and Hutter 2017)."""

    decoupled = True

    def __init__(
        self, params: Any, lr: Any = 1e-3, betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8, weight_decay: float = 1e-2, amsgrad: bool = False, **flags: Any,
    ) -> None:
        super().__init__(params, lr, betas, eps, weight_decay, amsgrad, **flags)


class RMSprop(Optimizer):
    """RMSprop (Hinton's lecture 6e), torch's order of operations."""

    def __init__(
        self, params: Any, lr: Any = 1e-2, alpha: float = 0.99, eps: float = 1e-8,
        weight_decay: float = 0, momentum: float = 0, centered: bool = False,
        capturable: bool = False, foreach: bool | None = None, maximize: bool = False,
        differentiable: bool = False,
    ) -> None:
        _check(lr, eps, (0.0, 0.0), weight_decay)
        super().__init__(params, {
            "lr": lr, "momentum": momentum, "alpha": alpha, "eps": eps, "centered": centered,
            "weight_decay": weight_decay, "capturable": capturable, "foreach": foreach,
            "maximize": maximize, "differentiable": differentiable,
        })

    def step(self, closure: Any = None) -> Any:
        """One update of every parameter that has a gradient."""
        loss = run_closure(closure)
        for group in self.param_groups:
            for param, grad in with_grad(group):
                self._update(group, param, grad)
        return loss

    def _update(self, group: Any, param: Tensor, grad: Tensor) -> None:
        momentum = group["momentum"] > 0
        makers: dict[str, Any] = {
            "step": lambda: T.zeros((), dtype=T.float32),
            "square_avg": lambda: T.zeros_like(param),
        }
        if momentum:
            makers["momentum_buffer"] = lambda: T.zeros_like(param)
        if group["centered"]:
            makers["grad_avg"] = lambda: T.zeros_like(param)
        state = self.new_state(param, **makers)
        state["step"].add_(1)
        alpha = group["alpha"]
        if group["maximize"]:
            grad = -grad
        if group["weight_decay"] != 0:
            grad = grad.add(param, alpha=group["weight_decay"])
        square = state["square_avg"]
        square.mul_(alpha).addcmul_(grad, grad, value=1 - alpha)
        if group["centered"]:
            mean = state["grad_avg"]
            mean.lerp_(grad, 1 - alpha)
            average = square.addcmul(mean, mean, value=-1).sqrt_()
        else:
            average = square.sqrt()
        average = average.add_(group["eps"])
        if momentum:
            buffer = state["momentum_buffer"]
            buffer.mul_(group["momentum"]).addcdiv_(grad, average)
            param.add_(buffer, alpha=-group["lr"])
        else:
            param.addcdiv_(grad, average, value=-group["lr"])


class Adagrad(Optimizer):
    """Adagrad (Duchi et al. 2011)."""

    def __init__(
        self, params: Any, lr: Any = 1e-2, lr_decay: float = 0, weight_decay: float = 0,
        initial_accumulator_value: float = 0, eps: float = 1e-10, foreach: bool | None = None,
        *, maximize: bool = False, differentiable: bool = False, fused: bool | None = None,
    ) -> None:
        _check(lr, eps, (0.0, 0.0), weight_decay)
        super().__init__(params, {
            "lr": lr, "lr_decay": lr_decay, "eps": eps, "weight_decay": weight_decay,
            "initial_accumulator_value": initial_accumulator_value, "foreach": foreach,
            "maximize": maximize, "differentiable": differentiable, "fused": fused,
        })
        for group in self.param_groups:
            for param in group["params"]:
                self.state[param] = {
                    "step": T.zeros((), dtype=T.float32),
                    "sum": T.full_like(param, initial_accumulator_value),
                }

    def step(self, closure: Any = None) -> Any:
        """One update of every parameter that has a gradient."""
        loss = run_closure(closure)
        for group in self.param_groups:
            for param, grad in with_grad(group):
                state = self.state[param]
                state["step"].add_(1)
                if group["maximize"]:
                    grad = -grad
                if group["weight_decay"] != 0:
                    grad = grad.add(param, alpha=group["weight_decay"])
                rate = group["lr"] / (1 + (step_number(state["step"]) - 1) * group["lr_decay"])
                total = state["sum"]
                total.addcmul_(grad, grad, value=1)
                param.addcdiv_(grad, total.sqrt().add_(group["eps"]), value=-rate)
        return loss
