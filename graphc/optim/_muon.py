"""Muon."""

from __future__ import annotations

import math
from typing import Any

from ..frontend import functions as T
from ..frontend.tensor import Tensor
from .optimizer import one_element
from .per_parameter import PerParameter


class Muon(PerParameter):
    """Momentum made orthogonal by Newton-Schulz iterations (Jordan 2024), for 2-D parameters."""

    _graphc_counts = None

    def __init__(
        self, params: Any, lr: Any = 1e-3, weight_decay: float = 0.1, momentum: float = 0.95,
        nesterov: bool = True,
        ns_coefficients: tuple[float, float, float] = (3.4445, -4.7750, 2.0315),
        eps: float = 1e-7, ns_steps: int = 5, adjust_lr_fn: str | None = None,
    ) -> None:
        one_element(lr)
        if not lr >= 0.0:
            raise ValueError(f"Learning rate should be >= 0 but is: {lr}")
        if not momentum >= 0.0:
            raise ValueError(f"momentum should be >= 0 but is: {momentum}")
        if not weight_decay >= 0.0:
            raise ValueError(f"weight decay should be >= 0 but is: {weight_decay}")
        if adjust_lr_fn not in (None, "original", "match_rms_adamw"):
            raise ValueError(f"Adjust learning rate function {adjust_lr_fn} is not supported")
        super().__init__(params, {
            "lr": lr, "weight_decay": weight_decay, "momentum": momentum, "nesterov": nesterov,
            "ns_coefficients": ns_coefficients, "eps": eps, "ns_steps": ns_steps,
            "adjust_lr_fn": adjust_lr_fn,
        })
        for group in self.param_groups:
            for param in group["params"]:
                if param.dim() != 2:
                    raise ValueError(
                        "Muon only supports 2D parameters whereas we found a parameter with "
                        f"size: {param.size()}"
                    )

    def _graphc_update(self, group: Any, param: Tensor, grad: Tensor) -> None:
        state = self._graphc_new_state(param, momentum_buffer=T.zeros_like)
        buffer, keep = state["momentum_buffer"], 1 - group["momentum"]
        buffer.lerp_(grad, keep)
        update = grad.lerp(buffer, group["momentum"]) if group["nesterov"] else buffer
        update = orthogonal(update, group["ns_coefficients"], group["ns_steps"], group["eps"])
        lr = group["lr"]
        param.mul_(1 - lr * group["weight_decay"])
        rate = lr * _shape_factor(group["adjust_lr_fn"], tuple(param.shape))
        param.add_(update, alpha=-rate)


def orthogonal(matrix: Tensor, coefficients: Any, steps: int, eps: float) -> Tensor:
    """Roughly U V^T of the matrix's singular value decomposition, in bfloat16."""
    if steps >= 100:
        raise ValueError("Number of steps must be less than 100 for computational efficiency")
    if matrix.dim() != 2:
        raise ValueError("Input tensor gradient must be a 2D matrix")
    if len(coefficients) != 3:
        raise ValueError("Coefficients must be a tuple of exactly 3 values")
    a, b, c = coefficients
    tall = matrix.shape[0] > matrix.shape[1]
    x = matrix.bfloat16()
    x = x.T if tall else x
    x = x / x.norm().clamp(min=eps)  # a spectral norm of at most 1
    for _ in range(steps):
        gram = x @ x.T
        x = T.addmm(x, T.addmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return x.T if tall else x


def _shape_factor(name: str | None, shape: tuple[int, ...]) -> float:
    rows, columns = shape
    if name == "match_rms_adamw":
        return 0.2 * math.sqrt(max(rows, columns))
    return math.sqrt(max(1, rows / columns))
