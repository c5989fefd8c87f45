"""A CPU emulated in this process (unicorn), which shares the process's memory, address for address.

What its code calls in the C library is done by this machine's.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from graphc.backends.llvm.mapped import of_process

PAGE = 4096
_STACK_BYTES = 1 << 20
_END = 0x40_0000_0000  # where a call returns to
_STUBS = 0x10_0000_0000  # a few bytes each: a function of the host
BASE = _STUBS + PAGE  # where code may lie: near the stubs


@functools.cache
def unicorn() -> Any:
    """The emulator's package; skips the test that asks where it is missing."""
    pytest.importorskip("unicorn", reason="other CPUs are emulated by unicorn: pip install unicorn")
    import unicorn.arm64_const
    import unicorn.x86_const

    return unicorn


class _Calls(NamedTuple):
    """How functions are called: registers by unicorn's numbers, and the instruction at the end."""

    kind: int
    mode: int
    model: int
    words: tuple[int, ...]
    result: int
    floats: int  # the first; the others follow
    stack: int
    thread: int  # where thread-local memory is
    link: int | None  # the register of the return address; None: it is on the stack
    end: bytes


@functools.cache
def _calls(arch: str) -> _Calls:
    uc = unicorn()
    if arch == "aarch64":
        a = uc.arm64_const
        return _Calls(
            # with atomics, halves and products of bytes, as servers have them
            uc.UC_ARCH_ARM64, uc.UC_MODE_ARM, a.UC_CPU_ARM64_MAX,
            tuple(a.UC_ARM64_REG_X0 + number for number in range(8)), a.UC_ARM64_REG_X0,
            a.UC_ARM64_REG_D0, a.UC_ARM64_REG_SP, a.UC_ARM64_REG_TPIDR_EL0, a.UC_ARM64_REG_LR,
            (0xD65F03C0).to_bytes(4, "little"),
        )
    x = uc.x86_const
    words = "RDI RSI RDX RCX R8 R9".split()
    return _Calls(
        uc.UC_ARCH_X86, uc.UC_MODE_64, x.UC_CPU_X86_NEHALEM,
        tuple(getattr(x, f"UC_X86_REG_{name}") for name in words), x.UC_X86_REG_RAX,
        x.UC_X86_REG_XMM0, x.UC_X86_REG_RSP, x.UC_X86_REG_FS_BASE, None, b"\xc3\x90\x90\x90",
    )


class EmulatedCpu:
    """`host`: functions of this process by name, which get integer arguments and return an integer;
    what is not among them is the C library's."""

    def __init__(self, arch: str, host: Mapping[str, Callable[..., int]] | None = None) -> None:
        self.calls = calls = _calls(arch)
        self.uc = unicorn().Uc(calls.kind, calls.mode)
        self.uc.ctl_set_cpu_model(calls.model)
        self._host = dict(host or {})
        self._functions: list[Callable[[], None]] = []
        self._stub_of: dict[str, int] = {}
        self._borrowed: list[Stretch] = []
        self._failure: BaseException | None = None
        self._map_own_memory(arch)
        constants = unicorn()
        self.uc.hook_add(constants.UC_HOOK_MEM_UNMAPPED, self._borrow)
        self.uc.hook_add(constants.UC_HOOK_CODE, self._call_host, begin=_STUBS,
                         end=_STUBS + PAGE - 1)

    def call(self, address: int, *words: int) -> int:
        """A function of integers; its result as an unsigned word."""
        # a call inside a call (a callback of the host) would need another CPU
        for register, word in zip(self.calls.words, words, strict=False):
            self.uc.reg_write(register, word % 2**64)
        assert len(words) <= len(self.calls.words)
        top = (self._stack.ctypes.data + _STACK_BYTES - PAGE) // 16 * 16
        if self.calls.link is None:
            top -= 8
            self._stack[top - self._stack.ctypes.data :][:8].view(np.uint64)[0] = _END
        else:
            self.uc.reg_write(self.calls.link, _END)
        self.uc.reg_write(self.calls.stack, top)
        self._give_back()
        try:
            self.uc.emu_start(address, _END)
        except unicorn().UcError as error:
            at = self.uc.reg_read(unicorn().arm64_const.UC_ARM64_REG_PC if self.calls.link
                                  else unicorn().x86_const.UC_X86_REG_RIP)
            raise self._failure or RuntimeError(f"at {at - BASE:#x}: {error}") from None
        if self._failure is not None:
            failure, self._failure = self._failure, None
            raise failure
        return int(self.uc.reg_read(self.calls.result))

    def stub(self, name: str) -> int:
        """Where the emulated CPU finds a function of the host."""
        if name not in self._stub_of:
            given = self._host.get(name)
            made = self._library_function(name) if given is None else self._of_words(given)
            self._functions.append(made)
            self._stub_of[name] = _STUBS + 4 * len(self._stub_of)
        return self._stub_of[name]

    # --- memory -----------------------------------------------------------------------------------

    def _map_own_memory(self, arch: str) -> None:
        self._stack = np.zeros(_STACK_BYTES, np.uint8)  # routines of the host read what lies there
        self.uc.mem_map(_END, PAGE)
        self.uc.mem_map(_STUBS, PAGE)
        self.uc.mem_write(_STUBS, self.calls.end * (PAGE // 4))
        if arch == "aarch64":  # SIMD registers are there for everybody: CPACR_EL1.FPEN
            at = unicorn().arm64_const.UC_ARM64_REG_CPACR_EL1
            self.uc.reg_write(at, self.uc.reg_read(at) | 3 << 20)
        else:  # the system keeps XMM registers: CR4.OSFXSR, OSXMMEXCPT
            at = unicorn().x86_const.UC_X86_REG_CR4
            self.uc.reg_write(at, self.uc.reg_read(at) | 3 << 9)

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
                self.uc.mem_unmap(old.start, old.end - old.start)
                self._borrowed.remove(old)

    # --- functions of this process ----------------------------------------------------------------

    def _of_words(
        self, function: Callable[..., int], count: int | None = None
    ) -> Callable[[], None]:
        registers = self.calls.words[:count]

        def call() -> None:
            given = [self.uc.reg_read(register) for register in registers]
            self.uc.reg_write(self.calls.result, function(*given) % 2**64)

        return call

    def _library_function(self, name: str) -> Callable[[], None]:
        """One of the C library, by this machine's."""
        at = of_process(name)
        assert at is not None, f"the code calls {name}, which the C library does not have"
        count = (_ON_FLOATS | _ON_DOUBLES).get(name)
        if count is None:  # who takes fewer arguments does not look at the others
            return self._of_words(ctypes.CFUNCTYPE(_WORD, *[_WORD] * 6)(at), 6)
        kind = ctypes.c_float if name in _ON_FLOATS else ctypes.c_double
        function = ctypes.CFUNCTYPE(kind, *[kind] * count)(at)
        first, uc = self.calls.floats, self.uc

        def compute() -> None:
            words = [uc.reg_read(first + number).to_bytes(16, "little") for number in range(count)]
            bits = bytes(kind(function(*[kind.from_buffer_copy(word).value for word in words])))
            uc.reg_write(first, int.from_bytes(bits, "little"))

        return compute

    def _call_host(self, uc: Any, address: int, size: int, data: Any) -> None:
        try:
            self._functions[(address - _STUBS) // 4]()
        except BaseException as error:
            self._failure = error
            uc.emu_stop()


_WORD = ctypes.c_uint64
_ON_DOUBLES = dict.fromkeys("lgamma tgamma sin cos tan exp expm1 log log1p".split(), 1)
_ON_DOUBLES |= dict.fromkeys("floor ceil trunc rint nearbyint".split(), 1)
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
