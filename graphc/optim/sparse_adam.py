"""SparseAdam."""

from __future__ import annotations

from typing import Any

from ..frontend import functions as T
from ..frontend.context import local
from ..frontend.grad_mode import no_grad
from ..frontend.tensor import Tensor
from ..ir.late import late
from .optimizer import Optimizer, check, one_element, run_closure, with_grad

_updates: Any = late("graphc.sparse.updates")


class SparseAdam(Optimizer):
    """Adam for sparse gradients: moments of an element move only when it has one."""

    def __init__(
        self, params: Any, lr: Any = 1e-3, betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8, maximize: bool = False,
    ) -> None:
        one_element(lr)
        one = lr.item() if hasattr(lr, "item") else lr
        if not one > 0.0:
            raise ValueError(f"Invalid learning rate: {lr}")
        if not eps > 0.0:
            raise ValueError(f"Invalid epsilon value: {eps}")
        check(lr, eps, 0.0, betas)
        super().__init__(params, {
            "lr": lr, "betas": tuple(betas), "eps": eps, "maximize": maximize,
        })
        params = [
            ([group, i], param) for group, each in enumerate(self.param_groups)
            for i, param in enumerate(each["params"])
        ]
        sparse = [place for place, param in params if param.is_sparse]
        if sparse:
            raise ValueError(
                f"Sparse params at indices {sparse}: SparseAdam requires dense parameter tensors"
            )
        complexes = [place for place, param in params if param.is_complex()]
        if complexes:
            raise ValueError(
                f"Complex params at indices {complexes}: SparseAdam does not support complex "
                "parameters"
            )

    def step(self, closure: Any = None) -> Any:
        """One update. Raises RuntimeError for a gradient that is dense."""
        loss = run_closure(closure)
        trace = local.trace
        if trace is None:
            self._graphc_updates()
            return loss
        trace.end_segment("the step of SparseAdam", "make it outside of it")
        with trace.suspended():
            self._graphc_updates()
        return loss

    def _graphc_updates(self) -> None:
        for group in self.param_groups:
            given = list(with_grad(group))
            if not all(grad.is_sparse for _, grad in given):
                raise RuntimeError(
                    "SparseAdam does not support dense gradients, please consider Adam instead"
                )
            for param, grad in given:
                with no_grad():
                    self._graphc_update_sparse(group, param, grad)

    def _graphc_update_sparse(self, group: Any, param: Tensor, grad: Tensor) -> None:
        state = self.state[param]
        if not state:
            state["step"] = 0
            state["exp_avg"] = T.zeros_like(param)
            state["exp_avg_sq"] = T.zeros_like(param)
        state["step"] += 1
        rows = _updates.Rows(-grad if group["maximize"] else grad)
        if not rows.values.numel():
            return
        first, second = group["betas"]
        mean, square = rows.of(state["exp_avg"]), rows.of(state["exp_avg_sq"])
        to_mean = (rows.values - mean) * (1 - first)
        to_square = (rows.values**2 - square) * (1 - second)
        rows.add_to(state["exp_avg"], to_mean)
        rows.add_to(state["exp_avg_sq"], to_square)
        spread = (to_square + square).sqrt() + group["eps"]
        corrected = 1 - first ** state["step"], 1 - second ** state["step"]
        size = group["lr"] * corrected[1] ** 0.5 / corrected[0]
        rows.add_to(param, (to_mean + mean) / spread * -size)
