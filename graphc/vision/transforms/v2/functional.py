"""The functional transforms under torchvision's second names."""

from __future__ import annotations

from ..functional import *  # noqa: F403
from ..functional import __all__ as __all__
