"""Whether a model is being recorded for ONNX, which its code may ask."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

_running = [False]


def is_in_onnx_export() -> bool:
    """Whether torch.onnx.export is recording."""
    return _running[0]


@contextlib.contextmanager
def exporting() -> Iterator[None]:
    """Code that runs inside is told so."""
    before, _running[0] = _running[0], True
    try:
        yield
    finally:
        _running[0] = before
