"""Adagrad."""

from __future__ import annotations

from typing import Any

from ..frontend import functions as T
from ..frontend.tensor import Tensor
from ..ir.late import late
from .adam import fused_steps
from .optimizer import check, no_steps, step_number
from .per_parameter import PerParameter
from .real_parts import real_parts

_updates: Any = late("graphc.sparse.updates")


def _makers(start: float, fused: bool | None) -> dict[str, Any]:
    """What makes a parameter's state: of the first groups at once, of added ones at a step."""
    def total(param: Tensor) -> Tensor:
        return T.full_like(param, complex(start, start) if param.is_complex() else start)

    return {"step": fused_steps if fused else no_steps, "sum": total}


class Adagrad(PerParameter):
    """Adagrad (Duchi et al. 2011)."""

    def __init__(
        self, params: Any, lr: Any = 1e-2, lr_decay: float = 0, weight_decay: float = 0,
        initial_accumulator_value: float = 0, eps: float = 1e-10, foreach: bool | None = None,
        *, maximize: bool = False, differentiable: bool = False, fused: bool | None = None,
    ) -> None:
        check(lr, eps, weight_decay)
        for name, value in (
            ("lr_decay", lr_decay), ("initial_accumulator_value", initial_accumulator_value)
        ):
            if not value >= 0.0:
                raise ValueError(f"Invalid {name} value: {value}")
        super().__init__(params, {
            "lr": lr, "lr_decay": lr_decay, "eps": eps, "weight_decay": weight_decay,
            "initial_accumulator_value": initial_accumulator_value, "foreach": foreach,
            "maximize": maximize, "differentiable": differentiable, "fused": fused,
        })
        for group in self.param_groups:
            for param in group["params"]:
                makers = _makers(initial_accumulator_value, group["fused"])
                self.state[param] = {name: make(param) for name, make in makers.items()}

    def _graphc_state(self, group: Any, param: Tensor) -> Any:
        makers = _makers(group["initial_accumulator_value"], group["fused"])
        return self._graphc_new_state(param, **makers)

    def _graphc_update(self, group: Any, param: Tensor, grad: Tensor) -> None:
        state = self._graphc_state(group, param)
        state["step"].add_(1)
        if group["maximize"]:
            grad = -grad
        if group["weight_decay"] != 0:
            grad = grad.add(param, alpha=group["weight_decay"])
        rate = group["lr"] / (1 + (step_number(state["step"]) - 1) * group["lr_decay"])
        param, grad, total = real_parts(param, grad, state["sum"])
        total.addcmul_(grad, grad, value=1)
        param.addcdiv_(grad, total.sqrt().add(group["eps"]), value=-rate)

    def _graphc_update_sparse(self, group: Any, param: Tensor, grad: Tensor) -> None:
        if group["weight_decay"] != 0:
            raise RuntimeError(
                "weight_decay option is not compatible with sparse gradients"
            )
        state = self._graphc_state(group, param)
        state["step"].add_(1)
        rate = group["lr"] / (1 + (step_number(state["step"]) - 1) * group["lr_decay"])
        rows = _updates.Rows(-grad if group["maximize"] else grad)
        rows.add_to(state["sum"], rows.values**2)
        spread = rows.of(state["sum"]).sqrt() + group["eps"]
        rows.add_to(param, rows.values / spread * -rate)
