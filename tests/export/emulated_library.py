"""A shared object loaded into an emulated CPU, as a system's loader does it.

Sources: the System V ABI, "Dynamic Linking"; the relocations of its supplements for AMD64 and
AArch64.
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

from graphc.backends.host import elf
from tests.backends.llvm.emulated_cpu import BASE, PAGE, EmulatedCpu, unicorn

_ARCHS = {elf.X86_64: "x86_64", elf.AARCH64: "aarch64"}
# relocations that the loader makes, by what is written
_ADDRESS, _IMAGE, _THREAD = "address", "image", "thread"
_KINDS = {
    elf.X86_64: {1: _ADDRESS, 6: _ADDRESS, 7: _ADDRESS, 8: _IMAGE, 18: _THREAD},
    elf.AARCH64: {257: _ADDRESS, 1025: _ADDRESS, 1026: _ADDRESS, 1027: _IMAGE, 1030: _THREAD},
}
_LOAD, _THREADS, _SYMBOLS, _RELOCATIONS = 1, 7, 11, 4
_SPAN = 1 << 12  # of a thread's memory


class _Symbol(NamedTuple):
    name: str
    section: int
    value: int


class EmulatedLibrary:
    """`data`: the file. Functions of the system are this machine's, or among `host`."""

    def __init__(
        self, data: bytes, host: Mapping[str, Callable[..., int]] | None = None
    ) -> None:
        self.data, self.machine = data, elf.machine(data)
        self.cpu = EmulatedCpu(_ARCHS[self.machine], host)
        self.uc = self.cpu.uc
        self._load()
        self._symbols = list(self._read_symbols())
        self._exports = {each.name: each for each in self._symbols if each.section}
        for offset, info, addend in self._relocations():
            self._relocate(offset, info & 0xFFFFFFFF, self._symbols[info >> 32], addend)

    def call(self, name: str, *words: int) -> int:
        """A function of integers; its result as an unsigned word."""
        return self.cpu.call(BASE + self._exports[name].value, *words)

    @property
    def exports(self) -> set[str]:
        return {*self._exports}

    def text(self, address: int) -> str:
        """What a char * points to, in the library or in this process."""
        if BASE <= address < BASE + self.size:
            found = bytes(self.uc.mem_read(address, min(256, BASE + self.size - address)))
            return found.split(b"\0")[0].decode()
        return ctypes.string_at(address).decode()

    def words(self, address: int, count: int) -> tuple[int, ...]:
        """What lies in the library, as i64."""
        return struct.unpack(f"<{count}q", bytes(self.uc.mem_read(address, 8 * count)))

    def places(self, code: bytes) -> list[int]:
        """Where these bytes lie in what is executed."""
        found = []
        for kind, flags, offset, address, _, size, _, _ in self._segments():
            if kind != _LOAD or not flags & 1:
                continue
            part, at = self.data[offset : offset + size], -1
            while (at := part.find(code, at + 1)) >= 0:
                found.append(BASE + address + at)
        return found

    # --- loading ----------------------------------------------------------------------------------

    def _segments(self) -> Iterator[tuple[int, ...]]:
        (table,), (count,) = (struct.unpack_from("<Q", self.data, 32),
                              struct.unpack_from("<H", self.data, 56))
        for number in range(count):
            yield struct.unpack_from("<IIQQQQQQ", self.data, table + 56 * number)

    def _load(self) -> None:
        segments = [*self._segments()]
        ends = [each[3] + each[6] for each in segments if each[0] == _LOAD]
        self.size = -(-max(ends) // PAGE) * PAGE
        self.uc.mem_map(BASE, self.size)
        for kind, _, offset, address, _, size, _, _ in segments:
            if kind == _LOAD:
                self.uc.mem_write(BASE + address, self.data[offset : offset + size])
        self._thread = -(-(BASE + self.size) // PAGE) * PAGE + PAGE
        self.uc.mem_map(self._thread, 2 * _SPAN)
        self.uc.reg_write(self.cpu.calls.thread, self._thread + _SPAN)
        if self.machine == elf.X86_64:  # where code finds the pointer itself
            self.uc.mem_write(self._thread + _SPAN, (self._thread + _SPAN).to_bytes(8, "little"))
        self._thread_bytes = 0
        for kind, _, offset, _, _, size, room, alignment in segments:
            if kind == _THREADS:
                self._thread_bytes = -(-room // alignment) * alignment
                begin = self._thread + _SPAN + self._in_thread(0)
                self.uc.mem_write(begin, self.data[offset : offset + size])

    def _in_thread(self, place: int) -> int:
        """Where a thread's word lies from its pointer: behind it on ARM, before it on x86."""
        return 16 + place if self.machine == elf.AARCH64 else place - self._thread_bytes

    def _sections(self, kind: int) -> Iterator[tuple[int, ...]]:
        (table,) = struct.unpack_from("<Q", self.data, 40)
        (count,) = struct.unpack_from("<H", self.data, 60)
        for number in range(count):
            found = struct.unpack_from("<IIQQQQIIQQ", self.data, table + 64 * number)
            if found[1] == kind:
                yield found

    def _read_symbols(self) -> Iterator[_Symbol]:
        (table,) = struct.unpack_from("<Q", self.data, 40)
        for _, _, _, _, offset, size, link, _, _, _ in self._sections(_SYMBOLS):
            strings = struct.unpack_from("<IIQQQQIIQQ", self.data, table + 64 * link)[4]
            rows = struct.iter_unpack("<IBBHQQ", self.data[offset : offset + size])
            for name, _, _, section, value, _ in rows:
                start = strings + name
                spelled = self.data[start : self.data.index(b"\0", start)].decode()
                yield _Symbol(spelled, section, value)

    def _relocations(self) -> Iterator[tuple[int, int, int]]:
        for _, _, _, _, offset, size, _, _, _, _ in self._sections(_RELOCATIONS):
            yield from struct.iter_unpack("<QQq", self.data[offset : offset + size])

    def _relocate(self, offset: int, kind: int, symbol: _Symbol, addend: int) -> None:
        meaning = _KINDS[self.machine][kind]
        if meaning is _IMAGE:
            value = BASE + addend
        elif meaning is _THREAD:
            value = self._in_thread(symbol.value + addend)
        elif symbol.section:
            value = BASE + symbol.value + addend
        elif symbol.name:
            value = self.cpu.stub(symbol.name) + addend
        else:
            value = addend
        self.uc.mem_write(BASE + offset, (value % 2**64).to_bytes(8, "little"))


def refuses_wide_code(library: EmulatedLibrary) -> list[int]:
    """A list that gets the address of each instruction that only CPUs with AVX have, when it comes
    to it: in 64-bit code, what begins with one of three bytes."""
    met: list[int] = []

    def look(uc: object, address: int, size: int, data: object) -> None:
        if BASE <= address < BASE + library.size:
            first = bytes(library.uc.mem_read(address, 1))
            if first in (b"\xc4", b"\xc5", b"\x62"):
                met.append(address)

    library.uc.hook_add(unicorn().UC_HOOK_CODE, look)
    return met
