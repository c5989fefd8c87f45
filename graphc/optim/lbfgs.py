"""L-BFGS."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..frontend import functions as T
from ..frontend.context import local
from ..frontend.grad_mode import enable_grad
from ..frontend.plain import arrays_of
from ..frontend.tensor import Tensor, from_array
from ..frontend.values import Eager
from ..ir import ops
from .optimizer import Optimizer, one_element
from .real_parts import real_parts
from .strong_wolfe import strong_wolfe


class LBFGS(Optimizer):
    """Limited-memory BFGS (Liu and Nocedal 1989), optionally with a strong Wolfe line search."""

    def __init__(
        self, params: Any, lr: Any = 1, max_iter: int = 20, max_eval: int | None = None,
        tolerance_grad: float = 1e-7, tolerance_change: float = 1e-9, history_size: int = 100,
        line_search_fn: str | None = None,
    ) -> None:
        one_element(lr)
        if not lr >= 0.0:
            raise ValueError(f"Invalid learning rate: {lr}")
        super().__init__(params, {
            "lr": lr, "max_iter": max_iter,
            "max_eval": max_iter * 5 // 4 if max_eval is None else max_eval,
            "tolerance_grad": tolerance_grad, "tolerance_change": tolerance_change,
            "history_size": history_size, "line_search_fn": line_search_fn,
        })
        if len(self.param_groups) != 1:
            raise ValueError("LBFGS doesn't support per-parameter options (parameter groups)")
        self._params: list[Tensor] = self.param_groups[0]["params"]

    def _flat_grad(self) -> Tensor:
        return T.cat([
            part.reshape(-1)
            for p in self._params
            for part in real_parts(T.zeros_like(p) if p.grad is None else p.grad.to_dense())
        ])

    def _move(self, length: Any, direction: Tensor) -> None:
        place = 0
        for param in real_parts(*self._params):
            count = param.numel()
            param.add_(direction[place : place + count].view_as(param), alpha=length)
            place += count

    def step(self, closure: Any = None) -> Any:
        """Several iterations, each of which calls the closure for the loss and gradients."""
        if closure is None:
            raise TypeError("LBFGS.step() missing 1 required positional argument: 'closure'")
        trace = local.trace
        if trace is None:
            return self._iterate(closure)
        trace.end_segment(
            "LBFGS.step(), which calls the closure as often as the losses say,",
            "leave optimizer.step(closure) outside and compile the model or the closure",
        )
        with trace.suspended():
            return self._iterate(closure)

    def _iterate(self, closure: Any) -> Any:
        group, state = self.param_groups[0], self.state[self._params[0]]
        state.setdefault("func_evals", 0)
        state.setdefault("n_iter", 0)
        with enable_grad():
            first = closure()
        loss, evaluations = float(first), 1
        state["func_evals"] += 1
        grad = self._flat_grad()
        if grad.abs().max() <= group["tolerance_grad"]:
            return first
        for number in range(1, group["max_iter"] + 1):
            state["n_iter"] += 1
            previous = self._next_direction(state, grad, loss)
            used, loss, grad = self._search(closure, state, number, grad, loss, evaluations)
            if used < 0:  # the slope is flat
                break
            evaluations += used
            state["func_evals"] += used
            if self._finished(state, number, evaluations, grad, loss, previous):
                break
        return first

    def _finished(
        self, state: Any, number: int, evaluations: int, grad: Tensor, loss: float,
        previous: float,
    ) -> bool:
        group = self.param_groups[0]
        least = group["tolerance_change"]
        return bool(
            number == group["max_iter"] or evaluations >= group["max_eval"]
            or grad.abs().max() <= group["tolerance_grad"]
            or state["d"].mul(state["t"]).abs().max() <= least
            or abs(loss - previous) < least
        )

    def _next_direction(self, state: Any, grad: Tensor, loss: float) -> float:
        """Put the next direction into the state; the loss, which becomes the previous one."""
        if state["n_iter"] == 1:
            state["d"] = grad.neg()
            state["old_dirs"], state["old_stps"], state["ro"] = [], [], []
            state["H_diag"] = 1
            state["prev_flat_grad"] = grad.clone()
        else:
            _remember(state, grad, self.param_groups[0]["history_size"])
            state["d"] = _two_loops(state, grad, self.param_groups[0]["history_size"])
            state["prev_flat_grad"].copy_(grad)
        state["prev_loss"] = loss
        return loss

    def _search(
        self, closure: Any, state: Any, number: int, grad: Tensor, loss: float, evaluations: int
    ) -> tuple[int, float, Tensor]:
        """Move along the direction: evaluations (-1 for a flat slope), new loss and gradient."""
        group = self.param_groups[0]
        direction, lr = state["d"], _number(group["lr"])
        length = min(1.0, 1.0 / grad.abs().sum()) * lr if state["n_iter"] == 1 else lr
        state["t"] = length
        slope = grad.dot(direction)
        if slope > -group["tolerance_change"]:
            return -1, loss, grad
        if group["line_search_fn"] is None:
            self._move(length, direction)
            if number == group["max_iter"]:
                return 0, loss, grad
            with enable_grad():
                found = closure()
            return 1, float(found), self._flat_grad()
        if group["line_search_fn"] != "strong_wolfe":
            raise RuntimeError("only 'strong_wolfe' is supported")
        origin = [param.clone() for param in self._params]

        def evaluate(t: Any) -> tuple[float, Tensor]:
            self._move(t, direction)
            with enable_grad():
                reached = closure()
            value, found = float(reached), self._flat_grad()
            for param, start in zip(self._params, origin, strict=True):
                param.copy_(start)
            return value, found

        point, used = strong_wolfe(
            evaluate, length, direction, loss, grad, slope, group["max_eval"] - evaluations
        )
        state["t"] = point.t
        self._move(point.t, direction)
        return used, point.loss, point.grad


def _number(rate: Any) -> Any:
    return rate.item() if isinstance(rate, Tensor) else rate


def _remember(state: Any, grad: Tensor, history: int) -> None:
    """Note the last step and change of gradient, if the curvature along them is positive."""
    change, step = grad.sub(state["prev_flat_grad"]), state["d"].mul(state["t"])
    curvature = change.dot(step)
    if not curvature > 1e-10:
        return
    kept = state["old_dirs"], state["old_stps"], state["ro"]
    for entries, new in zip(kept, (change, step, 1.0 / curvature), strict=True):
        if len(entries) == history:
            entries.pop(0)
        entries.append(new)
    state["H_diag"] = curvature / change.dot(change)


def _two_loops(state: Any, grad: Tensor, history: int) -> Tensor:
    """Minus the gradient times the approximate inverse Hessian."""
    changes, steps, inverse = state["old_dirs"], state["old_stps"], state["ro"]
    weights = state.setdefault("al", [None] * history)
    numbers = [each for each in (*inverse, state["H_diag"]) if isinstance(each, Tensor)]
    arrays = arrays_of([grad, *changes, *steps, *numbers])
    if arrays is not None and len(numbers) == len(inverse) + 1:
        found, weights[: len(changes)] = _two_loops_of_arrays(arrays, len(changes))
        return from_array(found)
    result = grad.neg()
    for i in reversed(range(len(changes))):
        weights[i] = steps[i].dot(result) * inverse[i]
        result.add_(changes[i], alpha=-weights[i])
    result = result.mul(state["H_diag"])
    for i, (change, step) in enumerate(zip(changes, steps, strict=True)):
        result.add_(step, alpha=weights[i] - change.dot(result) * inverse[i])
    return result


_DOT = {"batch_a": (), "batch_b": (), "contract_a": (0,), "contract_b": (0,)}


def _two_loops_of_arrays(
    arrays: list[np.ndarray], count: int
) -> tuple[np.ndarray, list[Tensor]]:
    """The same on the gradient, the changes, the steps, what is inverse and the diagonal: the
    result, and the weights."""
    grad, *rest, diagonal = arrays
    changes, steps, inverse = rest[:count], rest[count : 2 * count], rest[2 * count :]
    weights = list[Any]()
    with np.errstate(all="ignore"):
        result = -grad
        for i in reversed(range(count)):
            weights.insert(0, Eager.run(ops.dot_general, [steps[i], result], _DOT) * inverse[i])
            result -= changes[i] * weights[0]
        result *= diagonal
        for i, (change, step) in enumerate(zip(changes, steps, strict=True)):
            slope = Eager.run(ops.dot_general, [change, result], _DOT)
            result += step * (weights[i] - slope * inverse[i])
    return result, [from_array(np.asarray(weight)) for weight in weights]
