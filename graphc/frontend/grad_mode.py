"""no_grad, enable_grad, set_grad_enabled, inference_mode: context managers and decorators."""

from __future__ import annotations

import inspect
from typing import Any

from .context import local
from .decorated import F, generator_within, within
from .errors import located


def is_grad_enabled() -> bool:
    """Whether operations of this thread are recorded for backward()."""
    return local.grad


def grad_mode() -> tuple[bool, bool]:
    """Whether operations are recorded, and whether inside inference_mode()."""
    return local.grad, local.inference


def set_grad_mode(grad: bool, inference: bool) -> None:
    """Put back what grad_mode() gave."""
    local.grad, local.inference = grad, inference


def is_inference_mode_enabled() -> bool:
    """Whether this thread is inside inference_mode()."""
    return local.inference


class _Mode:
    """Sets modes on entry and puts the former ones back on exit; also a decorator."""

    def __init__(self) -> None:
        self._saved: list[tuple[bool, bool]] = []

    def _set(self) -> None:
        raise NotImplementedError

    def clone(self) -> _Mode:
        """A fresh manager like this one: a decorated function may recur."""
        return type(self)()

    def __enter__(self) -> None:
        self._saved.append((local.grad, local.inference))
        self._set()

    def __exit__(self, *exc: object) -> None:
        local.grad, local.inference = self._saved.pop()

    def __call__(self, function: F) -> F:
        wrap = generator_within if inspect.isgeneratorfunction(function) else within
        return wrap(function, self.clone)


class _Bare(_Mode):
    """Modes that decorate with or without parentheses: @no_grad and @no_grad()."""

    def __new__(cls, function: Any = None) -> Any:
        mode = object.__new__(cls)
        if function is None:
            return mode
        _Mode.__init__(mode)
        return mode(function)

    def __init__(self, function: Any = None) -> None:
        super().__init__()


class no_grad(_Bare):
    """Operations inside are not recorded: results do not require gradients."""

    def _set(self) -> None:
        local.grad = False


class enable_grad(_Bare):
    """Operations inside are recorded, also within no_grad."""

    def _set(self) -> None:
        local.grad = not local.inference


class set_grad_enabled(_Mode):
    """Set the mode at once by a call; as a context manager, only for its block."""

    def __init__(self, mode: bool) -> None:
        super().__init__()
        if not isinstance(mode, bool):
            raise TypeError(located(
                "set_grad_enabled(): argument 'enabled' (position 1) must be bool, not "
                f"{type(mode).__name__}"
            ))
        self.mode = mode
        self._before: tuple[bool, bool] | None = (local.grad, local.inference)
        local.grad = self.mode

    def clone(self) -> _Mode:
        return set_grad_enabled(self.mode)

    def _set(self) -> None:
        local.grad = self.mode

    def __enter__(self) -> None:
        before = self._before
        self._before = None
        self._saved.append((local.grad, local.inference) if before is None else before)
        local.grad = self.mode

    def __call__(self, function: F) -> F:
        if self._before is not None:  # as a decorator, the call itself changes nothing
            local.grad, local.inference = self._before
            self._before = None
        return super().__call__(function)


class inference_mode(_Mode):
    """no_grad that also declares that results will not be used in recorded operations."""

    def __new__(cls, mode: Any = True) -> Any:
        made = object.__new__(cls)
        if callable(mode):
            _Mode.__init__(made)
            made.mode = True
            return made(mode)
        return made

    def __init__(self, mode: bool = True) -> None:
        super().__init__()
        self.mode = bool(mode)

    def clone(self) -> _Mode:
        fresh: _Mode = inference_mode(self.mode)
        return fresh

    def _set(self) -> None:
        local.inference = self.mode
        if local.trace is not None:
            local.trace.inference = True
        local.grad = not self.mode
