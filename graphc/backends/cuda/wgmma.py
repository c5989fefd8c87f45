"""wgmma in the forms that products of products need, as instructions of a kernel's own text: each
has a register for each sum in its signature, so that only those that are used are compiled.

PTX ISA, "Asynchronous warpgroup level matrix instructions": four warps multiply; what they read
of registers is ordered by wgmma_fence(), and what they have written by wgmma_wait().
"""

from __future__ import annotations

from graphc.backends.cuda.instructions import WGMMA, Instruction

# Which of the instructions of a text is called.
COLUMNS = "template <int COUNT> struct Columns {};\n"

# Registers of a group are in use until it is waited for, and settled before a fence: the compiler
# moves what it does with them across neither.
SETTLED = "".join(
    Instruction(
        f"void settle({kind}* registers)",
        "_Pragma(\"unroll\") for (int i = 0; i < COUNT; i++) "
        f'asm volatile("" : "+{letter}"(registers[i]) : : "memory");',
        "", template="template <int COUNT> ",
    ).text()
    for kind, letter in (("float", "f"), ("unsigned", "r"))
)

# Where rows of 64 halves lie 128 bytes apart, as wgmma_descriptor's do, but k goes from row to row:
# `panel` is from 64 columns to the next 64, in bytes.
ROWS_DESCRIPTOR = """
__device__ __forceinline__ unsigned long long wgmma_rows(unsigned address, unsigned panel) {
  return (unsigned long long)((address & 0x3ffff) >> 4) | (unsigned long long)(panel >> 4) << 16 |
      64ULL << 32 | 1ULL << 62;
}
"""


def _names(first: int, count: int) -> str:
    return ", ".join(f"%{first + n}" for n in range(count))


def _instruction(kind: str, columns: int) -> str:
    return f"wgmma.mma_async.sync.aligned.m64n{columns}k16.f32.{kind}.{kind}"


def of_shared(kind: str, columns: int) -> str:
    """d[64, columns] (+)= a[64, 16] b[columns, 16]^T, both by wgmma_descriptor."""
    count = columns // 2
    sums = ", ".join(f'"+f"(d[{n}])' for n in range(count))
    return Instruction(
        f"void wgmma_shared(Columns<{columns}>, float* d, unsigned long long a, "
        "unsigned long long b, bool accumulate)",
        f'asm volatile("{{\\n.reg .pred p;\\nsetp.ne.b32 p, %{count + 2}, 0;\\n'
        f"{_instruction(kind, columns)} {{{_names(0, count)}}}, %{count}, %{count + 1}, p, 1, 1, "
        f'0, 0;\\n}}" : {sums} : "l"(a), "l"(b), "r"((int)accumulate));',
        f"emulated::wgmma({{a, b, nullptr, accumulate, false, false}}, d, {columns}, "
        f"emulated::Numbers::{kind});",
        needs=WGMMA,
    ).text()


def of_registers(kind: str, columns: int) -> str:
    """d[64, columns] += a[64, 16] b[16, columns]: a as its fragment, which lies as a pair of
    columns of a result's does; b by wgmma_rows."""
    count = columns // 2
    sums = ", ".join(f'"+f"(d[{n}])' for n in range(count))
    left = ", ".join(f'"r"(a[{n}])' for n in range(4))
    return Instruction(
        f"void wgmma_registers(Columns<{columns}>, float* d, const unsigned* a, "
        "unsigned long long b)",
        f'asm volatile("{{\\n.reg .pred p;\\nsetp.ne.b32 p, 1, 0;\\n'
        f"{_instruction(kind, columns)} {{{_names(0, count)}}}, {{{_names(count, 4)}}}, "
        f'%{count + 4}, p, 1, 1, 1;\\n}}" : {sums} : {left}, "l"(b));',
        f"emulated::wgmma({{0, b, a, true, false, true}}, d, {columns}, "
        f"emulated::Numbers::{kind});",
        needs=WGMMA,
    ).text()
