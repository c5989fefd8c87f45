"""Averaged models (stochastic weight averaging, exponential moving averages) and SWALR."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable
from copy import deepcopy
from typing import Any

from ..frontend import functions as T
from ..frontend.grad_mode import no_grad
from ..frontend.kept_where import exported
from ..frontend.tensor import Tensor
from ..nn.modules.batchnorm import _BatchNorm
from ..nn.modules.module import Module
from .lr_scheduler.base import LRScheduler, for_groups
from .optimizer import Optimizer

__all__ = [
    "SWALR", "AveragedModel", "get_ema_avg_fn", "get_ema_multi_avg_fn", "get_swa_avg_fn",
    "get_swa_multi_avg_fn", "update_bn",
]


def _check_decay(decay: float) -> None:
    if not 0.0 <= decay <= 1.0:
        raise ValueError(
            f"Invalid decay value {decay} provided. Please provide a value in [0,1] range."
        )


def get_ema_multi_avg_fn(decay: float = 0.999) -> Callable[..., None]:
    """A function that moves lists of averages towards the current parameters, in place."""
    _check_decay(decay)

    @no_grad()
    def ema_update(averaged: Any, current: Any, _: Any) -> None:
        for mean, param in zip(averaged, current, strict=True):
            if mean.is_floating_point():
                mean.lerp_(param, 1 - decay)
            else:
                mean.copy_(mean * decay + param * (1 - decay))

    return ema_update


def get_swa_multi_avg_fn() -> Callable[..., None]:
    """A function that adds the current parameters to lists of equal averages, in place."""

    @no_grad()
    def swa_update(averaged: Any, current: Any, num_averaged: Any) -> None:
        for mean, param in zip(averaged, current, strict=True):
            if mean.is_floating_point():
                mean.lerp_(param, (1 / (num_averaged + 1)).to(mean.dtype))
            else:
                mean.copy_(mean + (param - mean) // (num_averaged + 1))

    return swa_update


def get_ema_avg_fn(decay: float = 0.999) -> Callable[..., Any]:
    """decay * average + (1 - decay) * parameter."""
    _check_decay(decay)

    @no_grad()
    def ema_update(ema_param: Any, current_param: Any, num_averaged: Any) -> Any:
        return decay * ema_param + (1 - decay) * current_param

    return ema_update


def get_swa_avg_fn() -> Callable[..., Any]:
    """The average with one more parameter in it."""

    @no_grad()
    def swa_update(averaged_param: Any, current_param: Any, num_averaged: Any) -> Any:
        return averaged_param + (current_param - averaged_param) / (num_averaged + 1)

    return swa_update


class AveragedModel(Module):
    """A copy of a model that holds running averages of its parameters (Izmailov et al. 2018)."""

    n_averaged: Tensor

    def __init__(
        self, model: Module, device: Any = None, avg_fn: Any = None, multi_avg_fn: Any = None,
        use_buffers: bool = False,
    ) -> None:
        super().__init__()
        if avg_fn is not None and multi_avg_fn is not None:
            raise AssertionError("Only one of avg_fn and multi_avg_fn should be provided")
        self.module = deepcopy(model)
        if device is not None:
            self.module = self.module.to(device)
        self.register_buffer("n_averaged", T.tensor(0, dtype=T.int64, device=device))
        self.avg_fn, self.multi_avg_fn, self.use_buffers = avg_fn, multi_avg_fn, use_buffers

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.module(*args, **kwargs)

    def update_parameters(self, model: Module) -> None:
        """Take the model's present parameters into the averages; the first time, copy them."""
        mine: Iterable[Tensor] = self.parameters()
        theirs: Iterable[Tensor] = model.parameters()
        if self.use_buffers:
            mine = itertools.chain(self.module.parameters(), self.module.buffers())
            theirs = itertools.chain(model.parameters(), model.buffers())
        pairs = [(a.detach(), b.detach()) for a, b in zip(mine, theirs, strict=False)]
        first = self.n_averaged == 0
        if exported() is not None:  # a file's step cannot ask which call is the first
            self._graphc_average(pairs)
            for mean, param in pairs:
                mean.copy_(T.where(first, param.to(mean.dtype), mean))
        elif first:
            for mean, param in pairs:
                mean.copy_(param)
        else:
            self._graphc_average(pairs)
        if not self.use_buffers:
            for ours, buffer in zip(self.module.buffers(), model.buffers(), strict=True):
                ours.detach().copy_(buffer.detach())
        self.n_averaged.add_(1)

    def _graphc_average(self, pairs: list[tuple[Tensor, Tensor]]) -> None:
        if self.avg_fn is None:
            update = self.multi_avg_fn or get_swa_multi_avg_fn()
            update([a for a, _ in pairs], [b for _, b in pairs], self.n_averaged)
            return
        for mean, param in pairs:
            mean.copy_(self.avg_fn(mean, param, self.n_averaged))


@no_grad()
def update_bn(loader: Iterable[Any], model: Module, device: Any = None) -> None:
    """Compute the running statistics of batch norm layers afresh, in one pass over the data."""
    momenta: dict[Any, Any] = {}
    for module in model.modules():
        if isinstance(module, _BatchNorm):
            module.reset_running_stats()
            momenta[module] = module.momentum
    if not momenta:
        return
    was_training = model.training
    model.train()
    for module in momenta:
        module.momentum = None
    for input in loader:
        batch = input[0] if isinstance(input, (list, tuple)) else input
        model(batch if device is None else batch.to(device))
    for module, momentum in momenta.items():
        module.momentum = momentum
    model.train(was_training)


class SWALR(LRScheduler):
    """Anneal the rate of each group to a fixed one."""

    def __init__(
        self, optimizer: Optimizer, swa_lr: Any, anneal_epochs: int = 10,
        anneal_strategy: str = "cos", last_epoch: int = -1,
    ) -> None:
        for rate, group in zip(
            for_groups("swa_lr", optimizer, swa_lr), optimizer.param_groups, strict=True
        ):
            group["swa_lr"] = rate
        if anneal_strategy not in ("cos", "linear"):
            raise ValueError(
                "anneal_strategy must be one of 'cos' or 'linear', instead got "
                f"{anneal_strategy}"
            )
        self._anneal_strategy = anneal_strategy
        if not isinstance(anneal_epochs, int) or anneal_epochs < 0:
            raise ValueError(
                f"anneal_epochs must be equal or greater than 0, got {anneal_epochs}"
            )
        self.anneal_epochs = anneal_epochs
        super().__init__(optimizer, last_epoch)

    def _share(self, step: float) -> float:
        t = max(0.0, min(1.0, step / max(1, self.anneal_epochs)))
        return t if self._anneal_strategy == "linear" else (1 - math.cos(math.pi * t)) / 2

    def get_lr(self) -> list[float]:
        self._graphc_warn_outside_step()
        step = self._step_count - 1
        if self.anneal_epochs == 0:
            step = max(1, step)
        before, now = self._share(step - 1), self._share(step)
        rates = []
        for group in self.optimizer.param_groups:
            end = group["swa_lr"]
            start = end if before == 1 else (group["lr"] - before * end) / (1 - before)
            rates.append(end * now + start * (1 - now))
        return rates
