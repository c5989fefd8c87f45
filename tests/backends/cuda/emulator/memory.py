"""Memory of an emulated device: each piece ends at a page that nobody may touch, and what was not
written is NaN."""

from __future__ import annotations

import ctypes
import ctypes.util
import mmap
from typing import NamedTuple

PAGE = mmap.PAGESIZE
ALIGNMENT = 256  # as cuMemAlloc has it
POISON = 0xFF  # of which floats are NaN

_C = ctypes.CDLL(None, use_errno=True)
_C.mmap.restype = ctypes.c_void_p
_C.mmap.argtypes = [
    ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long,
]
_C.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
_C.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]


class Piece(NamedTuple):
    """Pages, of which `size` bytes from `address` on are in use; the rest to the guard page, less
    than ALIGNMENT, has a pattern of the piece's own."""

    pages: int
    length: int
    address: int
    size: int

    @property
    def end(self) -> int:
        """Where the rest begins."""
        return self.address + self.size

    @property
    def rest(self) -> bytes:
        """What lies there if nobody has written: signalling NaNs, which no arithmetic leaves as
        they are, and no copy of another piece's."""
        length = self.pages + self.length - PAGE - self.end
        word = 0xFF800001 | self.pages // PAGE % (1 << 21) << 1
        return (word.to_bytes(4, "little") * (length // 4 + 1))[:length]


class Overrun(RuntimeError):
    """Something was written behind a piece of memory, before its guard page."""


class Arena:
    """All pieces of one device."""

    def __init__(self) -> None:
        self.pieces: dict[int, Piece] = {}

    def allocate(self, size: int) -> int:
        """The address of a piece."""
        inside = -(-max(size, 1) // ALIGNMENT) * ALIGNMENT
        length = -(-inside // PAGE) * PAGE + PAGE
        flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
        pages = _C.mmap(None, length, mmap.PROT_READ | mmap.PROT_WRITE, flags, -1, 0)
        guard = pages + length - PAGE
        _C.mprotect(guard, PAGE, 0)
        piece = Piece(pages, length, guard - inside, size)
        ctypes.memset(pages, POISON, length - PAGE)
        ctypes.memmove(piece.end, piece.rest, len(piece.rest))
        self.pieces[piece.address] = piece
        return piece.address

    def free(self, address: int) -> None:
        """Raises Overrun, or KeyError for an address that begins no piece."""
        piece = self.pieces.pop(address)
        self._check(piece)
        _C.munmap(piece.pages, piece.length)

    def check(self) -> None:
        """Raises Overrun where something was written behind a piece."""
        for piece in self.pieces.values():
            self._check(piece)

    def holds(self, address: int, size: int) -> bool:
        """Whether some bytes are all in one piece."""
        return any(
            piece.address <= address and address + size <= piece.address + piece.size
            for piece in self.pieces.values()
        )

    def _check(self, piece: Piece) -> None:
        rest = piece.rest
        found = ctypes.string_at(piece.end, len(rest))
        if found != rest:
            where = next(n for n, byte in enumerate(found) if byte != rest[n])
            raise Overrun(f"byte {where} behind {piece.size} bytes at {piece.address:#x}")
