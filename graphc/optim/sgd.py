"""Stochastic gradient descent."""

from __future__ import annotations

from typing import Any

from ..frontend import functions as T
from ..frontend.context import local
from ..frontend.tensor import Tensor
from ..frontend.watched import WatchedDefault
from ..ir.late import late
from .optimizer import one_element, required
from .per_parameter import PerParameter

_updates: Any = late("graphc.sparse.updates")


class SGD(PerParameter):
    """SGD with momentum, dampening, Nesterov's form and weight decay (torch.optim.SGD)."""

    def __init__(
        self, params: Any, lr: Any = 1e-3, momentum: float = 0, dampening: float = 0,
        weight_decay: float = 0, nesterov: bool = False, *, maximize: bool = False,
        foreach: bool | None = None, differentiable: bool = False, fused: bool | None = None,
    ) -> None:
        one_element(lr)
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
        # of parameters whose buffer a trace made: whether the first step, undamped, is over
        self._graphc_begun = WatchedDefault()

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self.__dict__.setdefault("_graphc_begun", WatchedDefault())

    def _graphc_update(self, group: Any, param: Tensor, grad: Tensor) -> None:
        if group["maximize"]:
            grad = -grad
        if group["weight_decay"] != 0:
            grad = grad.add(param, alpha=group["weight_decay"])
        if group["momentum"] != 0:
            momentum, state = group["momentum"], self._graphc_new_state(param)
            buffer, kept = state.get("momentum_buffer"), 1
            if group["dampening"] != 0:
                kept = self._graphc_undamped(group, param, buffer is None)
            if buffer is None and local.trace is not None:
                # 0 * momentum + grad is the first step's value; the buffer is made for real
                state = self._graphc_new_state(param, momentum_buffer=T.zeros_like)
                buffer = state["momentum_buffer"]
            if buffer is None:
                buffer = grad.clone().detach()
                state["momentum_buffer"] = buffer
            else:
                buffer.mul_(momentum).add_(grad, alpha=kept)
            grad = grad.add(buffer, alpha=momentum) if group["nesterov"] else buffer
        param.add_(grad, alpha=-group["lr"])

    def _graphc_update_sparse(self, group: Any, param: Tensor, grad: Tensor) -> None:
        if group["maximize"]:
            grad = -grad
        if group["weight_decay"] != 0:  # torch's error: a sum of sparse and dense
            grad = grad.add(param, alpha=group["weight_decay"])
        if group["momentum"] != 0:
            state = self.state[param]
            buffer = state.get("momentum_buffer")
            if buffer is None:
                buffer = state["momentum_buffer"] = grad.clone().detach()
            else:
                buffer.mul_(group["momentum"]).add_(grad, alpha=1 - group["dampening"])
            grad = grad.add(buffer, alpha=group["momentum"]) if group["nesterov"] else buffer
        rows = _updates.Rows(grad)
        rows.add_to(param, rows.values * -group["lr"])

    def _graphc_undamped(self, group: Any, param: Tensor, first: bool) -> Any:
        """The share of the gradient that enters the buffer; all of it in the first step."""
        share = 1 - group["dampening"]
        if local.trace is None or not (first or self._graphc_has_state(param, "_graphc_begun")):
            return share
        if first:  # whatever is known is of a buffer that is gone
            self._graphc_forget_state(param, "_graphc_begun")
        flags = self._graphc_new_state(
            param, "_graphc_begun", begun=lambda param: T.zeros((), dtype=param.dtype)
        )
        whole = T.ones_like(flags["begun"])
        result = T.where(flags["begun"] > 0, whole * share, whole)
        flags["begun"].fill_(1)
        return result
