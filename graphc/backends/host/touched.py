"""New memory is made by another thread, ahead of whoever fills it.

The system only promises what it is asked for: each page comes when it is first written to, and the
writer waits while it is found and cleared, which in a virtual machine can take 2 ms for a megabyte
that no program had before. What will be written anyway is asked for by a thread beside, which is
over as soon as nothing waits. No byte changes: MADV_POPULATE_WRITE, man 2 madvise.

Not where this process has one CPU, nor where memory is nearer to some CPUs than to others: it is to
lie near whoever fills it.
"""

from __future__ import annotations

import _thread
import contextlib
import ctypes
import functools
import mmap
import os
import sys
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

from graphc.backends.host import cpus
from graphc.ir import forks

MOST = 1 << 26  # bytes of a request: who wants more may not mean to fill all of it
MOST_ZEROS = 1 << 24  # of zeros, which parameters and an optimizer's state begin with; more of them
# may be there for the sake of a few
_PIECE = 1 << 22  # bytes at a time: who maps other memory waits for the one that is under way
_PAGE = mmap.PAGESIZE
_POPULATE_WRITE = 23  # since Linux 5.14

# (memory, offset, bytes), in multiples of a page
_waiting: deque[tuple[mmap.mmap, int, int]] = deque()
_lock = forks.rlock()  # re-entrant: a collection may make arrays anywhere
_runs = False  # a thread that will look at what waits


def touch(memory: mmap.mmap, start: int, size: int) -> None:
    """Has pages that were never written to made ready. Returns at once."""
    global _runs
    if _madvise() is None:
        return
    first, end = start // _PAGE * _PAGE, -(-(start + size) // _PAGE) * _PAGE
    with _lock:
        _waiting.append((memory, first, end - first))
        if _runs:
            return
        _runs = True
    try:
        _thread.start_new_thread(_work, ())
    except RuntimeError:  # no thread more, or the interpreter ends
        _stop()


def _work() -> None:
    global _runs
    madvise = _madvise()
    while madvise is not None:
        with _lock:
            if not _waiting:
                _runs = False
                return
            memory, start, size = _waiting.popleft()
        # it stays mapped for as long as somebody has this
        held = ctypes.c_char.from_buffer(memory)
        address = ctypes.addressof(held) + start
        for at in range(0, size, _PIECE):
            if madvise(address + at, min(_PIECE, size - at), _POPULATE_WRITE):
                break  # an older kernel, or no memory: whoever writes there will hear of it
        del held, memory


def _stop() -> None:
    global _runs
    _waiting.clear()
    _runs = False


@functools.cache
def _madvise() -> Callable[..., Any] | None:
    """The system's; None where nobody is to be ahead."""
    if sys.platform != "linux" or cpus.available() == 1 or not _is_near():
        return None
    with contextlib.suppress(OSError, AttributeError):
        function = ctypes.CDLL(None).madvise
        function.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
        return function
    return None


def _is_near(root: Path = Path("/")) -> bool:
    """Whether all memory is as near to one CPU as to another, as far as the system says."""
    try:
        return (root / "sys/devices/system/node/online").read_text().strip() == "0"
    except OSError:
        return True


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_stop)  # the thread is not in the child
