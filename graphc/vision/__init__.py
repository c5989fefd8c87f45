"""Image models, data sets and transforms, named as in torchvision (which is not needed)."""

import importlib
from types import ModuleType

__version__ = "0.28.0"  # the torchvision whose names these are

__all__ = ["datasets", "io", "models", "ops", "transforms", "utils"]


def __getattr__(name: str) -> ModuleType:
    """Each part loads at first use."""
    if name in __all__:
        return importlib.import_module(f"graphc.vision.{name}")
    raise AttributeError(f"module 'graphc.vision' has no attribute {name!r}")
