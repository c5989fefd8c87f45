"""torch.utils.hooks: the handles that hooks of tensors, Modules and optimizers give."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..frontend.hooks import RemovableHandle

__all__ = ["RemovableHandle", "unserializable_hook"]


def unserializable_hook(f: Callable[..., Any]) -> Callable[..., Any]:
    """The hook, marked as one that a saved tensor goes without; none is ever saved here."""
    f.__torch_unserializable__ = True  # type: ignore[attr-defined]
    return f
