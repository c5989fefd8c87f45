"""Constants and weights: laid out, as one relocatable object, or as a file beside the library.

An ELF object is written here, without a compiler: a hundred megabytes would be half a gigabyte of
LLVM assembly. Source: the System V ABI's object files chapter.
"""

from __future__ import annotations

import hashlib
import struct

import numpy as np

from graphc.backends.host import wasm
from graphc.backends.host.interface import Place
from graphc.export import safetensors

ALIGN = 64
MOST_EMBEDDED = (1 << 31) - (1 << 26)  # code reaches it by 4-byte distances
_MACHINES = {"x86_64": 62, "aarch64": 183}
_RELOCATABLE, _BITS, _SYMBOLS, _STRINGS = 1, 1, 2, 3  # kinds of file, sections
_ALLOC = 2
_GLOBAL_OBJECT, _HIDDEN = 0x11, 2


class Data:
    """Arrays, each once, behind one another."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._size = 0
        self._known: dict[bytes, Place] = {}

    def add(self, array: np.ndarray) -> Place:
        """Where an array's bytes lie."""
        content = array.tobytes()
        digest = hashlib.sha256(content).digest()
        found = self._known.get(digest)
        if found is None:
            found = self._known[digest] = Place("library", self._size)
            padded = content + bytes(-len(content) % ALIGN)
            self._parts.append(padded)
            self._size += len(padded)
        return found

    @property
    def size(self) -> int:
        """Bytes."""
        return self._size

    @property
    def content(self) -> bytes:
        """All of it, with a line behind it that wide loads may touch."""
        return b"".join([*self._parts, bytes(ALIGN)])

    def as_object(self, symbol: str, arch: str) -> bytes:
        """An object that defines the hidden name `symbol` as all of it, read-only."""
        if arch == "wasm32":
            return wasm.data_object(self.content, symbol, ALIGN)
        return _object(self.content, symbol, _MACHINES[arch])


def _object(content: bytes, symbol: str, machine: int) -> bytes:
    names = b"\0.rodata\0.symtab\0.strtab\0.note.GNU-stack\0" + symbol.encode() + b"\0"
    symbols = bytes(24) + struct.pack(
        "<IBBHQQ", names.index(symbol.encode() + b"\0"), _GLOBAL_OBJECT, _HIDDEN, 1, 0, len(content)
    )
    start = 64
    at_symbols = start + len(content)
    at_names = at_symbols + len(symbols)
    table = -(-(at_names + len(names)) // 8) * 8

    def section(
        name: bytes, kind: int, flags: int, at: int, size: int, link: int = 0, info: int = 0,
        align: int = 1, entry: int = 0,
    ) -> bytes:
        place = names.index(b"\0" + name + b"\0") + 1
        return struct.pack(
            "<IIQQQQIIQQ", place, kind, flags, 0, at, size, link, info, align, entry
        )

    headers = bytes(64)
    headers += section(b".rodata", _BITS, _ALLOC, start, len(content), align=ALIGN)
    headers += section(
        b".symtab", _SYMBOLS, 0, at_symbols, len(symbols), link=3, info=1, align=8, entry=24
    )
    headers += section(b".strtab", _STRINGS, 0, at_names, len(names))
    headers += section(b".note.GNU-stack", _BITS, 0, at_names, 0)
    head = b"\x7fELF\x02\x01\x01" + bytes(9) + struct.pack(
        "<HHIQQQIHHHHHH", _RELOCATABLE, machine, 1, 0, 0, table, 0, 64, 0, 0, 64, 5, 3
    )
    body = head + content + symbols + names
    return body + bytes(table - len(body)) + headers


class WeightsFile:
    """A safetensors file: its bytes, what they begin with, and where each array lies. Arrays with
    the largest elements come first, so that all are aligned; data begins on a line."""

    def __init__(self, arrays: dict[str, np.ndarray]) -> None:
        order = sorted(arrays, key=lambda name: -arrays[name].dtype.itemsize)
        self.content = _padded(safetensors.dumps({name: arrays[name] for name in order}))
        (length,) = struct.unpack_from("<Q", self.content)
        at = 8 + length
        self.head = self.content[:at]
        self.places: dict[str, Place] = {}
        for name in order:
            self.places[name] = Place("file", at)
            at += arrays[name].nbytes


def _padded(data: bytes) -> bytes:
    """The file with spaces behind its header, so that data begins on a line."""
    (length,) = struct.unpack_from("<Q", data)
    more = -(8 + length) % ALIGN
    end = 8 + length
    return struct.pack("<Q", length + more) + data[8:end] + b" " * more + data[end:]
