"""How many threads NumPy's matrix products use: OpenBLAS keeps its own, in whose functions the
number is set. NumPy's wheels bring it along under names of their own; other builds have others,
or another library, which is then left alone.

Source: https://github.com/OpenMathLib/OpenBLAS/blob/develop/cblas.h (openblas_set_num_threads)
"""

from __future__ import annotations

import ctypes
import functools
from pathlib import Path
from typing import Any

import numpy as np

_PLACES = ("../numpy.libs", ".libs", ".dylibs")  # in wheels, seen from the package
_NAMES = [
    (prefix + "{}" + suffix)
    for prefix in ("scipy_openblas_", "openblas_") for suffix in ("64_", "")
]


def use(threads: int) -> None:
    """From now on so many at most, for all of the process."""
    found = _function("set_num_threads")
    if found is not None:
        found.restype = None
        found(threads)


def threads() -> int | None:
    """How many it uses; None: that is not known."""
    found = _function("get_num_threads")
    return None if found is None else int(found())


def _function(name: str) -> Any:
    for library in _libraries():
        for form in _NAMES:
            found = getattr(library, form.format(name), None)
            if found is not None:
                return found
    return None


@functools.cache
def _libraries() -> list[ctypes.CDLL]:
    """What NumPy has loaded already."""
    package = Path(np.__file__).parent
    found = []
    for place in _PLACES:
        for path in sorted((package / place).glob("*openblas*")):
            try:
                found.append(ctypes.CDLL(str(path.resolve())))
            except OSError:
                continue
    return found
