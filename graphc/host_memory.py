"""The C library's memory allocator, set for tensors that come and go.

By default glibc gives the end of its heap back to the system once some hundred kilobytes of it
are free. The arrays of a training step in eager mode are then mapped and zeroed anew at each
step, which can take longer than the arithmetic.
"""

from __future__ import annotations

import ctypes
import sys

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # of mallopt(), in malloc.h
_LARGEST = 32 << 20  # what glibc itself raises the second to, at most


def keep_freed(megabytes: int) -> bool:
    """Let the C library keep so much freed memory; says whether it does. 0: change nothing."""
    if megabytes == 0 or not sys.platform.startswith("linux"):
        return False
    set_option = getattr(ctypes.CDLL(None), "mallopt", None)
    if set_option is None:  # musl has none
        return False
    size = min(megabytes << 20, (1 << 31) - 1)
    return bool(set_option(_TRIM_THRESHOLD, size)) and bool(
        set_option(_MMAP_THRESHOLD, min(size, _LARGEST))
    )
