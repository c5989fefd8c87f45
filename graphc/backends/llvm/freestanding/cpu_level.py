"""Which code of a library this CPU can run: `graphc_cpu_level`, LLVM assembly for any CPU of an
architecture, which asks the CPU itself (x86-64: cpuid, and whether the system keeps wide registers)
or the system (ARM: what Linux says that it has).

Sources: Intel's Software Developer's Manual, volume 2, "CPUID", and volume 1, "Detection of AVX
instructions"; Linux, "ARM64 ELF hwcaps".
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from graphc.backends.llvm.freestanding.levels import needs
from graphc.backends.llvm.target import Target

SYMBOL = "graphc_cpu_level"
# Of each feature the words (of @graphc_cpu_level, below) and bits that tell it.
_X86_BITS: Mapping[str, tuple[str, int]] = {
    "sse3": ("basic", 0), "ssse3": ("basic", 9), "fma": ("basic", 12), "cx16": ("basic", 13),
    "sse4.1": ("basic", 19), "sse4.2": ("basic", 20), "movbe": ("basic", 22),
    "popcnt": ("basic", 23), "avx": ("basic", 28), "f16c": ("basic", 29),
    "sahf": ("extended", 0), "lzcnt": ("extended", 5),
    "bmi": ("wide", 3), "avx2": ("wide", 5), "bmi2": ("wide", 8), "avx512f": ("wide", 16),
    "avx512dq": ("wide", 17), "avx512cd": ("wide", 28), "avx512bw": ("wide", 30),
    "avx512vl": ("wide", 31), "avx512vnni": ("products", 11), "avx512bf16": ("more", 5),
}
# Registers that the system has to keep for a thread: XMM and YMM; masks and ZMM in two halves.
_KEPT = {"avx": (1, 2), "avx512f": (1, 2, 5, 6, 7)}
_ARM_BITS = {"lse": (8,), "fullfp16": (9, 10), "dotprod": (20,)}  # of AT_HWCAP

# A leaf that the CPU does not have would be answered with another one's words. The bytes are
# xgetbv, which is there where bit 27 says that the system uses it.
_ASK_X86 = """
define internal { i32, i32, i32, i32 } @cpuid(i32 %leaf, i32 %part) nounwind noinline {
  %told = call { i32, i32, i32, i32 } asm sideeffect "cpuid",
      "={ax},={bx},={cx},={dx},{ax},{cx},~{dirflag},~{fpsr},~{flags}"(i32 %leaf, i32 %part)
  ret { i32, i32, i32, i32 } %told
}
define hidden i32 @graphc_cpu_level() nounwind {
entry:
  %c0 = call { i32, i32, i32, i32 } @cpuid(i32 0, i32 0)
  %c1 = call { i32, i32, i32, i32 } @cpuid(i32 1, i32 0)
  %c7 = call { i32, i32, i32, i32 } @cpuid(i32 7, i32 0)
  %c71 = call { i32, i32, i32, i32 } @cpuid(i32 7, i32 1)
  %e0 = call { i32, i32, i32, i32 } @cpuid(i32 -2147483648, i32 0)
  %e1 = call { i32, i32, i32, i32 } @cpuid(i32 -2147483647, i32 0)
  %basic = extractvalue { i32, i32, i32, i32 } %c1, 2
  %last = extractvalue { i32, i32, i32, i32 } %c0, 0
  %has7 = icmp uge i32 %last, 7
  %ebx7 = extractvalue { i32, i32, i32, i32 } %c7, 1
  %wide = select i1 %has7, i32 %ebx7, i32 0
  %ecx7 = extractvalue { i32, i32, i32, i32 } %c7, 2
  %products = select i1 %has7, i32 %ecx7, i32 0
  %parts = extractvalue { i32, i32, i32, i32 } %c7, 0
  %part1 = icmp uge i32 %parts, 1
  %has71 = and i1 %has7, %part1
  %eax71 = extractvalue { i32, i32, i32, i32 } %c71, 0
  %more = select i1 %has71, i32 %eax71, i32 0
  %last_e = extractvalue { i32, i32, i32, i32 } %e0, 0
  %has_e1 = icmp uge i32 %last_e, -2147483647
  %ecx_e1 = extractvalue { i32, i32, i32, i32 } %e1, 2
  %extended = select i1 %has_e1, i32 %ecx_e1, i32 0
  %bit27 = and i32 %basic, 134217728
  %used = icmp ne i32 %bit27, 0
  br i1 %used, label %ask, label %choose
ask:
  %xcr0 = call { i32, i32 } asm sideeffect ".byte 0x0f, 0x01, 0xd0",
      "={ax},={dx},{cx},~{dirflag},~{fpsr},~{flags}"(i32 0)
  %low = extractvalue { i32, i32 } %xcr0, 0
  br label %choose
choose:
  %kept = phi i32 [ 0, %entry ], [ %low, %ask ]
"""
_ASK_ARM = """
declare i64 @getauxval(i64)
define hidden i32 @graphc_cpu_level() nounwind {
  %hwcap = call i64 @getauxval(i64 16)
  %told = trunc i64 %hwcap to i32
"""


def cpu_level_text(targets: Sequence[Target]) -> str:
    """Defines hidden `i32 @graphc_cpu_level()`: the number of the last of these (one architecture,
    the lowest first) that this CPU and its system run, or -1. It takes no memory and writes none.
    To be compiled for baseline(targets[0])."""
    if targets[0].arch == "aarch64":
        return _ASK_ARM + _choice([_arm_masks(needs(target)) for target in targets])
    return _ASK_X86 + _choice([_x86_masks(needs(target)) for target in targets])


def _x86_masks(features: Iterable[str]) -> dict[str, int]:
    """What has to be set in each word."""
    masks: dict[str, int] = {}
    for feature in features:
        word, bit = _X86_BITS[feature]
        masks[word] = masks.get(word, 0) | 1 << bit
        for register in _KEPT.get(feature, ()):
            masks["kept"] = masks.get("kept", 0) | 1 << register
    return masks


def _arm_masks(features: Iterable[str]) -> dict[str, int]:
    bits = {bit for feature in features for bit in _ARM_BITS[feature]}
    return {"told": sum(1 << bit for bit in bits)}


def _choice(masks: Sequence[Mapping[str, int]]) -> str:
    """The last level all of whose bits are set."""
    lines, found = [], "-1"
    for level, needed in enumerate(masks):
        holds = "true"
        for word, mask in sorted(needed.items()):
            value = mask - (1 << 32) if mask >> 31 else mask
            lines += [
                f"%{word}.{level} = and i32 %{word}, {value}",
                f"%{word}.all.{level} = icmp eq i32 %{word}.{level}, {value}",
                f"%{word}.so.{level} = and i1 {holds}, %{word}.all.{level}",
            ]
            holds = f"%{word}.so.{level}"
        lines.append(f"%level.{level} = select i1 {holds}, i32 {level}, i32 {found}")
        found = f"%level.{level}"
    return "".join(f"  {line}\n" for line in [*lines, f"ret i32 {found}"]) + "}\n"
