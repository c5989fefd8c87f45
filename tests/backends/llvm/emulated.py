"""Code for AArch64, run on this machine: objects linked in the memory of an emulated CPU.

Source of the relocations: ELF for the Arm 64-bit Architecture (AAELF64), "Static AArch64
relocations".
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping
from typing import cast

from graphc.backends import Host
from graphc.backends.host import elf
from graphc.backends.llvm import words
from graphc.backends.llvm.backend import LlvmBackend
from graphc.backends.llvm.cache import ObjectCache
from graphc.backends.llvm.callbacks import Callbacks
from graphc.backends.llvm.compile_program import program_objects
from graphc.backends.llvm.executable import Executable
from graphc.backends.llvm.library import Library
from graphc.backends.llvm.pool import Pool
from graphc.backends.llvm.pool_text import pool_text
from graphc.backends.llvm.target import make_target
from graphc.ir.kernel import Program

from .emulated_cpu import BASE, PAGE, EmulatedCpu

NEON = make_target("aarch64-unknown-linux-gnu", "neoverse-n1", "+neon,+fullfp16,+dotprod,+lse")

# relocations
_ABS64, _PREL64, _PREL32 = 257, 260, 261
_PAGE_OF, _GOT_PAGE = (275, 276), 311
_LOW = {277: 0, 278: 0, 284: 1, 285: 2, 286: 3, 299: 4}  # ADD; loads: the offset is scaled
_GOT_LOW = 312
_BRANCH = (282, 283)


@functools.cache
def _serial_pool() -> bytes:
    """graphc_par, one chunk after another: the emulator has one CPU."""
    text = pool_text(NEON._replace(triple="aarch64-unknown-none"))
    return ObjectCache().compile(text, NEON)


class Emulated:
    """Objects linked together in an emulated CPU. `host`: see EmulatedCpu."""

    def __init__(
        self, objects: Iterable[bytes], host: Mapping[str, Callable[..., int]] | None = None
    ) -> None:
        self._cpu = EmulatedCpu("aarch64", host)
        self._uc = self._cpu.uc
        self._table: dict[int, int] = {}  # entries of the GOT, by what they hold
        found = [elf.read(data) for data in (*objects, _serial_pool())]
        self._objects = [each for each in found if each and each.machine == elf.AARCH64]
        assert len(self._objects) == len(found), "an object is not AArch64 ELF"
        self._places = self._lay_out()
        self._exports = {
            symbol.name: self._place(number, symbol)
            for number, each in enumerate(self._objects) for symbol in each.symbols
            if symbol.binding >= elf.GLOBAL and symbol.section
        }
        self._relocate_all()

    def address(self, name: str) -> int:
        """Where the emulated CPU finds a function, of the objects or of the host."""
        return self._exports[name] if name in self._exports else self._cpu.stub(name)

    def call(self, name: str, *words: int) -> int:
        """A function of integers; its result as an unsigned word."""
        return self._cpu.call(self.address(name), *words)

    # --- linking ----------------------------------------------------------------------------------

    def _lay_out(self) -> list[dict[int, int]]:
        at, places = BASE, []
        for each in self._objects:
            own = {}
            for number, section in enumerate(each.sections):
                if section.flags & elf.ALLOC:
                    alignment = max(section.alignment, 1)
                    at = -(-at // alignment) * alignment
                    own[number], at = at, at + section.size
            places.append(own)
        self._table_at = -(-at // 16) * 16
        most = sum(1 for each in self._objects for _ in each.relocations())
        size = self._table_at + 8 * most - BASE
        self._uc.mem_map(BASE, -(-size // PAGE) * PAGE)
        for own, each in zip(places, self._objects, strict=True):
            for number, place in own.items():
                self._uc.mem_write(place, each.sections[number].data)
        return places

    def _place(self, number: int, symbol: elf.Symbol) -> int:
        return self._places[number][symbol.section] + symbol.value

    def _relocate_all(self) -> None:
        for number, each in enumerate(self._objects):
            for section, relocation in each.relocations():
                if section not in self._places[number]:
                    continue  # of what is not loaded
                symbol = each.symbols[relocation.symbol]
                own = bool(symbol.section)
                target = self._place(number, symbol) if own else self.address(symbol.name)
                place = self._places[number][section] + relocation.offset
                self._relocate(place, relocation.kind, target + relocation.addend)

    def _relocate(self, place: int, kind: int, target: int) -> None:
        if kind in (_GOT_PAGE, _GOT_LOW):
            target = self._entry(target)
        if kind in (_ABS64, _PREL64, _PREL32):
            value = target - (0 if kind == _ABS64 else place)
            size = 4 if kind == _PREL32 else 8
            self._uc.mem_write(place, (value % 2 ** (8 * size)).to_bytes(size, "little"))
            return
        (word,) = memoryview(bytes(self._uc.mem_read(place, 4))).cast("I")
        if kind in _BRANCH:
            distance = target - place
            assert -(1 << 27) <= distance < 1 << 27, "a call is too far"
            word |= distance >> 2 & 0x3FFFFFF
        elif kind in (*_PAGE_OF, _GOT_PAGE):
            pages = (target >> 12) - (place >> 12)
            word |= (pages & 3) << 29 | (pages >> 2 & 0x7FFFF) << 5
        elif kind in _LOW or kind == _GOT_LOW:
            word |= (target & 0xFFF) >> (3 if kind == _GOT_LOW else _LOW[kind]) << 10
        else:
            raise AssertionError(f"a relocation is of kind {kind}")
        self._uc.mem_write(place, word.to_bytes(4, "little"))

    def _entry(self, target: int) -> int:
        if target not in self._table:
            self._table[target] = self._table_at + 8 * len(self._table)
            self._uc.mem_write(self._table[target], target.to_bytes(8, "little"))
        return self._table[target]


# --- programs -------------------------------------------------------------------------------------


class _Called(Callbacks):
    """Routine steps of a program in an emulated CPU."""

    emulated: Emulated

    @property
    def address(self) -> int:
        return self.emulated.address("routine")

    def routine(self, number: int, args: int, *others: int) -> int:
        return self._call(number, args)


class EmulatedExecutable(Executable):
    """A program in an emulated CPU; nobody else may call its code."""

    def __init__(self, program: Program, backend: LlvmBackend, host: Host) -> None:
        target, pool = backend.target, Pool(1)
        frame, objects, stats = program_objects(program, target, backend.cache(host))
        callbacks = _Called(program, host.table, backend.memory) if frame.routines else None
        functions: dict[str, Callable[..., int]] = {
            "PyEval_SaveThread": lambda *_: 0, "PyEval_RestoreThread": lambda *_: 0,
            "PyErr_CheckSignals": lambda *_: 0,
        }
        if callbacks is not None:
            functions["routine"] = callbacks.routine
        emulated = Emulated(objects, functions)
        if callbacks is not None:
            callbacks.emulated = emulated
        super().__init__(
            frame, cast(Library, emulated), pool, backend.memory, lambda: program, stats, target,
            callbacks,
        )
        self._run = lambda block: emulated.call(words.RUN, block)  # type: ignore[assignment]


class EmulatedBackend(LlvmBackend):
    """The CPU's backend for another CPU, emulated."""

    def build(self, program: Program, host: Host) -> Executable:
        return EmulatedExecutable(program, self, host)
