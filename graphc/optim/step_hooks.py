"""What runs around an optimizer's step: hooks, no_grad, and the word to a trace that it is one."""

from __future__ import annotations

import functools
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

from ..frontend.context import local
from ..frontend.grad_mode import set_grad_enabled
from ..frontend.hooks import RemovableHandle, add_hook
from ..frontend.stepped import stepped
from ..frontend.watched import WatchedOrdered

global_pre_hooks, global_post_hooks = WatchedOrdered(), WatchedOrdered()


def as_update(step: Callable[..., Any]) -> Callable[..., Any]:
    """A class's step as what changes parameters."""
    # a step written elsewhere decides for itself: its closure may need gradients
    ours = step.__module__.startswith(f"{__package__}.")

    @functools.wraps(step)
    def wrapped(self: Any, *args: Any, **kwargs: Any) -> Any:
        if not _has_hooks(self):
            return step(self, *args, **kwargs)
        stepped.add(self)
        trace = local.trace
        # a differentiable update goes on the tape: a later loss reaches what came before it
        graded = bool(self.defaults.get("differentiable"))
        mode = set_grad_enabled(graded) if ours else nullcontext()
        with mode, nullcontext() if trace is None else trace.optimizer_step(self):
            return step(self, *args, **kwargs)

    wrapped._is_wrapped = True  # type: ignore[attr-defined]
    return wrapped


def _has_hooks(optimizer: Any) -> bool:
    """False: a stand-in for another optimizer, which was never made as one."""
    return "_optimizer_step_pre_hooks" in optimizer.__dict__


def run_hooks_in(kind: Any) -> None:
    """The step of a class of which there is an optimizer runs hooks; as in torch, a step that calls
    the step of a parent class runs them there, too, if that class has had optimizers of its own."""
    if not getattr(kind.step, "_runs_hooks", False):
        kind.step = _with_hooks(kind.step)


def _with_hooks(step: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(step)
    def wrapped(self: Any, *args: Any, **kwargs: Any) -> Any:
        if not _has_hooks(self):
            return step(self, *args, **kwargs)
        args = (self, *args)  # hooks see, and give, the optimizer among the arguments
        for hook in [*global_pre_hooks.values(), *self._optimizer_step_pre_hooks.values()]:
            changed = hook(self, args, kwargs)
            if changed is None:
                continue
            if not (isinstance(changed, tuple) and len(changed) == 2):
                raise RuntimeError(
                    f"{type(self).__qualname__}.step must return None or a tuple of "
                    f"(new_args, new_kwargs), but got {changed}."
                )
            args, kwargs = changed
        result = step(*args, **kwargs)
        for hook in [*self._optimizer_step_post_hooks.values(), *global_post_hooks.values()]:
            hook(self, args, kwargs)
        return result

    wrapped._runs_hooks = True  # type: ignore[attr-defined]
    return wrapped


def register_optimizer_step_pre_hook(hook: Callable[..., Any]) -> RemovableHandle:
    """hook(optimizer, args, kwargs) before each step of every optimizer."""
    return add_hook(global_pre_hooks, hook)


def register_optimizer_step_post_hook(hook: Callable[..., Any]) -> RemovableHandle:
    """hook(optimizer, args, kwargs) after each step of every optimizer."""
    return add_hook(global_post_hooks, hook)
