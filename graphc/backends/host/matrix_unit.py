"""Whether code of this process may use the CPU's matrix unit (AMX: tiles, bfloat16 and int8).

The CPU has to have it, the system has to let this process use it (its registers are saved for
those alone who have asked), and it has to compute right, which is tried once.

Sources: the kernel's Documentation/arch/x86/xstate.rst (arch_prctl), Intel 64 and IA-32
Architectures Software Developer's Manual, volume 1, chapter 18.
"""

from __future__ import annotations

import ctypes
import functools
import mmap
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

_FLAGS = frozenset({"amx_tile", "amx_bf16", "amx_int8"})
_ARCH_PRCTL, _ASK, _TILES = 158, 0x1023, 18  # the system call, ARCH_REQ_XCOMP_PERM, XTILEDATA

# void check(config, a, b, c): configures the unit, loads a into tile 6 and b into tile 7, and
# stores five products in c, 1024 bytes apart; rows are 64 bytes apart. A test holds it against what
# LLVM makes of the same instructions: none of LLVM is loaded where code is only mapped.
CHECK = bytes.fromhex(
    "c4e2784907 b840000000 c4e27b4b3406 c4e27b4b3c02"
    "c4e27b49c0 c4e2425cc6 c4e27a4b0401"  # tdpbf16ps
    "c4e27b49c8 c4e2435ece 488d9100040000 c4e27a4b0c02"  # tdpbssd
    "c4e27b49d0 c4e2425ed6 488d9100080000 c4e27a4b1402"  # tdpbsud
    "c4e27b49d8 c4e2415ede 488d91000c0000 c4e27a4b1c02"  # tdpbusd
    "c4e27b49e0 c4e2405ee6 4881c100100000 c4e27a4b2401"  # tdpbuud
    "c4e27849c0 c3"
)
SHAPE = 5, 9, 11  # of the product tried: rows, words of k, columns; no tile is whole


class Wanted:
    """Whether it is to be used at all (GRAPHC_AMX); said before anything is compiled."""

    unit = True


@functools.cache
def usable(root: Path = Path("/")) -> bool:
    """Whether this process may; it has been given leave then, and so have all its threads and the
    processes that it forks. Asked before any code with such instructions is made, or run."""
    if not Wanted.unit or not sys.platform.startswith("linux"):
        return False
    if _FLAGS - _flags(root) or not _leave():
        return False
    code = _mapped()
    if code is None:
        return False
    if computes(code):
        return True
    warnings.warn(
        "the matrix unit of this CPU (AMX) computes wrong numbers; products go by vector registers",
        RuntimeWarning, stacklevel=2,
    )
    return False


def _flags(root: Path) -> set[str]:
    """What /proc/cpuinfo says of the first CPU."""
    try:
        with open(root / "proc/cpuinfo", encoding="utf-8", errors="replace") as file:
            for line in file:
                name, _, text = line.partition(":")
                if name.strip() == "flags":
                    return set(text.split())
    except OSError:
        pass
    return set()


def _leave() -> bool:
    """Asks the system. It refuses where it does not know the unit, or where a thread has a stack
    for signals that is too small for the unit's registers."""
    call = ctypes.CDLL(None).syscall
    call.argtypes, call.restype = (ctypes.c_long,) * 3, ctypes.c_long
    return bool(call(_ARCH_PRCTL, _ASK, _TILES) == 0)


def _mapped() -> Callable[..., Any] | None:
    """CHECK as a function; None where the system does not let it be executable."""
    memory = mmap.mmap(-1, mmap.PAGESIZE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    memory.write(CHECK)
    start = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    protect = ctypes.CDLL(None).mprotect
    protect.argtypes = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int
    if protect(start, mmap.PAGESIZE, mmap.PROT_READ | mmap.PROT_EXEC):
        return None
    function = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 4)(start)
    function.memory = memory  # type: ignore[attr-defined]  # lives as long as the function
    return function


def computes(check: Callable[..., Any]) -> bool:
    """Whether a function like CHECK gives what its instructions mean, in tiles that are not whole,
    and leaves alone what is beyond them."""
    rows, words, columns = SHAPE
    config = np.zeros(64, np.uint8)
    config[0] = 1
    tiles = {**dict.fromkeys(range(5), (rows, columns)), 6: (rows, words), 7: (words, columns)}
    for number, (count, wide) in tiles.items():
        config[16 + 2 * number], config[48 + number] = 4 * wide, count
    rng = np.random.default_rng(0)
    a, b = rng.integers(0, 256, (2, 16, 64), np.uint8)
    c = np.full((5, 16, 16), 7, np.int32)
    arguments = [x.ctypes.data for x in (config, a, b, c)]
    check(*arguments)
    signs = (None, ("i1", "i1"), ("i1", "u1"), ("u1", "i1"), ("u1", "u1"))
    right = True
    for found, kinds in zip(c, signs, strict=True):
        if kinds is not None:
            left, other = (
                x.view(kind).astype(np.int32) for x, kind in zip((a, b), kinds, strict=True)
            )
            right &= _is_product(found, left, other, 4)
    halves = rng.integers(-8, 9, (2, 16, 32)).astype(np.float32)  # their sums are exact
    a[:], b[:] = ((x.view(np.uint32) >> 16).astype(np.uint16).view(np.uint8) for x in halves)
    sums = c.view(np.float32)
    sums[:] = 7
    check(*arguments)
    return right and _is_product(sums[0], halves[0], halves[1], 2)


def _is_product(found: np.ndarray, left: np.ndarray, right: np.ndarray, group: int) -> bool:
    """Whether a tile is the product of rows of words and words of rows, and 7 beyond SHAPE."""
    rows, words, columns = SHAPE
    want = np.full((16, 16), 7, found.dtype)
    pairs = right.reshape(16, 16, group)[:words, :columns].transpose(0, 2, 1)
    want[:rows, :columns] = left[:rows, : words * group] @ pairs.reshape(words * group, columns)
    return bool((found == want).all())
