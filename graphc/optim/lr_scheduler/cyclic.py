"""Rates that go up and down in triangles."""

from __future__ import annotations

import math
from types import FunctionType
from typing import Any

from ...frontend.context import callout
from ..optimizer import Optimizer
from .base import LRScheduler, for_groups


class CyclicLR(LRScheduler):
    """Between base_lr and max_lr and back, every batch (Smith 2015)."""

    def __init__(
        self, optimizer: Optimizer, base_lr: Any, max_lr: Any, step_size_up: int = 2000,
        step_size_down: int | None = None, mode: str = "triangular", gamma: float = 1.0,
        scale_fn: Any = None, scale_mode: str = "cycle", cycle_momentum: bool = True,
        base_momentum: float = 0.8, max_momentum: float = 0.9, last_epoch: int = -1,
    ) -> None:
        if not isinstance(optimizer, Optimizer):
            raise TypeError(f"{type(optimizer).__name__} is not an Optimizer")
        self.optimizer = optimizer
        base_lrs = for_groups("base_lr", optimizer, base_lr)
        if last_epoch == -1:
            self._graphc_set_rates(base_lrs)
        self.max_lrs = for_groups("max_lr", optimizer, max_lr)
        down = step_size_up if step_size_down is None else step_size_down
        self.total_size = float(step_size_up) + float(down)
        self.step_ratio = float(step_size_up) / self.total_size
        if mode not in ("triangular", "triangular2", "exp_range") and scale_fn is None:
            raise ValueError("mode is invalid and scale_fn is None")
        self.mode, self.gamma, self._scale_fn_custom = mode, gamma, scale_fn
        if scale_fn is None:
            scale_mode = "iterations" if mode == "exp_range" else "cycle"
        self.scale_mode, self.cycle_momentum = scale_mode, cycle_momentum
        if cycle_momentum:
            self._start_momentum(base_momentum, max_momentum, last_epoch == -1)
        super().__init__(optimizer, last_epoch)
        self.base_lrs = base_lrs

    def _start_momentum(self, base: Any, top: Any, fresh: bool) -> None:
        defaults = self.optimizer.defaults
        if "momentum" not in defaults and "betas" not in defaults:
            raise ValueError(
                "optimizer must support momentum or beta1 with `cycle_momentum` option enabled"
            )
        self.use_beta1 = "betas" in defaults
        self.base_momentums = for_groups("base_momentum", self.optimizer, base)
        self.max_momentums = for_groups("max_momentum", self.optimizer, top)
        if not fresh:
            return
        for low, high, group in zip(
            self.base_momentums, self.max_momentums, self.optimizer.param_groups, strict=True
        ):
            self._set_momentum(group, high)
            group["max_momentum"], group["base_momentum"] = high, low

    def _set_momentum(self, group: Any, value: float) -> None:
        if self.use_beta1:
            group["betas"] = (value, *group["betas"][1:])
        else:
            group["momentum"] = value

    def scale_fn(self, x: Any) -> float:
        """The height of the triangle of a cycle (or of an iteration)."""
        if self._scale_fn_custom is not None:
            return float(callout(self._scale_fn_custom)(x))
        if self.mode == "triangular":
            return 1.0
        return 1 / 2.0 ** (x - 1) if self.mode == "triangular2" else float(self.gamma**x)

    def get_lr(self) -> list[float]:
        self._graphc_warn_outside_step()
        cycle = math.floor(1 + self.last_epoch / self.total_size)
        x = 1.0 + self.last_epoch / self.total_size - cycle
        rising = x <= self.step_ratio
        share = x / self.step_ratio if rising else (x - 1) / (self.step_ratio - 1)
        scale = self.scale_fn(cycle if self.scale_mode == "cycle" else self.last_epoch)
        if self.cycle_momentum:
            for low, high, group in zip(
                self.base_momentums, self.max_momentums, self.optimizer.param_groups, strict=True
            ):
                self._set_momentum(group, high - (high - low) * share * scale)
        return [
            low + (high - low) * share * scale
            for low, high in zip(self.base_lrs, self.max_lrs, strict=True)
        ]

    def state_dict(self) -> dict[str, Any]:
        """Everything but the optimizer; of scale_fn, the attributes of a callable object."""
        state = super().state_dict()
        custom = state.pop("_scale_fn_custom")
        kept = None if custom is None or isinstance(custom, FunctionType) else (
            dict(custom.__dict__)
        )
        return state | {"_scale_fn_custom": kept}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take back a state_dict."""
        kept = state_dict.get("_scale_fn_custom")
        super().load_state_dict(
            {key: value for key, value in state_dict.items() if key != "_scale_fn_custom"}
        )
        if kept is not None:
            self._scale_fn_custom.__dict__.update(kept)
