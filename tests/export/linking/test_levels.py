"""Which code of a library a CPU runs: asked on emulated CPUs that answer what the test says."""

from __future__ import annotations

import ctypes
import itertools
from collections.abc import Iterable, Mapping
from typing import Any

import pytest

from graphc.backends.llvm.cache import ObjectCache
from graphc.backends.llvm.freestanding import cpu_level, levels
from graphc.backends.llvm.freestanding.levels import (
    baseline,
    identifier,
    level_name,
    needs,
    ordered,
    target_named,
)
from graphc.backends.llvm.library import Library
from graphc.backends.llvm.target import Target, host_target, require_runnable
from graphc.export.aot.linking import link_shared, linkers
from tests.backends.llvm.emulated_cpu import unicorn
from tests.export.emulated_library import EmulatedLibrary

X86 = [name for name in levels._NAMED if name.startswith("x86")]
ARM = [name for name in levels._NAMED if name.startswith("aarch64")]
SHOWN = """
declare hidden i32 @graphc_cpu_level()
define i64 @level() nounwind {
  %level = call i32 @graphc_cpu_level()
  %wide = sext i32 %level to i64
  ret i64 %wide
}
"""


def objects(targets: Iterable[Target]) -> list[bytes]:
    found = [*targets]
    cache, lowest = ObjectCache(), baseline(found[0])
    return [cache.compile(text, lowest) for text in (cpu_level.cpu_level_text(found), SHOWN)]


def library(names: Iterable[str], **host: Any) -> EmulatedLibrary:
    targets = ordered(names)
    if not linkers.available(targets[0].arch):
        pytest.skip(f"there is no linker for {targets[0].arch} here")
    linked = link_shared(objects(targets), ["level"], targets[0].triple, "libm.so")
    return EmulatedLibrary(linked, host)


# What a CPU says: leaf and part -> eax, ebx, ecx, edx. Features as in /proc/cpuinfo of such CPUs.
_BASIC_V2 = 1 << 0 | 1 << 9 | 1 << 13 | 1 << 19 | 1 << 20 | 1 << 23
_BASIC_V3 = _BASIC_V2 | 1 << 12 | 1 << 22 | 1 << 26 | 1 << 27 | 1 << 28 | 1 << 29
_WIDE_V3 = 1 << 3 | 1 << 5 | 1 << 8
_WIDE_V4 = _WIDE_V3 | 1 << 16 | 1 << 17 | 1 << 28 | 1 << 30 | 1 << 31
_EXTENDED, _EXTENDED_V3 = 1 << 0, 1 << 0 | 1 << 5
Words = Mapping[tuple[int, int], tuple[int, int, int, int]]


def told(
    basic: int, wide: int = 0, products: int = 0, more: int = 0, extended: int = _EXTENDED_V3,
    last: int = 0x20, parts: int = 2,
) -> Words:
    """Leaves beyond the last are all ones: what a CPU answers there means something else."""
    ones = (2**32 - 1,) * 4
    return {
        (0, 0): (last, 0, 0, 0), (1, 0): (0, 0, basic, 0),
        (7, 0): (parts, wide, products, 0) if last >= 7 else ones,
        (7, 1): (more, 0, 0, 0) if last >= 7 and parts >= 1 else ones,
        (0x80000000, 0): (0x80000008, 0, 0, 0), (0x80000001, 0): (0, 0, extended, 0),
    }


_YMM, _ZMM = 0x7, 0xE7
CPUS: dict[str, tuple[Words, int, str | None]] = {
    "K8": (told(1, extended=_EXTENDED, last=1), 0, "x86-64"),
    "Nehalem": (told(_BASIC_V2, extended=_EXTENDED, last=0xB), 0, "x86-64-v2"),
    "Sandy Bridge": (told(_BASIC_V3 & ~(1 << 12 | 1 << 22 | 1 << 29), last=0xD), _YMM, "x86-64-v2"),
    "Haswell": (told(_BASIC_V3, _WIDE_V3, last=0xD, parts=0), _YMM, "x86-64-v3"),
    "Haswell, a system without AVX": (told(_BASIC_V3, _WIDE_V3, last=0xD), 1 << 0, "x86-64-v2"),
    "Haswell, xsave off": (told(_BASIC_V3 & ~(1 << 27), _WIDE_V3, last=0xD), _YMM, "x86-64-v2"),
    "Haswell without lzcnt": (told(_BASIC_V3, _WIDE_V3, extended=_EXTENDED), _YMM, "x86-64-v2"),
    "Skylake-X": (told(_BASIC_V3, _WIDE_V4, last=0x16, parts=0), _ZMM, "x86-64-v4"),
    "Skylake-X, a system without AVX-512": (told(_BASIC_V3, _WIDE_V4), _YMM, "x86-64-v3"),
    "Skylake-X, masks alone": (told(_BASIC_V3, _WIDE_V4), _YMM | 1 << 5, "x86-64-v3"),
    "Knights Landing": (told(_BASIC_V3, _WIDE_V3 | 1 << 16 | 1 << 28), _ZMM, "x86-64-v3"),
    "Cascade Lake": (told(_BASIC_V3, _WIDE_V4, 1 << 11, parts=0), _ZMM, "x86-64-v4+vnni"),
    "Ice Lake": (told(_BASIC_V3, _WIDE_V4, 1 << 11, 0), _ZMM, "x86-64-v4+vnni"),
    "Sapphire Rapids": (told(_BASIC_V3, _WIDE_V4, 1 << 11, 1 << 5), _ZMM, "x86-64-v4+bf16"),
    "Alder Lake": (told(_BASIC_V3, _WIDE_V3, 0, 1 << 4), _YMM, "x86-64-v3"),
}


def emulate(found: EmulatedLibrary, words: Words, kept: int) -> None:
    """The emulated CPU answers so."""
    x86 = unicorn().x86_const
    registers = [getattr(x86, f"UC_X86_REG_{name}") for name in ("RAX", "RBX", "RCX", "RDX")]

    def cpuid(uc: Any, data: Any) -> int:
        key = uc.reg_read(registers[0]) & 0xFFFFFFFF, uc.reg_read(registers[2]) & 0xFFFFFFFF
        for register, word in zip(registers, words[key], strict=True):
            uc.reg_write(register, word)
        return 1  # done here

    def xgetbv(uc: Any, address: int, size: int, data: Any) -> None:
        assert words[1, 0][2] >> 27 & 1, "asked a CPU that does not have the instruction"
        uc.reg_write(registers[0], kept)
        uc.reg_write(registers[3], 0)
        uc.reg_write(x86.UC_X86_REG_RIP, address + 3)

    constants = unicorn()
    found.uc.hook_add(constants.UC_HOOK_INSN, cpuid, None, 1, 0, x86.UC_X86_INS_CPUID)
    (place,) = found.places(b"\x0f\x01\xd0")
    found.uc.hook_add(constants.UC_HOOK_CODE, xgetbv, begin=place, end=place)


def chosen(found: EmulatedLibrary, names: Iterable[str]) -> str | None:
    number = found.call("level")
    return None if number == 2**64 - 1 else level_name(ordered(names)[number])


@pytest.mark.parametrize("cpu", CPUS)
def test_the_best_level_of_a_cpu(cpu: str) -> None:
    words, kept, expected = CPUS[cpu]
    found = library(X86)
    emulate(found, words, kept)
    assert chosen(found, X86) == expected


def test_a_cpu_below_all_levels() -> None:
    found = library(["x86-64-v4", "x86-64-v3"])
    words, kept, _ = CPUS["Nehalem"]
    emulate(found, words, kept)
    assert chosen(found, ["x86-64-v3", "x86-64-v4"]) is None


def test_it_is_one_of_those_in_the_library() -> None:
    names = ["x86-64-v2", "x86-64-v4"]
    found = library(names)
    words, kept, _ = CPUS["Haswell"]
    emulate(found, words, kept)
    assert chosen(found, names) == "x86-64-v2"


@pytest.mark.parametrize("hwcap, expected", [
    (0b11, "aarch64"), (0b11 | 1 << 8 | 1 << 9 | 1 << 10 | 1 << 20, "aarch64+dotprod"),
    (0b11 | 1 << 8 | 1 << 10 | 1 << 20, "aarch64"), (0b11 | 1 << 8 | 1 << 9 | 1 << 10, "aarch64"),
])
def test_the_best_level_of_an_arm_cpu(hwcap: int, expected: str) -> None:
    found = library(ARM, getauxval=lambda kind, *_: hwcap if kind == 16 else 0)
    assert chosen(found, ARM) == expected


def test_this_machine() -> None:
    """What the library finds is what LLVM says of this CPU."""
    names = X86 if host_target().arch == "x86_64" else ARM
    code = Library(objects(ordered(names)))
    number = ctypes.CFUNCTYPE(ctypes.c_int64)(code.address("level"))()
    assert ordered(names)[number] == target_named("native")
    require_runnable(target_named("native"))


# --- names ----------------------------------------------------------------------------------------


def test_names() -> None:
    assert [level_name(target_named(name)) for name in levels._NAMED] == [*levels._NAMED]
    assert identifier(target_named("x86-64-v4+bf16")) == "x86_64_v4_bf16"
    assert len({identifier(target_named(name)) for name in levels._NAMED}) == len(levels._NAMED)
    assert [target_named(name).vector_bytes for name in X86] == [16, 16, 32, 64, 64, 64]
    assert [target_named(name).has_fma for name in X86] == [False, False, True, True, True, True]
    assert all(target_named(name).has_fma for name in ARM)
    assert baseline(target_named("x86-64-v4")) == target_named("x86-64")


def test_levels_grow() -> None:
    for names in (X86, ARM):
        found = [needs(target_named(name)) for name in names]
        assert all(low < high for low, high in itertools.pairwise(found))


def test_order_and_doubles() -> None:
    names = ["x86-64-v4", "x86-64-v2", "x86-64-v4"]
    assert [level_name(each) for each in ordered(names)] == ["x86-64-v2", "x86-64-v4"]
    assert target_named("native") in ordered(["native"])


@pytest.mark.parametrize("names, said", [
    ([], "at least one target: x86-64, "), (["sse9"], "no target 'sse9'. Cure: one of x86-64, "),
    (["x86-64-v4+amx"], "no target 'x86-64-v4.amx': libraries do not use matrix units. Cure"),
    (["x86-64", "aarch64"], "of aarch64 and x86_64. Cure: a library for each"),
])
def test_what_is_refused(names: list[str], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        ordered(names)
