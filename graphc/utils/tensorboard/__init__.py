"""torch.utils.tensorboard: SummaryWriter of the tensorboardX package, which must be installed."""

from __future__ import annotations

import importlib
from typing import Any


def _find() -> Any:
    try:
        return importlib.import_module("tensorboardX")
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            "torch.utils.tensorboard writes through tensorboardX, which is not installed. "
            "Cure: pip install tensorboardX", name="tensorboardX",
        ) from error


_package = _find()
SummaryWriter = _package.SummaryWriter
FileWriter = _package.FileWriter
RecordWriter = getattr(_package, "RecordWriter", None)
