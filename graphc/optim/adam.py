"""Adam and AdamW."""

from __future__ import annotations

from typing import Any

from ..frontend import functions as T
from ..frontend.tensor import Tensor
from .optimizer import check, no_steps, step_number
from .per_parameter import PerParameter
from .real_parts import real_parts


def _check_tensors(lr: Any, betas: Any, foreach: bool) -> None:
    """Raises ValueError for the tensors that torch refuses."""
    if foreach and isinstance(lr, Tensor):
        raise ValueError(
            "lr as a Tensor is not supported for capturable=False and foreach=True"
        )
    kinds = [isinstance(beta, Tensor) for beta in betas]
    if (any(kinds) and not all(kinds)) or any(isinstance(beta, int) for beta in betas):
        raise ValueError("betas must be either both floats or both Tensors")
    for i, kind in enumerate(kinds):
        if kind and foreach:
            raise ValueError(
                f"betas[{i}] as a Tensor is not supported for capturable=False and foreach=True"
            )


def fused_steps(param: Tensor) -> Tensor:
    return T.zeros((), dtype=T.float32)  # whatever the default dtype


class Adam(PerParameter):
    """Adam (Kingma and Ba 2014), in torch's single-tensor order of operations."""

    _graphc_decoupled = False

    def __init__(
        self, params: Any, lr: Any = 1e-3, betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8, weight_decay: float = 0, amsgrad: bool = False, *,
        foreach: bool | None = None, maximize: bool = False, capturable: bool = False,
        differentiable: bool = False, fused: bool | None = None,
        decoupled_weight_decay: bool = False,
    ) -> None:
        check(lr, eps, weight_decay, betas)
        _check_tensors(lr, betas, bool(foreach) and not capturable)
        super().__init__(params, {
            "lr": lr, "betas": tuple(betas), "eps": eps, "weight_decay": weight_decay,
            "amsgrad": amsgrad, "maximize": maximize, "foreach": foreach,
            "capturable": capturable, "differentiable": differentiable, "fused": fused,
            "decoupled_weight_decay": decoupled_weight_decay or self._graphc_decoupled,
        })

    def _graphc_state(self, group: Any, param: Tensor) -> Any:
        makers: dict[str, Any] = {
            "step": fused_steps if group["fused"] else no_steps,
            "exp_avg": T.zeros_like, "exp_avg_sq": T.zeros_like,
        }
        if group["amsgrad"]:
            makers["max_exp_avg_sq"] = T.zeros_like
        return self._graphc_new_state(param, **makers)

    def _graphc_update_sparse(self, group: Any, param: Tensor, grad: Tensor) -> None:
        raise RuntimeError(
            "Adam does not support sparse gradients, please consider SparseAdam instead"
        )

    def _graphc_update(self, group: Any, param: Tensor, grad: Tensor) -> None:
        state = self._graphc_state(group, param)
        beta1, beta2 = group["betas"]
        lr, eps = group["lr"], group["eps"]
        if group["maximize"]:
            grad = -grad
        param, grad, average, square = real_parts(
            param, grad, state["exp_avg"], state["exp_avg_sq"]
        )
        step = state["step"]
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
            (largest,) = real_parts(state["max_exp_avg_sq"])
            before = largest.clone() if group["differentiable"] else largest  # what the tape keeps
            largest.copy_(T.maximum(before, square))
            square = largest
        denominator = (square.sqrt() / root).add_(eps)
        param.addcdiv_(average, denominator, value=-step_size)


class AdamW(Adam):
    """Adam with decoupled weight decay (Loshchilov and Hutter 2017)."""

    _graphc_decoupled = True

    def __init__(
        self, params: Any, lr: Any = 1e-3, betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8, weight_decay: float = 1e-2, amsgrad: bool = False, *,
        maximize: bool = False, foreach: bool | None = None, capturable: bool = False,
        differentiable: bool = False, fused: bool | None = None,
    ) -> None:
        super().__init__(
            params, lr, betas, eps, weight_decay, amsgrad, foreach=foreach, maximize=maximize,
            capturable=capturable, differentiable=differentiable, fused=fused,
        )
