"""NumPy's settings, which its arithmetic and its texts depend on, as plain values to guard."""

from __future__ import annotations

import numpy as np


def arithmetic() -> tuple[str, ...]:
    """What floating-point errors do (numpy.errstate)."""
    return tuple(map(str, np.geterr().values()))


def texts() -> tuple[str, ...]:
    """How numbers are printed (numpy.printoptions)."""
    return tuple(map(repr, np.get_printoptions().values()))
