"""Code for AArch64, run on this machine: objects in the memory of an emulated CPU (unicorn), which
shares this process's memory, address for address.

What the code calls in the C library is done by this machine's. Source of the relocations: ELF for
the Arm 64-bit Architecture (AAELF64), "Static AArch64 relocations".
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np
import pytest

from graphc.backends import Host
from graphc.backends.host import elf
from graphc.backends.llvm import words
from graphc.backends.llvm.backend import LlvmBackend
from graphc.backends.llvm.cache import ObjectCache
from graphc.backends.llvm.callbacks import Callbacks
from graphc.backends.llvm.compile_program import program_objects
from graphc.backends.llvm.executable import Executable
from graphc.backends.llvm.library import Library
from graphc.backends.llvm.mapped import of_process
from graphc.backends.llvm.pool import Pool
from graphc.backends.llvm.pool_text import pool_text
from graphc.backends.llvm.target import make_target
from graphc.ir.kernel import Program

NEON = make_target("aarch64-unknown-linux-gnu", "neoverse-n1", "+neon,+fullfp16,+dotprod,+lse")

_AARCH64 = 183
_PAGE = 4096
_STACK_BYTES = 1 << 20
_END = 0x40_0000_0000  # where a call returns to
_STUBS = 0x10_0000_0000  # four bytes each: a function of the host; near the code, which is behind
_BASE = _STUBS + _PAGE
_RETURN = (0xD65F03C0).to_bytes(4, "little")
# relocations
_ABS64, _PREL64, _PREL32 = 257, 260, 261
_PAGE_OF, _GOT_PAGE = (275, 276), 311
_LOW = {277: 0, 278: 0, 284: 1, 285: 2, 286: 3, 299: 4}  # ADD; loads: the offset is scaled
_GOT_LOW = 312
_BRANCH = (282, 283)


@functools.cache
def unicorn() -> Any:
    """The emulator's package; skips the test that asks where it is missing."""
    pytest.importorskip("unicorn", reason="AArch64 code runs on unicorn: pip install unicorn")
    import unicorn.arm64_const

    return unicorn


@functools.cache
def _serial_pool() -> bytes:
    """graphc_par, one chunk after another: the emulator has one CPU."""
    text = pool_text(NEON._replace(triple="aarch64-unknown-none"))
    return ObjectCache().compile(text, NEON)


class Emulated:
    """Objects linked together in an emulated CPU. `host`: functions of this process by name, which
    get integer arguments and return an integer."""

    def __init__(
        self, objects: Iterable[bytes], host: Mapping[str, Callable[..., int]] | None = None
    ) -> None:
        self._uc = unicorn().Uc(unicorn().UC_ARCH_ARM64, unicorn().UC_MODE_ARM)
        # with atomics, halves and products of bytes, as servers have them
        self._uc.ctl_set_cpu_model(unicorn().arm64_const.UC_CPU_ARM64_MAX)
        self._host = dict(host or {})
        self._functions: list[Callable[[], None]] = []
        self._stub_of: dict[str, int] = {}
        self._table: dict[int, int] = {}  # entries of the GOT, by what they hold
        found = [elf.read(data) for data in (*objects, _serial_pool())]
        self._objects = [each for each in found if each is not None and each.machine == _AARCH64]
        assert len(self._objects) == len(found), "an object is not AArch64 ELF"
        self._map_own_memory()
        self._places = self._lay_out()
        self._exports = {
            symbol.name: self._place(number, symbol)
            for number, each in enumerate(self._objects) for symbol in each.symbols
            if symbol.binding >= elf.GLOBAL and symbol.section
        }
        self._relocate_all()
        self._borrowed: list[Stretch] = []
        self._failure: BaseException | None = None
        constants = unicorn()
        self._uc.hook_add(constants.UC_HOOK_MEM_UNMAPPED, self._borrow)
        self._uc.hook_add(constants.UC_HOOK_CODE, self._call_host, begin=_STUBS,
                          end=_STUBS + _PAGE - 1)

    def address(self, name: str) -> int:
        """Where the emulated CPU finds a function, of the objects or of the host."""
        return self._exports[name] if name in self._exports else self._stub(name)

    def call(self, name: str, *words: int) -> int:
        """A function of integers; its result as an unsigned word."""
        registers = unicorn().arm64_const
        # a call inside a call (a callback of the host) would need another CPU
        for number, word in enumerate(words):
            self._uc.reg_write(registers.UC_ARM64_REG_X0 + number, word % 2**64)
        top = self._stack.ctypes.data + _STACK_BYTES - _PAGE
        self._uc.reg_write(registers.UC_ARM64_REG_SP, top // 16 * 16)
        self._uc.reg_write(registers.UC_ARM64_REG_LR, _END)
        self._give_back()
        try:
            self._uc.emu_start(self.address(name), _END)
        except unicorn().UcError as error:
            at = self._uc.reg_read(registers.UC_ARM64_REG_PC)
            raise self._failure or RuntimeError(f"{name} at {at - _BASE:#x}: {error}") from None
        if self._failure is not None:
            failure, self._failure = self._failure, None
            raise failure
        return int(self._uc.reg_read(registers.UC_ARM64_REG_X0))

    # --- memory -----------------------------------------------------------------------------------

    def _map_own_memory(self) -> None:
        constants = unicorn()
        self._stack = np.zeros(_STACK_BYTES, np.uint8)  # routines of the host read what lies there
        self._uc.mem_map(_END, _PAGE)
        self._uc.mem_map(_STUBS, _PAGE)
        self._uc.mem_write(_STUBS, _RETURN * (_PAGE // 4))
        # SIMD registers are there for everybody: CPACR_EL1.FPEN
        at = constants.arm64_const.UC_ARM64_REG_CPACR_EL1
        self._uc.reg_write(at, self._uc.reg_read(at) | 3 << 20)

    def _borrow(self, uc: Any, access: int, address: int, size: int, value: int, data: Any) -> bool:
        """The stretch of this process's memory that the code has come to; False: there is none."""
        if access == unicorn().UC_MEM_FETCH_UNMAPPED:
            return False
        writes = access == unicorn().UC_MEM_WRITE_UNMAPPED
        stretch = next((each for each in _own_memory() if each.start <= address < each.end), None)
        if stretch is None or writes > stretch.may_write:
            return False
        # beside what is borrowed already
        start = max([stretch.start, *(old.end for old in self._borrowed if old.end <= address)])
        end = min([stretch.end, *(old.start for old in self._borrowed if old.start > address)])
        rights = unicorn().UC_PROT_READ | (unicorn().UC_PROT_WRITE if stretch.may_write else 0)
        uc.mem_map_ptr(start, end - start, rights, ctypes.c_void_p(start))
        self._borrowed.append(Stretch(start, end, stretch.may_write))
        return True

    def _give_back(self) -> None:
        """What this process has given up since the last call."""
        present = _own_memory() if self._borrowed else []
        for old in [*self._borrowed]:
            if not any(
                now.start <= old.start and old.end <= now.end and now.may_write == old.may_write
                for now in present
            ):
                self._uc.mem_unmap(old.start, old.end - old.start)
                self._borrowed.remove(old)

    # --- linking ----------------------------------------------------------------------------------

    def _lay_out(self) -> list[dict[int, int]]:
        at, places = _BASE, []
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
        size = self._table_at + 8 * most - _BASE
        self._uc.mem_map(_BASE, -(-size // _PAGE) * _PAGE)
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

    # --- functions of this process ----------------------------------------------------------------

    def _stub(self, name: str) -> int:
        if name not in self._stub_of:
            given = self._host.get(name)
            made = self._library_function(name) if given is None else self._of_words(given, 8)
            self._functions.append(made)
            self._stub_of[name] = _STUBS + 4 * len(self._stub_of)
        return self._stub_of[name]

    def _of_words(self, function: Callable[..., int], count: int) -> Callable[[], None]:
        registers, uc = unicorn().arm64_const, self._uc

        def call() -> None:
            given = [uc.reg_read(registers.UC_ARM64_REG_X0 + number) for number in range(count)]
            uc.reg_write(registers.UC_ARM64_REG_X0, function(*given) % 2**64)

        return call

    def _library_function(self, name: str) -> Callable[[], None]:
        """One of the C library, by this machine's."""
        at = of_process(name)
        assert at is not None, f"the code calls {name}, which the C library does not have"
        if name in _ON_WORDS:
            count = _ON_WORDS[name]
            words = ctypes.CFUNCTYPE(ctypes.c_uint64, *[ctypes.c_uint64] * count)(at)
            return self._of_words(words, count)
        kind = ctypes.c_float if name in _ON_FLOATS else ctypes.c_double
        count = (_ON_FLOATS | _ON_DOUBLES)[name]
        function = ctypes.CFUNCTYPE(kind, *[kind] * count)(at)
        first, uc = unicorn().arm64_const.UC_ARM64_REG_D0, self._uc

        def compute() -> None:
            words = [uc.reg_read(first + number).to_bytes(8, "little") for number in range(count)]
            bits = bytes(kind(function(*[kind.from_buffer_copy(word).value for word in words])))
            uc.reg_write(first, int.from_bytes(bits, "little"))

        return compute

    def _call_host(self, uc: Any, address: int, size: int, data: Any) -> None:
        try:
            self._functions[(address - _STUBS) // 4]()
        except BaseException as error:
            self._failure = error
            uc.emu_stop()


_ON_WORDS = {"memcpy": 3, "memmove": 3, "memset": 3, "memcmp": 3}
_ON_DOUBLES = dict.fromkeys("lgamma tgamma sin cos tan exp expm1 log log1p".split(), 1)
_ON_DOUBLES |= dict.fromkeys("fmod pow atan2 hypot".split(), 2)
_ON_FLOATS = {f"{name}f": count for name, count in _ON_DOUBLES.items()}


class Stretch(NamedTuple):
    """Readable memory of this process."""

    start: int
    end: int
    may_write: bool


def _own_memory() -> list[Stretch]:
    found = []
    for line in Path("/proc/self/maps").read_text().splitlines():
        span, rights, *rest = line.split()
        if rights[0] == "r" and rest[-1] not in ("[vsyscall]", "[vvar]", "[vdso]"):
            start, end = (int(part, 16) for part in span.split("-"))
            found.append(Stretch(start, end, rights[1] == "w"))
    return found


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
