"""torch.storage: what holds a tensor's memory, and how plain pickles of tensors name it."""

from __future__ import annotations

import io
from typing import Any

from .frontend.functions.storages import UntypedStorage as UntypedStorage
from .serialization import load


def _load_from_bytes(b: bytes) -> Any:
    """A storage in a plain pickle; what reads the pickle runs what it names already."""
    return load(io.BytesIO(b), weights_only=False)
