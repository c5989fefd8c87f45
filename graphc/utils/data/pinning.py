"""A batch in pinned memory, from which a GPU copies while the host goes on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ...frontend.tensor import Tensor


def pinned(batch: Any) -> Any:
    """The same containers with their tensors pinned; what has a `pin_memory()` answers itself."""
    if isinstance(batch, Tensor) or hasattr(batch, "pin_memory"):
        return batch.pin_memory()
    if isinstance(batch, Mapping):
        items = {key: pinned(value) for key, value in batch.items()}
        return items if type(batch) is dict else type(batch)(items)  # type: ignore[call-arg]
    if isinstance(batch, tuple) and hasattr(batch, "_fields"):
        return type(batch)(*map(pinned, batch))
    if type(batch) is tuple:
        return tuple(map(pinned, batch))
    if isinstance(batch, Sequence) and not isinstance(batch, (str, bytes, bytearray)):
        return list(map(pinned, batch))
    return batch
