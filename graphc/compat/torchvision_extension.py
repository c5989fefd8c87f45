"""torchvision.extension, for an installed torchvision: the operators that its compiled half has.

Nothing is loaded: they are graphc's (`vision_operators/`).
"""

from __future__ import annotations

import importlib.util

_HAS_OPS = True


def _has_ops() -> bool:
    """True."""
    return True


def _assert_has_ops() -> None:
    """Nothing is missing."""


def _check_cuda_version() -> int:
    """-1: nothing was built with CUDA."""
    return -1


def _load_library(lib_name: str) -> bool:
    """Whether graphc has what is in a library: image files are read by Pillow."""
    return lib_name == "_C" or (lib_name == "image" and importlib.util.find_spec("PIL") is not None)
