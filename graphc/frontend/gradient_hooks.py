"""Running the hooks on a gradient, and what they may give back."""

from __future__ import annotations

from typing import Any

from .context import callout
from .errors import located
from .hooks import Hooks
from .tensor import Tensor


def run_hooks(hooks: Hooks, tensor: Tensor) -> Tensor:
    """The gradient after all hooks. Raises where one gives anything but such a gradient."""
    for hook in list(hooks.values()):
        changed = callout(hook)(tensor)
        if changed is not None:
            if not isinstance(changed, Tensor):
                raise TypeError(f"expected Variable, but hook returned '{type(changed).__name__}'")
            if changed._graphc_type != tensor._graphc_type:
                what = "type" if changed.dtype is not tensor.dtype else "size"
                raise RuntimeError(located(
                    f"hook '{getattr(hook, '__name__', hook)}' has changed the {what} of value: "
                    f"was {tensor._graphc_type}, now {changed._graphc_type}"
                ))
            tensor = changed
    return tensor


def gives_nothing(result: Any) -> None:
    """Raise for what a hook after the accumulation returns: nobody would take it."""
    if isinstance(result, Tensor):
        raise RuntimeError(located("Tensor post accumulate grad hooks should return None."))
    if result is not None:
        raise TypeError(located(
            f"expected Variable, but hook returned {type(result).__name__!r}. Hint: return None"
        ))
