"""torch.sparse.check_sparse_tensor_invariants: graphc checks at all times what torch does there."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any


class check_sparse_tensor_invariants:
    """Accepted as a context, a decorator and a switch; indices are checked whatever it says."""

    _enabled = False

    def __init__(self, enable: bool = True) -> None:
        self.state = enable
        self.saved_state: bool | None = None

    @staticmethod
    def is_enabled() -> bool:
        """What was asked for last."""
        return check_sparse_tensor_invariants._enabled

    @staticmethod
    def enable() -> None:
        """Ask for checks."""
        check_sparse_tensor_invariants._enabled = True

    @staticmethod
    def disable() -> None:
        """Take that back."""
        check_sparse_tensor_invariants._enabled = False

    def __enter__(self) -> None:
        if self.saved_state is not None:
            raise RuntimeError("This context manager instance is already activated. Use a "
                               "different context manager instance for context nesting.")
        self.saved_state = self.is_enabled()
        check_sparse_tensor_invariants._enabled = self.state

    def __exit__(self, *error: object) -> None:
        assert self.saved_state is not None
        check_sparse_tensor_invariants._enabled = self.saved_state
        self.saved_state = None

    def __call__(self, function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            with type(self)(self.state):
                return function(*args, **kwargs)

        return call
