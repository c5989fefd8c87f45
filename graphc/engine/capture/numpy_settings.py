"""NumPy's settings, which its arithmetic and its texts depend on, as plain values to guard."""

from __future__ import annotations

import numpy as np

# functions that make texts of arrays
TEXTS = frozenset("array2string array_repr array_str get_printoptions".split())


def arithmetic() -> tuple[str, ...]:
    """What floating-point errors do (numpy.errstate)."""
    return tuple(np.geterr().values())


def texts() -> tuple[str, ...]:
    """How numbers are printed (numpy.printoptions)."""
    return tuple(map(repr, np.get_printoptions().values()))
