"""torch.amp.GradScaler: losses are scaled up so that float16 gradients do not vanish."""

from __future__ import annotations

import warnings
from collections import defaultdict
from collections.abc import Iterable
from enum import Enum
from typing import Any

from ..cuda.available import is_available
from ..frontend import functions as T
from ..frontend.grad_mode import no_grad
from ..frontend.kept_where import exported, kept_where
from ..frontend.tensor import Tensor
from ..ir import dtypes


class OptState(Enum):
    """What was done with an optimizer since the last update()."""

    READY = 0
    UNSCALED = 1
    STEPPED = 2


def _fresh() -> dict[str, Any]:
    return {"stage": OptState.READY, "found_inf": None}


class GradScaler:
    """Multiplies losses by a factor that grows while gradients stay finite, and skips the steps
    in which they do not."""

    def __init__(
        self, device: str = "cuda", init_scale: float = 2.0**16, growth_factor: float = 2.0,
        backoff_factor: float = 0.5, growth_interval: int = 2000, enabled: bool = True,
    ) -> None:
        self._device, self._enabled = device, enabled
        if enabled and device == "cuda" and not is_available():
            warnings.warn(
                "torch.cuda.amp.GradScaler is enabled, but CUDA is not available.  Disabling.",
                stacklevel=2,
            )
            self._enabled = False
        if self._enabled:
            assert growth_factor > 1.0, "The growth factor must be > 1.0."
            assert backoff_factor < 1.0, "The backoff factor must be < 1.0."
            self._init_scale = init_scale
            self._scale: Tensor | None = None
            self._growth_factor, self._backoff_factor = growth_factor, backoff_factor
            self._growth_interval = growth_interval
            self._init_growth_tracker = 0
            self._growth_tracker: Tensor | None = None
            self._per_optimizer_states: dict[int, dict[str, Any]] = defaultdict(_fresh)

    def _graphc_check(self, what: str) -> tuple[Tensor, Tensor]:
        fix = (
            "This may indicate your script did not use scaler.scale(loss or outputs) earlier in "
            "the iteration."
        )
        assert self._scale is not None, f"Attempted {what} but _scale is None.  {fix}"
        assert self._growth_tracker is not None
        return self._scale, self._growth_tracker

    def _graphc_begun(self) -> bool:
        """Make the scale, if there is none: True if it was made."""
        new = self._scale is None
        self._graphc_start()
        return new

    def _graphc_forget(self) -> None:
        self._scale = self._growth_tracker = None

    def _graphc_start(self) -> Tensor:
        if self._scale is None:
            where = self._device
            self._scale = T.full((), self._init_scale, dtype=dtypes.f32, device=where)
            self._growth_tracker = T.full(
                (), self._init_growth_tracker, dtype=dtypes.i32, device=where
            )
        return self._scale

    def scale(self, outputs: Any) -> Any:
        """A Tensor, or an iterable of them, times the scale."""
        if not self._enabled:
            return outputs
        if isinstance(outputs, Tensor):
            return outputs * self._graphc_start()
        if isinstance(outputs, Iterable):
            scaled = [self.scale(item) for item in outputs]
            return type(outputs)(scaled) if isinstance(outputs, (list, tuple)) else scaled
        raise ValueError("outputs must be a Tensor or an iterable of Tensors")

    def _unscale_grads_(self, optimizer: Any, inverse: Tensor, allow_fp16: bool) -> Tensor:
        """Divides the gradients by the scale; 1.0 if one was not finite, else 0.0. Both stay where
        the scale is: no gradient is waited for."""
        bad = T.zeros((), dtype=dtypes.bool_, device=inverse.device)
        with no_grad():
            for group in optimizer.param_groups:
                for parameter in group["params"]:
                    grad = parameter.grad
                    if grad is None:
                        continue
                    if not allow_fp16 and grad.dtype is dtypes.f16:
                        raise ValueError("Attempting to unscale FP16 gradients.")
                    if grad.is_sparse:
                        if grad.dtype is dtypes.f16:  # sums of entries may not be finite
                            parameter.grad = grad = grad.coalesce()
                        grad = grad._values()
                    bad = bad | ~T.isfinite(grad).all()
                    grad.mul_(inverse)
        return bad.to(dtypes.f32)

    def unscale_(self, optimizer: Any) -> None:
        """Divide the gradients of an optimizer by the scale, before clipping them, say."""
        if not self._enabled:
            return
        scale, _ = self._graphc_check("unscale_")
        state = self._per_optimizer_states[id(optimizer)]
        if state["stage"] is OptState.UNSCALED:
            raise RuntimeError(
                "unscale_() has already been called on this optimizer since the last update()."
            )
        if state["stage"] is OptState.STEPPED:
            raise RuntimeError("unscale_() is being called after step().")
        inverse = scale.double().reciprocal().float()
        state["found_inf"] = self._unscale_grads_(optimizer, inverse, False)
        state["stage"] = OptState.UNSCALED

    def step(self, optimizer: Any, *args: Any, **kwargs: Any) -> Any:
        """optimizer.step(), unless a gradient is not finite; what it returns."""
        if not self._enabled:
            return optimizer.step(*args, **kwargs)
        if "closure" in kwargs:
            raise RuntimeError("Closure use is not currently supported if GradScaler is enabled.")
        self._graphc_check("step")
        state = self._per_optimizer_states[id(optimizer)]
        if state["stage"] is OptState.STEPPED:
            raise RuntimeError("step() has already been called since the last update().")
        if state["stage"] is OptState.READY:
            self.unscale_(optimizer)
        if not any(p.grad is not None for g in optimizer.param_groups for p in g["params"]):
            raise AssertionError("No inf checks were recorded for this optimizer.")
        result = self._graphc_stepped(optimizer, state["found_inf"], args, kwargs)
        state["stage"] = OptState.STEPPED
        return result

    def _graphc_stepped(self, optimizer: Any, found: Tensor, args: Any, kwargs: Any) -> Any:
        trace = exported()
        if trace is not None and not (args or kwargs):
            # what others' steps do besides writing to tensors cannot be taken back
            only_writes = getattr(optimizer, "_graphc_only_writes", None)
            if only_writes is not None and only_writes():
                with kept_where(trace, found > 0):
                    return optimizer.step()
        return None if found.item() else optimizer.step(*args, **kwargs)

    def update(self, new_scale: float | Tensor | None = None) -> None:
        """Adapt the scale to what was found since the last update, or set it."""
        if not self._enabled:
            return
        scale, tracker = self._graphc_check("update")
        with no_grad():
            if new_scale is not None:
                scale.fill_(new_scale) if isinstance(new_scale, float) else scale.copy_(new_scale)
            else:
                self._graphc_adapt(scale, tracker)
        self._per_optimizer_states.clear()

    def _graphc_adapt(self, scale: Tensor, tracker: Tensor) -> None:
        found = [
            state["found_inf"] for state in self._per_optimizer_states.values()
            if state["found_inf"] is not None
        ]
        assert found, "No inf checks were recorded prior to update."
        bad = sum(found[1:], found[0]) > 0
        counted = tracker + 1
        grown = scale * self._growth_factor
        full = (counted == self._growth_interval) & ~bad
        grow = full & T.isfinite(grown)
        scale.copy_(T.where(bad, scale * self._backoff_factor, T.where(grow, grown, scale)))
        tracker.copy_(T.where(bad | full, T.zeros_like(tracker), counted))

    def get_scale(self) -> float:
        """The factor now; 1.0 if disabled."""
        if not self._enabled:
            return 1.0
        return self._init_scale if self._scale is None else float(self._scale.item())

    def get_growth_factor(self) -> float:
        """The factor that the scale grows by."""
        return self._growth_factor

    def set_growth_factor(self, new_factor: float) -> None:
        """Set the factor that the scale grows by."""
        self._growth_factor = new_factor

    def get_backoff_factor(self) -> float:
        """The factor that the scale shrinks by."""
        return self._backoff_factor

    def set_backoff_factor(self, new_factor: float) -> None:
        """Set the factor that the scale shrinks by."""
        self._backoff_factor = new_factor

    def get_growth_interval(self) -> int:
        """Good steps in a row before the scale grows."""
        return self._growth_interval

    def set_growth_interval(self, new_interval: int) -> None:
        """Set the number of good steps in a row before the scale grows."""
        self._growth_interval = new_interval

    def _get_growth_tracker(self) -> int:
        if not self._enabled:
            return 0
        tracker = self._growth_tracker
        return self._init_growth_tracker if tracker is None else int(tracker.item())

    def is_enabled(self) -> bool:
        """Whether it does anything."""
        return self._enabled

    def state_dict(self) -> dict[str, Any]:
        """The scale and its settings; empty if disabled."""
        if not self._enabled:
            return {}
        return {
            "scale": self.get_scale(),
            "growth_factor": self._growth_factor,
            "backoff_factor": self._backoff_factor,
            "growth_interval": self._growth_interval,
            "_growth_tracker": self._get_growth_tracker(),
        }

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on from a state_dict."""
        if not self._enabled:
            return
        if len(state_dict) == 0:
            raise RuntimeError(
                "The source state dict is empty, possibly because it was saved from a disabled "
                "instance of GradScaler."
            )
        self._init_scale = state_dict["scale"]
        if self._scale is not None:
            self._scale.fill_(state_dict["scale"])
        self._growth_factor = state_dict["growth_factor"]
        self._backoff_factor = state_dict["backoff_factor"]
        self._growth_interval = state_dict["growth_interval"]
        self._init_growth_tracker = state_dict["_growth_tracker"]
        if self._growth_tracker is not None:
            self._growth_tracker.fill_(state_dict["_growth_tracker"])

    def __getstate__(self) -> dict[str, Any]:
        state = self.__dict__.copy()
        if self._enabled:
            assert len(self._per_optimizer_states) == 0, (
                "A GradScaler instance may only be pickled at the beginning of an iteration, or "
                "at the end after scaler.update()."
            )
            state["_init_scale"] = self.get_scale()
            state["_init_growth_tracker"] = self._get_growth_tracker()
            state["_scale"] = state["_growth_tracker"] = None
        return state
