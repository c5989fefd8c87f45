"""The hooks around step(), an optimizer's own and those of all optimizers."""

from __future__ import annotations

import functools
from collections.abc import Callable
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

from ..frontend.context import local
from ..frontend.grad_mode import no_grad
from ..frontend.hooks import RemovableHandle, add_hook
from ..frontend.stepped import stepped
from ..frontend.watched import WatchedOrdered

if TYPE_CHECKING:
    from .optimizer import Optimizer

_before_all, _after_all = WatchedOrdered(), WatchedOrdered()
_stepping: set[Optimizer] = set()


def with_hooks(step: Callable[..., Any]) -> Callable[..., Any]:
    """A class's step with its hooks around it."""
    # a step written elsewhere decides for itself: its closure may need gradients
    quiet = no_grad if step.__module__.startswith(f"{__package__}.") else nullcontext

    @functools.wraps(step)
    def wrapped(self: Optimizer, *args: Any, **kwargs: Any) -> Any:
        if "_optimizer_step_pre_hooks" not in self.__dict__:  # a stand-in for another optimizer
            return step(self, *args, **kwargs)
        if self in _stepping:  # super().step(): the hooks are those of the step outside
            with quiet():
                return step(self, *args, **kwargs)
        stepped.add(self)
        for hook in [*_before_all.values(), *self._optimizer_step_pre_hooks.values()]:
            changed = hook(self, args, kwargs)
            if changed is None:
                continue
            if not (isinstance(changed, tuple) and len(changed) == 2):
                raise RuntimeError(
                    f"{type(self).__qualname__}.step must return None or a tuple of "
                    f"(new_args, new_kwargs), but got {changed}."
                )
            args, kwargs = changed
        trace = local.trace
        _stepping.add(self)
        try:
            with quiet(), nullcontext() if trace is None else trace.optimizer_step(self):
                result = step(self, *args, **kwargs)
        finally:
            _stepping.discard(self)
        for hook in [*self._optimizer_step_post_hooks.values(), *_after_all.values()]:
            hook(self, args, kwargs)
        return result

    wrapped._is_wrapped = True  # type: ignore[attr-defined]
    return wrapped


def register_optimizer_step_pre_hook(hook: Callable[..., Any]) -> RemovableHandle:
    """hook(optimizer, args, kwargs) before each step of every optimizer."""
    return add_hook(_before_all, hook)


def register_optimizer_step_post_hook(hook: Callable[..., Any]) -> RemovableHandle:
    """hook(optimizer, args, kwargs) after each step of every optimizer."""
    return add_hook(_after_all, hook)
