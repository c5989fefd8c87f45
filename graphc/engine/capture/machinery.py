"""Whether graphc's own code, below the recording, is at work."""

from __future__ import annotations

import sys
from pathlib import Path
from types import FrameType

from .kinds import is_machinery

_HERE = str(Path(__file__).parent)
_RECORDING = str(Path(_HERE, "recording.py"))


def inside_machinery() -> bool:
    """Whether code of graphc's own, other than this folder's, waits for what runs now."""
    frame: FrameType | None = sys._getframe(2)
    while frame is not None and not frame.f_code.co_filename.startswith(_RECORDING):
        file = frame.f_code.co_filename
        if not file.startswith(_HERE) and is_machinery(file):
            return True
        frame = frame.f_back
    return False
