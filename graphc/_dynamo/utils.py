"""torch._dynamo.utils."""

from __future__ import annotations

import importlib
from typing import Any

from ..compiler import is_compiling as is_compiling


def is_compile_supported(device_type: str) -> bool:
    """Whether compiled code can run there: on the CPU."""
    return device_type == "cpu"


def compiled(model: Any, backend: Any = None) -> Any:
    """torch.compile(model, backend=backend)."""
    return importlib.import_module("graphc.compile").compile(model, backend=backend)
