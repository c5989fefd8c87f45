"""Whether graphc's own code stands between the recording and the user's code that runs now."""

from __future__ import annotations

import sys
from pathlib import Path
from types import FrameType

from .kinds import is_machinery


def inside_machinery() -> bool:
    """Whether code of graphc's own, other than this folder's, waits for what runs now."""
    frame: FrameType | None = sys._getframe(2)
    while frame is not None and not frame.f_code.co_filename.startswith(_RECORDING):
        file = frame.f_code.co_filename
        if not file.startswith(_HERE) and is_machinery(file):
            return True
        frame = frame.f_back
    return False


_HERE = str(Path(__file__).parent)
_RECORDING = str(Path(_HERE, "recording.py"))
