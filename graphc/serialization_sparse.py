"""Sparse tensors in files: what torch's names of them call."""

from __future__ import annotations

import importlib
from typing import Any, NoReturn


def rebuild_sparse_tensor(layout: Any, data: Any) -> Any:
    """The tensor of these parts, whose places are checked. Raises RuntimeError."""
    found = importlib.import_module(".sparse.creation", __package__)
    return found.rebuild_sparse_tensor(layout, data)


def refuse_sparse_tensor(layout: Any, data: Any) -> NoReturn:
    """In files of the old format storages are read behind the objects on them."""
    raise NotImplementedError(
        "graphc does not read sparse tensors from files of the old format. Cure: torch.load() and "
        "torch.save() it once in PyTorch, which writes zip files"
    )
