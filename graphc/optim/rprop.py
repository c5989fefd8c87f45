"""Rprop."""

from __future__ import annotations

from typing import Any

from ..frontend import functions as T
from ..frontend.tensor import Tensor
from .optimizer import check, no_steps
from .per_parameter import PerParameter
from .real_parts import real_parts


class Rprop(PerParameter):
    """Resilient backpropagation (Riedmiller and Braun 1993): step sizes by the signs alone."""

    def __init__(
        self, params: Any, lr: Any = 1e-2, etas: tuple[float, float] = (0.5, 1.2),
        step_sizes: tuple[float, float] = (1e-6, 50), *, capturable: bool = False,
        foreach: bool | None = None, maximize: bool = False, differentiable: bool = False,
    ) -> None:
        check(lr)
        if not 0.0 < etas[0] < 1.0 < etas[1]:
            raise ValueError(f"Invalid eta values: {etas[0]}, {etas[1]}")
        super().__init__(params, {
            "lr": lr, "etas": etas, "step_sizes": step_sizes, "foreach": foreach,
            "maximize": maximize, "differentiable": differentiable, "capturable": capturable,
        })

    def _graphc_update(self, group: Any, param: Tensor, grad: Tensor) -> None:
        state = self._graphc_new_state(
            param, step=no_steps, prev=T.zeros_like,
            step_size=lambda param: _first_sizes(param, group),
        )
        state["step"].add_(1)
        param, grad, before, sizes = real_parts(
            param, grad, state["prev"], state["step_size"]
        )
        (shrink, grow), (least, most) = group["etas"], group["step_sizes"]
        if group["maximize"]:
            grad = -grad
        same = grad * before
        turned = same < 0
        one = T.ones_like(sizes)
        factor = T.where(same > 0, one * grow, T.where(turned, one * shrink, one))
        sizes.mul_(factor).clamp_(least, most)
        # where the sign turned, this step is left out and the next sees no sign before
        grad = T.where(turned, T.zeros_like(grad), grad)
        param.addcmul_(grad.sign(), sizes, value=-1)
        before.copy_(grad)


def _first_sizes(param: Tensor, group: Any) -> Tensor:
    rate = float(group["lr"])
    return T.full_like(param, complex(rate, rate) if param.is_complex() else rate)
