"""Learning-rate schedules (torch.optim.lr_scheduler), by torch's recursions."""

from __future__ import annotations

import math
import warnings
from bisect import bisect_right
from collections import Counter
from types import FunctionType
from typing import Any

from ..frontend.tensor import Tensor
from .optimizer import Optimizer, stepped


class LRScheduler:
    """Base class: step() sets each group's lr to get_lr()."""

    def __init__(self, optimizer: Optimizer, last_epoch: int = -1) -> None:
        if not isinstance(optimizer, Optimizer):
            raise TypeError(f"{type(optimizer).__name__} is not an Optimizer")
        self.optimizer = optimizer
        for i, group in enumerate(optimizer.param_groups):
            if last_epoch == -1:
                group.setdefault("initial_lr", _copied(group["lr"]))
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
        self.step()

    def get_lr(self) -> list[float]:
        """The rates of the groups at last_epoch."""
        raise NotImplementedError

    def get_last_lr(self) -> list[float]:
        """The rates set last."""
        return self._last_lr

    def step(self, epoch: int | None = None) -> None:
        """Go to the next epoch (or to `epoch`, which is deprecated)."""
        if self._step_count == 1 and self.optimizer not in stepped:
            warnings.warn(
                "Detected call of `lr_scheduler.step()` before `optimizer.step()`. In PyTorch 1.1.0 "
                "and later, you should call them in the opposite order: `optimizer.step()` before "
                "`lr_scheduler.step()`. Failure to do this will result in PyTorch skipping the "
                "first value of the learning rate schedule.",
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

    def _update_lr(self, epoch: int | None = None) -> None:
        if epoch is None:
            self.last_epoch += 1
            values = self.get_lr()
        else:
            self.last_epoch = epoch
            closed = getattr(self, "_get_closed_form_lr", None)
            values = self.get_lr() if closed is None else closed()
        self._set_rates(values)

    def _set_rates(self, values: list[float]) -> None:
        for group, rate in zip(self.optimizer.param_groups, values, strict=True):
            if isinstance(group["lr"], Tensor):
                group["lr"].fill_(rate)
            else:
                group["lr"] = rate
        self._last_lr = self._current()

    def state_dict(self) -> dict[str, Any]:
        """Everything but the optimizer."""
        return {key: value for key, value in self.__dict__.items() if key != "optimizer"}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take back a state_dict."""
        self.__dict__.update(state_dict)

    def _scaled(self, factor: float) -> list[float]:
        return [rate * factor for rate in self._current()]

    def _current(self) -> list[float]:
        return [_copied(group["lr"]) for group in self.optimizer.param_groups]


def _copied(rate: Any) -> Any:
    """A rate that later writes to a tensor do not change."""
    return rate.clone() if isinstance(rate, Tensor) else rate


_LRScheduler = LRScheduler


class LambdaLR(LRScheduler):
    """initial lr times lr_lambda(epoch)."""

    def __init__(self, optimizer: Optimizer, lr_lambda: Any, last_epoch: int = -1) -> None:
        count = len(optimizer.param_groups)
        self.lr_lambdas = list(lr_lambda) if isinstance(lr_lambda, (list, tuple)) else (
            [lr_lambda] * count
        )
        if len(self.lr_lambdas) != count:
            raise ValueError(f"Expected {count} lr_lambdas, but got {len(self.lr_lambdas)}")
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[float]:
        return [
            base * scale(self.last_epoch)
            for base, scale in zip(self.base_lrs, self.lr_lambdas, strict=True)
        ]

    def state_dict(self) -> dict[str, Any]:
        """Everything but the optimizer; of lr_lambdas, the attributes of callable objects."""
        state = super().state_dict()
        state["lr_lambdas"] = [
            None if isinstance(scale, FunctionType) else dict(scale.__dict__)
            for scale in self.lr_lambdas
        ]
        return state

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take back a state_dict."""
        self.__dict__.update({k: v for k, v in state_dict.items() if k != "lr_lambdas"})
        for scale, state in zip(self.lr_lambdas, state_dict["lr_lambdas"], strict=True):
            if state is not None:
                scale.__dict__.update(state)


class MultiplicativeLR(LambdaLR):
    """lr times lr_lambda(epoch) at each step."""

    def __init__(
        self, optimizer: Optimizer, lr_lambda: Any, last_epoch: int = -1
    ) -> None:
        super().__init__(optimizer, lr_lambda, last_epoch)

    def get_lr(self) -> list[float]:
        if self.last_epoch == 0:
            return self._current()
        return [
            rate * scale(self.last_epoch)
            for rate, scale in zip(self._current(), self.lr_lambdas, strict=True)
        ]


class StepLR(LRScheduler):
    """lr times gamma every step_size epochs."""

    def __init__(
        self, optimizer: Optimizer, step_size: int, gamma: float = 0.1, last_epoch: int = -1
    ) -> None:
        self.step_size, self.gamma = step_size, gamma
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[float]:
        if self.last_epoch == 0 or self.last_epoch % self.step_size != 0:
            return self._current()
        return self._scaled(self.gamma)

    def _get_closed_form_lr(self) -> list[float]:
        return [b * self.gamma ** (self.last_epoch // self.step_size) for b in self.base_lrs]


class MultiStepLR(LRScheduler):
    """lr times gamma at each milestone."""

    def __init__(
        self, optimizer: Optimizer, milestones: Any, gamma: float = 0.1, last_epoch: int = -1
    ) -> None:
        self.milestones, self.gamma = Counter(milestones), gamma
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[float]:
        if self.last_epoch not in self.milestones:
            return self._current()
        return self._scaled(self.gamma ** self.milestones[self.last_epoch])

    def _get_closed_form_lr(self) -> list[float]:
        passed = bisect_right(sorted(self.milestones.elements()), self.last_epoch)
        return [base * self.gamma**passed for base in self.base_lrs]


class ConstantLR(LRScheduler):
    """lr times factor until total_iters."""

    def __init__(
        self, optimizer: Optimizer, factor: float = 1.0 / 3, total_iters: int = 5,
        last_epoch: int = -1,
    ) -> None:
        if not 0 <= factor <= 1:
            raise ValueError("Constant multiplicative factor expected to be between 0 and 1.")
        self.factor, self.total_iters = factor, total_iters
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[float]:
        if self.last_epoch == 0:
            return self._scaled(self.factor)
        if self.last_epoch != self.total_iters:
            return self._current()
        return self._scaled(1.0 / self.factor)


class LinearLR(LRScheduler):
    """A factor that goes linearly from start_factor to end_factor."""

    def __init__(
        self, optimizer: Optimizer, start_factor: float = 1.0 / 3, end_factor: float = 1.0,
        total_iters: int = 5, last_epoch: int = -1,
    ) -> None:
        if not 0 < start_factor <= 1:
            raise ValueError(
                "Starting multiplicative factor expected to be greater than 0 and less or equal "
                "to 1."
            )
        if not 0 <= end_factor <= 1:
            raise ValueError("Ending multiplicative factor expected to be between 0 and 1.")
        self.start_factor, self.end_factor = start_factor, end_factor
        self.total_iters = total_iters
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[float]:
        if self.last_epoch == 0:
            return self._scaled(self.start_factor)
        if self.last_epoch > self.total_iters:
            return self._current()
        span = self.end_factor - self.start_factor
        return self._scaled(
            1.0 + span / (self.total_iters * self.start_factor + (self.last_epoch - 1) * span)
        )


class ExponentialLR(LRScheduler):
    """lr times gamma every epoch."""

    def __init__(self, optimizer: Optimizer, gamma: float, last_epoch: int = -1) -> None:
        self.gamma = gamma
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[float]:
        return self._current() if self.last_epoch == 0 else self._scaled(self.gamma)

    def _get_closed_form_lr(self) -> list[float]:
        return [base * self.gamma**self.last_epoch for base in self.base_lrs]


class PolynomialLR(LRScheduler):
    """lr decays to 0 by a power in total_iters epochs."""

    def __init__(
        self, optimizer: Optimizer, total_iters: int = 5, power: float = 1.0,
        last_epoch: int = -1,
    ) -> None:
        self.total_iters, self.power = total_iters, power
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[float]:
        if self.last_epoch == 0 or self.last_epoch > self.total_iters:
            return self._current()
        now = 1.0 - self.last_epoch / self.total_iters
        before = 1.0 - (self.last_epoch - 1) / self.total_iters
        return self._scaled((now / before) ** self.power)


class CosineAnnealingLR(LRScheduler):
    """Half a cosine from lr to eta_min in T_max epochs (Loshchilov and Hutter 2016)."""

    def __init__(
        self, optimizer: Optimizer, T_max: int, eta_min: float = 0.0, last_epoch: int = -1
    ) -> None:
        self.T_max, self.eta_min = T_max, eta_min
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[float]:
        if self.last_epoch == 0:
            return self._current()
        if (self.last_epoch - 1 - self.T_max) % (2 * self.T_max) == 0:
            return [
                rate + (base - self.eta_min) * (1 - math.cos(math.pi / self.T_max)) / 2
                for base, rate in zip(self.base_lrs, self._current(), strict=True)
            ]
        now = 1 + math.cos(math.pi * self.last_epoch / self.T_max)
        before = 1 + math.cos(math.pi * (self.last_epoch - 1) / self.T_max)
        return [
            now / before * (rate - self.eta_min) + self.eta_min for rate in self._current()
        ]

    def _get_closed_form_lr(self) -> list[float]:
        wave = (1 + math.cos(math.pi * self.last_epoch / self.T_max)) / 2
        return [self.eta_min + (base - self.eta_min) * wave for base in self.base_lrs]


class CosineAnnealingWarmRestarts(LRScheduler):
    """Cosine annealing that restarts after T_0, T_0 T_mult, ... epochs."""

    def __init__(
        self, optimizer: Optimizer, T_0: int, T_mult: int = 1, eta_min: float = 0.0,
        last_epoch: int = -1,
    ) -> None:
        if T_0 <= 0:
            raise ValueError(f"Expected positive integer T_0, but got {T_0}")
        self.T_0, self.T_i, self.T_mult, self.eta_min = T_0, T_0, T_mult, eta_min
        self.T_cur: float = last_epoch
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[float]:
        wave = (1 + math.cos(math.pi * self.T_cur / self.T_i)) / 2
        return [self.eta_min + (base - self.eta_min) * wave for base in self.base_lrs]

    def step(self, epoch: Any = None) -> None:
        """Go to the next epoch (or to `epoch`, which may be a fraction)."""
        if epoch is None and self.last_epoch < 0:
            epoch = 0
        if epoch is None:
            epoch = self.last_epoch + 1
            self.T_cur += 1
            if self.T_cur >= self.T_i:
                self.T_cur -= self.T_i
                self.T_i *= self.T_mult
        elif epoch >= self.T_0:
            if self.T_mult == 1:
                self.T_cur = epoch % self.T_0
            else:
                n = int(math.log(epoch / self.T_0 * (self.T_mult - 1) + 1, self.T_mult))
                self.T_cur = epoch - self.T_0 * (self.T_mult**n - 1) / (self.T_mult - 1)
                self.T_i = self.T_0 * self.T_mult**n
        else:
            self.T_i, self.T_cur = self.T_0, epoch
        self.last_epoch = math.floor(epoch)
        self._set_rates(self.get_lr())


class OneCycleLR(LRScheduler):
    """Up to max_lr and down again in total_steps steps (Smith and Topin 2017)."""

    def __init__(
        self, optimizer: Optimizer, max_lr: Any, total_steps: int | None = None,
        epochs: int | None = None, steps_per_epoch: int | None = None, pct_start: float = 0.3,
        anneal_strategy: str = "cos", cycle_momentum: bool = True, base_momentum: float = 0.85,
        max_momentum: float = 0.95, div_factor: float = 25.0, final_div_factor: float = 1e4,
        three_phase: bool = False, last_epoch: int = -1,
    ) -> None:
        if total_steps is None:
            if epochs is None or steps_per_epoch is None:
                raise ValueError(
                    "You must define either total_steps OR (epochs AND steps_per_epoch)"
                )
            total_steps = epochs * steps_per_epoch
        self.total_steps, self.anneal_strategy = total_steps, anneal_strategy
        peak, end = float(pct_start * total_steps) - 1, float(total_steps - 1)
        self._phases = [(peak, "initial_lr", "max_lr", "max_momentum", "base_momentum")]
        if three_phase:
            self._phases.append(
                (2 * peak, "max_lr", "initial_lr", "base_momentum", "max_momentum")
            )
            self._phases.append((end, "initial_lr", "min_lr", "max_momentum", "max_momentum"))
        else:
            self._phases.append((end, "max_lr", "min_lr", "base_momentum", "max_momentum"))
        tops = max_lr if isinstance(max_lr, (list, tuple)) else (
            [max_lr] * len(optimizer.param_groups)
        )
        self.cycle_momentum = cycle_momentum
        for group, top in zip(optimizer.param_groups, tops, strict=True):
            if last_epoch == -1:
                group["initial_lr"] = top / div_factor
                group["max_lr"] = top
                group["min_lr"] = group["initial_lr"] / final_div_factor
                if cycle_momentum:
                    group["max_momentum"], group["base_momentum"] = max_momentum, base_momentum
                    self._set_momentum(group, max_momentum)
        super().__init__(optimizer, last_epoch)

    def _set_momentum(self, group: Any, value: float) -> None:
        if "betas" in group:
            group["betas"] = (value, *group["betas"][1:])
        elif "momentum" in group:
            group["momentum"] = value
        else:
            raise ValueError(
                "optimizer must support momentum or beta1 with `cycle_momentum` option enabled"
            )

    def _anneal(self, start: float, end: float, share: float) -> float:
        if self.anneal_strategy == "cos":
            return end + (start - end) / 2.0 * (math.cos(math.pi * share) + 1)
        return (end - start) * share + start

    def get_lr(self) -> list[float]:
        step = self.last_epoch
        if step > self.total_steps:
            raise ValueError(
                f"Tried to step {step} times. The specified number of total steps is "
                f"{self.total_steps}"
            )
        rates = []
        for group in self.optimizer.param_groups:
            start = 0.0
            for i, (end, lr0, lr1, m0, m1) in enumerate(self._phases):
                if step <= end or i == len(self._phases) - 1:
                    share = (step - start) / (end - start)
                    rates.append(self._anneal(group[lr0], group[lr1], share))
                    if self.cycle_momentum:
                        self._set_momentum(group, self._anneal(group[m0], group[m1], share))
                    break
                start = end
        return rates


class SequentialLR(LRScheduler):
    """Schedulers one after another, changing at milestones."""

    def __init__(
        self, optimizer: Optimizer, schedulers: list[LRScheduler], milestones: list[int],
        last_epoch: int = -1,
    ) -> None:
        if not schedulers:
            raise ValueError("SequentialLR expects at least one scheduler, but got no scheduler.")
        for i, scheduler in enumerate(schedulers):
            if isinstance(scheduler, ReduceLROnPlateau):
                raise ValueError(
                    "SequentialLR does not support `ReduceLROnPlateau` scheduler as it requires "
                    f"a metric when calling `step`, but got one at index {i}"
                )
            if scheduler.optimizer is not optimizer:
                raise ValueError(
                    "SequentialLR expects all schedulers to belong to the same optimizer, but "
                    f"that of {type(scheduler).__name__} at index {i} is another"
                )
        if len(milestones) != len(schedulers) - 1:
            raise ValueError(
                "Sequential Schedulers expects number of schedulers provided to be one more than "
                f"the number of milestone points, but got number of schedulers {len(schedulers)} "
                f"and the number of milestones to be equal to {len(milestones)}"
            )
        self.optimizer, self._schedulers, self._milestones = optimizer, schedulers, milestones
        self.last_epoch = last_epoch + 1
        for group in optimizer.param_groups:
            group["lr"] = group["initial_lr"]
        _undo(self)
        first = schedulers[bisect_right(milestones, 0)]
        first._initial_step()
        self._last_lr = first.get_last_lr()

    def step(self, epoch: int | None = None) -> None:
        """Step the scheduler whose turn it is."""
        self.last_epoch += 1
        index = bisect_right(self._milestones, self.last_epoch)
        scheduler = self._schedulers[index]
        if index > 0 and self._milestones[index - 1] == self.last_epoch:
            scheduler._update_lr(0)
        else:
            scheduler.step()
        self._last_lr = scheduler.get_last_lr()

    def state_dict(self) -> dict[str, Any]:
        """Everything but the optimizer, with the schedulers' own states."""
        state = super().state_dict()
        state["_schedulers"] = [scheduler.state_dict() for scheduler in self._schedulers]
        return state

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take back a state_dict."""
        self.__dict__.update({k: v for k, v in state_dict.items() if k != "_schedulers"})
        for scheduler, state in zip(self._schedulers, state_dict["_schedulers"], strict=True):
            scheduler.load_state_dict(state)


def _undo(scheduler: LRScheduler) -> None:
    """Take back the first step of schedulers inside a scheduler."""
    inner = getattr(scheduler, "_schedulers", None)
    if inner is None:
        scheduler.last_epoch -= 1
    for each in inner or ():
        _undo(each)


class ReduceLROnPlateau(LRScheduler):
    """lr times factor when a metric has stopped improving for `patience` epochs."""

    def __init__(
        self, optimizer: Optimizer, mode: str = "min", factor: float = 0.1, patience: int = 10,
        threshold: float = 1e-4, threshold_mode: str = "rel", cooldown: int = 0,
        min_lr: Any = 0, eps: float = 1e-8,
    ) -> None:
        if factor >= 1.0:
            raise ValueError("Factor should be < 1.0.")
        if mode not in ("min", "max"):
            raise ValueError(f"mode {mode} is unknown!")
        if threshold_mode not in ("rel", "abs"):
            raise ValueError(f"threshold mode {threshold_mode} is unknown!")
        self.optimizer, self.mode, self.factor, self.patience = optimizer, mode, factor, patience
        self.threshold, self.threshold_mode = threshold, threshold_mode
        self.cooldown, self.eps, self.last_epoch = cooldown, eps, 0
        count = len(optimizer.param_groups)
        self.min_lrs = list(min_lr) if isinstance(min_lr, (list, tuple)) else [min_lr] * count
        self.best = math.inf if mode == "min" else -math.inf
        self.cooldown_counter = self.num_bad_epochs = 0
        self._last_lr = self._current()

    def _better(self, value: float) -> bool:
        sign = 1.0 if self.mode == "min" else -1.0
        if self.threshold_mode == "rel":
            return sign * value < sign * self.best * (1.0 - sign * self.threshold)
        return sign * value < sign * self.best - self.threshold

    @property
    def in_cooldown(self) -> bool:
        """Whether bad epochs do not count yet."""
        return self.cooldown_counter > 0

    def step(self, metrics: Any, epoch: int | None = None) -> None:  # type: ignore[override]
        """Note the metric of one epoch."""
        value = float(metrics)
        self.last_epoch += 1
        if self._better(value):
            self.best, self.num_bad_epochs = value, 0
        else:
            self.num_bad_epochs += 1
        if self.cooldown_counter > 0:
            self.cooldown_counter -= 1
            self.num_bad_epochs = 0
        if self.num_bad_epochs > self.patience:
            for group, least in zip(self.optimizer.param_groups, self.min_lrs, strict=True):
                rate = max(group["lr"] * self.factor, least)
                if group["lr"] - rate > self.eps:
                    group["lr"] = rate
            self.cooldown_counter, self.num_bad_epochs = self.cooldown, 0
        self._last_lr = self._current()
