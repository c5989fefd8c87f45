"""torchvision.extension, for an installed torchvision: the operators that its compiled half has.

Nothing is loaded: they are graphc's (`vision_operators/`).
"""

from __future__ import annotations

import importlib.util

_HAS_OPS = True
_OF_IMAGES = "image"


def _has_ops() -> bool:
    """True."""
    return True


def _assert_has_ops() -> None:
    """Nothing is missing."""


def _check_cuda_version() -> int:
    """-1: nothing was built with CUDA."""
    return -1


def _load_library(lib_name: str) -> None:
    """Raises ImportError for what graphc does not have in the library's place."""
    if lib_name != _OF_IMAGES:
        raise ImportError(f"graphc does not have torchvision's library {lib_name!r}")
    if importlib.util.find_spec("PIL") is None:
        raise ImportError("image files are read by Pillow. Cure: pip install pillow")
