"""LRScheduler, the base class of learning-rate schedules."""

from __future__ import annotations

import warnings
from typing import Any

from ...frontend.context import local
from ...frontend.stepped import stepped
from ...frontend.tensor import Tensor
from ..optimizer import Optimizer


class LRScheduler:
    """Base class: step() sets each group's lr to get_lr()."""

    _get_lr_called_within_step = False
    _is_initial = False  # whether the constructor steps: it sets what is there, also resumed

    def __init__(self, optimizer: Optimizer, last_epoch: int = -1) -> None:
        if not isinstance(optimizer, Optimizer):
            raise TypeError(f"{type(optimizer).__name__} is not an Optimizer")
        self.optimizer = optimizer
        for i, group in enumerate(optimizer.param_groups):
            if last_epoch == -1:
                group.setdefault("initial_lr", copied(group["lr"]))
            elif "initial_lr" not in group:
                raise KeyError(
                    "param 'initial_lr' is not specified in param_groups"
                    f"[{i}] when resuming an optimizer"
                )
        self.base_lrs = [group["initial_lr"] for group in optimizer.param_groups]
        self.last_epoch = last_epoch
        self._initial_step()

    def _initial_step(self) -> None:
        self._step_count = 0
        self._is_initial = True
        self.step()
        self._is_initial = False

    def get_lr(self) -> list[float]:
        """The rates of the groups at last_epoch."""
        raise NotImplementedError

    def get_last_lr(self) -> list[float]:
        """The rates set last."""
        return self._last_lr

    def step(self, epoch: int | None = None) -> None:
        """Go to the next epoch (or to `epoch`, which is deprecated)."""
        if epoch is None and self._graphc_deferred():
            return
        if self._step_count == 1 and self.optimizer not in stepped:
            warnings.warn(
                "Detected call of `lr_scheduler.step()` before `optimizer.step()`. In PyTorch "
                "1.1.0 and later, you should call them in the opposite order: `optimizer.step()` "
                "before `lr_scheduler.step()`. Failure to do this will result in PyTorch skipping "
                "the first value of the learning rate schedule.",
                UserWarning,
                stacklevel=2,
            )
        self._step_count += 1
        if epoch is not None:
            warnings.warn(
                "The epoch parameter in `scheduler.step()` was not necessary and is being "
                "deprecated where possible. Please use `scheduler.step()` to step the scheduler.",
                UserWarning,
                stacklevel=2,
            )
        self._update_lr(epoch)

    def _graphc_deferred(self) -> bool:
        """Under a trace: whether the step will be done at the end of each call."""
        trace = local.trace
        return trace is not None and trace.late.defer(self.step, self)

    def _update_lr(self, epoch: int | None = None) -> None:
        self._get_lr_called_within_step = True
        try:
            if epoch is None:
                self.last_epoch += 1
                values = self.get_lr()
            else:
                self.last_epoch = epoch
                closed = getattr(self, "_get_closed_form_lr", None)
                values = self.get_lr() if closed is None else closed()
        finally:
            self._get_lr_called_within_step = False
        self._graphc_set_rates(values)

    def _graphc_warn_outside_step(self) -> None:
        if not self._get_lr_called_within_step:
            warnings.warn(
                "To get the last learning rate computed by the scheduler, please use "
                "`get_last_lr()`.",
                UserWarning,
                stacklevel=3,
            )

    def _graphc_set_rates(self, values: list[float]) -> None:
        for group, rate in zip(self.optimizer.param_groups, values, strict=True):
            if isinstance(group["lr"], Tensor):
                group["lr"].fill_(rate)
            else:
                group["lr"] = rate
        self._last_lr = self._graphc_current()

    def state_dict(self) -> dict[str, Any]:
        """Everything but the optimizer."""
        return {key: value for key, value in self.__dict__.items() if key != "optimizer"}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take back a state_dict."""
        self.__dict__.update(state_dict)

    def _graphc_scaled(self, factor: float) -> list[float]:
        return [rate * factor for rate in self._graphc_current()]

    def _graphc_current(self) -> list[float]:
        return [copied(group["lr"]) for group in self.optimizer.param_groups]


def for_groups(name: str, optimizer: Optimizer, value: Any) -> list[Any]:
    """One value for each param group, from a list of them or from one for all."""
    count = len(optimizer.param_groups)
    if not isinstance(value, (list, tuple)):
        return [copied(value) for _ in range(count)]
    if len(value) != count:
        raise ValueError(
            f"{name} must have the same length as optimizer.param_groups. {name} has "
            f"{len(value)} values, param_groups has {count}."
        )
    return [copied(item) for item in value]


def copied(rate: Any) -> Any:
    """A rate that later writes to a tensor do not change."""
    return rate.clone() if isinstance(rate, Tensor) else rate
