"""Adafactor."""

from __future__ import annotations

from typing import Any

from ..frontend import functions as T
from ..frontend.tensor import Tensor
from .optimizer import no_steps, one_element, scalar_like, step_number
from .per_parameter import PerParameter


class Adafactor(PerParameter):
    """Adafactor (Shazeer and Stern 2018): second moments of matrices by rows and columns."""

    _graphc_counts = None

    def __init__(
        self, params: Any, lr: Any = 1e-2, beta2_decay: float = -0.8,
        eps: tuple[float | None, float] = (None, 1e-3), d: float = 1.0,
        weight_decay: float = 0.0, *, foreach: bool | None = None, maximize: bool = False,
    ) -> None:
        one_element(lr)
        if not lr >= 0.0:
            raise ValueError(f"Learning rate should be >= 0 but is: {lr}")
        if not beta2_decay <= 0.0:
            raise ValueError(f"beta2_decay should be <= 0 but is: {beta2_decay}")
        if eps[0] is not None and not eps[0] >= 0.0:
            raise ValueError(f"epsilon1 should be >= 0 but is: {eps[0]}")
        if not eps[1] >= 0.0:
            raise ValueError(f"epsilon2 should be >= 0 but is: {eps[1]}")
        if not d >= 1.0:
            raise ValueError(f"Clipping threshold d should be >= 1 but is: {d}")
        if not weight_decay >= 0.0:
            raise ValueError(f"weight_decay should be >= 0 but is: {weight_decay}")
        super().__init__(params, {
            "lr": lr, "beta2_decay": beta2_decay, "eps": eps, "d": d,
            "weight_decay": weight_decay, "foreach": foreach, "maximize": maximize,
        })

    def _graphc_update(self, group: Any, param: Tensor, grad: Tensor) -> None:
        if param.is_complex():
            raise RuntimeError("Adafactor does not support complex parameters")
        state = self._graphc_new_state(param, **_makers(param))
        if group["maximize"]:
            grad = -grad
        least, smallest = group["eps"]
        if least is None:
            least = T.finfo(param.dtype).eps
        state["step"].add_(1)
        steps, lr = step_number(state["step"]), group["lr"]
        forget = scalar_like(steps ** group["beta2_decay"], param)
        relative = _least(lr, 1 / steps**0.5)
        size = step_number(param.norm(2)) / param.numel() ** 0.5
        if group["weight_decay"] != 0:
            param.mul_(1 - lr * group["weight_decay"])
        variance = _variance(state, grad, forget, least)
        update = variance.clamp_(min=least * least).rsqrt_().mul_(grad)
        spread = step_number(update.norm(2)) / (update.numel() ** 0.5 * group["d"])
        rate = _most(smallest, size) * relative / _most(1.0, spread)
        param.add_(update, alpha=scalar_like(-rate, param))


def _makers(param: Tensor) -> dict[str, Any]:
    makers: dict[str, Any] = {"step": no_steps}
    if param.dim() <= 1:
        return makers | {"variance": T.zeros_like}
    *lead, rows, columns = param.shape
    return makers | {
        "row_var": lambda param: T.zeros([*lead, rows, 1], dtype=param.dtype),
        "col_var": lambda param: T.zeros([*lead, 1, columns], dtype=param.dtype),
    }


def _variance(state: dict[str, Any], grad: Tensor, forget: Any, least: float) -> Tensor:
    """The running second moment; of matrices, the product of its factors."""
    if grad.dim() <= 1:
        return state["variance"].lerp_(grad * grad, forget).clone()
    row, column = state["row_var"], state["col_var"]
    row.lerp_(grad.norm(2, -1, keepdim=True).square_().div_(grad.shape[-1]), forget)
    column.lerp_(grad.norm(2, -2, keepdim=True).square_().div_(grad.shape[-2]), forget)
    return (row @ column).div_(row.mean(-2, keepdim=True).clamp_(min=least))


def _least(a: Any, b: Any) -> Any:
    return T.minimum(*_doubles(a, b)) if isinstance(a, Tensor) or isinstance(b, Tensor) else (
        min(a, b))


def _most(a: Any, b: Any) -> Any:
    return T.maximum(*_doubles(a, b)) if isinstance(a, Tensor) or isinstance(b, Tensor) else (
        max(a, b))


def _doubles(*values: Any) -> list[Tensor]:
    return [T.as_tensor(value, dtype=T.float64) for value in values]
