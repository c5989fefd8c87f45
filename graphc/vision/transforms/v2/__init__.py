"""The transforms under torchvision's second names; they take Tensors and PIL images alone."""

from __future__ import annotations

import importlib

from .. import *  # noqa: F403
from .. import __all__ as __all__

functional = importlib.import_module(".functional", __name__)
