"""What CUDA C can say in PTX alone, as functions with two bodies: inline PTX for a device, and the
emulator's function for the host. The signature is one, and so is what calls it: what the emulator
runs is what NVRTC compiles.

Addresses of shared memory are 32-bit numbers, `shared_address(pointer)`. Source: PTX ISA
(docs.nvidia.com/cuda/parallel-thread-execution), by each instruction's name.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Instruction:
    """A function of the prelude. `signature` without its specifiers; `device`, `host`: bodies.
    `needs`: a preprocessor's condition, without which a device has no such function."""

    signature: str
    device: str
    host: str
    template: str = ""
    needs: str = ""

    def text(self) -> str:
        """CUDA C; C++ where GRAPHC_HOST is defined."""
        device = f"{self.template}__device__ __forceinline__ {self.signature} {{ {self.device} }}"
        if self.needs:
            device = f"#if {self.needs}\n{device}\n#endif"
        host = f"{self.template}__device__ inline {self.signature} {{ {self.host} }}"
        return f"#ifdef GRAPHC_HOST\n{host}\n#else\n{device}\n#endif\n"


_HOPPER = "__CUDA_ARCH__ >= 900"
WGMMA = "defined(__CUDA_ARCH_FEAT_SM90_ALL)"  # sm_90a


def _asm(code: str, outputs: str = "", inputs: str = "", memory: bool = False) -> str:
    """An asm statement; `memory`: the compiler moves no access across it."""
    end = ' : "memory");' if memory else ");"
    return f'asm volatile("{code}" : {outputs} : {inputs}{end}'


def _operands(constraint: str, name: str, count: int) -> str:
    return ", ".join(f'"{constraint}"({name}[{n}])' for n in range(count))


def _places(count: int, first: int = 0) -> str:
    return ", ".join(f"%{first + n}" for n in range(count))


def _ldmatrix(count: int, transposed: bool) -> Instruction:
    """`count` matrices of 8 x 8 halves; lane l gives the address of row l % 8 of matrix l / 8."""
    code = (
        f"ldmatrix.sync.aligned.m8n8.x{count}{'.trans' if transposed else ''}.shared.b16 "
        f"{{{_places(count)}}}, [%{count}];"
    )
    return Instruction(
        f"void ldmatrix_x{count}{'_trans' if transposed else ''}(unsigned* r, unsigned row)",
        _asm(code, _operands("=r", "r", count), '"r"(row)', memory=True),
        f"emulated::ldmatrix(r, row, {count}, {'true' if transposed else 'false'});",
    )


def _mma(kind: str, shape: str) -> Instruction:
    """d += a b in f32; a by rows, b by columns."""
    code = (
        f"mma.sync.aligned.{shape}.row.col.f32.{kind}.{kind}.f32 {{{_places(4)}}}, "
        f"{{{_places(4, 4)}}}, {{{_places(2, 8)}}}, {{{_places(4)}}};"
    )
    inputs = f"{_operands('r', 'a', 4)}, {_operands('r', 'b', 2)}"
    return Instruction(
        f"void mma_{kind}(float* d, const unsigned* a, const unsigned* b)",
        _asm(code, _operands("+f", "d", 4), inputs),
        f"emulated::mma(d, a, b, emulated::Numbers::{kind});",
    )


def _cp_async(size: int) -> Instruction:
    """The first `bytes` of `size` from global to shared memory, zeros behind them."""
    cached = "cg" if size == 16 else "ca"
    return Instruction(
        f"void cp_async_{size}(unsigned to, const void* from, int bytes)",
        _asm(
            f"cp.async.{cached}.shared.global [%0], [%1], {size}, %2;", "",
            '"r"(to), "l"(from), "r"(bytes)', memory=True,
        ),
        f"emulated::copy_async(to, from, {size}, bytes);",
    )


def _wgmma(kind: str, columns: int) -> Instruction:
    """d[64, columns] += a[64, 16] b[columns, 16]^T by descriptors; four warps together. LEFT and
    RIGHT are 1 where what lies one behind the other are rows of a (of b), and not k."""
    count = columns // 2
    code = (
        "{\\n.reg .pred p;\\nsetp.ne.b32 p, 1, 0;\\n"
        f"wgmma.mma_async.sync.aligned.m64n{columns}k16.f32.{kind}.{kind} {{{_places(count)}}}, "
        f"%{count}, %{count + 1}, p, 1, 1, %{count + 2}, %{count + 3};\\n}}"
    )
    return Instruction(
        f"void wgmma_{kind}_n{columns}(float* d, unsigned long long a, unsigned long long b)",
        _asm(code, _operands("+f", "d", count), '"l"(a), "l"(b), "n"(LEFT), "n"(RIGHT)'),
        f"emulated::wgmma(d, a, b, {columns}, emulated::Numbers::{kind}, LEFT, RIGHT);",
        template="template <int LEFT = 0, int RIGHT = 0> ", needs=WGMMA,
    )


HALVES = (
    Instruction(
        "float f16_float(unsigned short bits)",
        'float x; asm("cvt.f32.f16 %0, %1;" : "=f"(x) : "h"(bits)); return x;',
        "return emulated::f16_number(bits);",
    ),
    Instruction(
        "unsigned short f16_round(float x)",
        'unsigned short b; asm("cvt.rn.f16.f32 %0, %1;" : "=h"(b) : "f"(x)); return b;',
        "return emulated::f16_round(x);",
    ),
    Instruction(
        "unsigned short bf16_round(float x)",
        'unsigned short b; asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(b) : "f"(x)); return b;',
        "return emulated::bf16_round(x);",
    ),
)

def _pack(kind: str) -> Instruction:
    """Two floats, rounded; the first in the lower half."""
    return Instruction(
        f"unsigned pack_{kind}(float first, float second)",
        f'unsigned x; asm("cvt.rn.{kind}x2.f32 %0, %1, %2;" : "=r"(x) : "f"(second), "f"(first)); '
        "return x;",
        f"return emulated::{kind}_round(first) | (unsigned)emulated::{kind}_round(second) << 16;",
    )


_SCALARS = (
    _pack("bf16"),
    _pack("f16"),
    Instruction(
        "float power_of_2(float x)",
        'float y; asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x)); return y;',
        "return x < -126.0f ? 0.0f : exp2f(x);",
    ),
)
# 16 aligned bytes of which those from `first` on, below `end`, belong to a buffer: a device has
# pages, and nothing there is read by byte.
_AROUND = Instruction(
    "void load_around(unsigned* to, const void* from, int first, int end)",
    'asm volatile("ld.global.v4.u32 {%0, %1, %2, %3}, [%4];" : "=r"(to[0]), "=r"(to[1]), '
    '"=r"(to[2]), "=r"(to[3]) : "l"(from));',
    "for (int i = 0; i < 16; i++) ((unsigned char*)to)[i] = "
    "i >= first && i < end ? ((const unsigned char*)from)[i] : 0xff;",
)
_TF32 = Instruction(
    "unsigned tf32_round(unsigned x)",
    'unsigned y; asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(y) : "f"(float_bits(x))); return y;',
    # infinities and NaN as they are
    "return (x & 0x7f800000u) == 0x7f800000u ? x : (x + 0x1000u) & 0xffffe000u;",
)
_SHARED = Instruction(
    "unsigned shared_address(const void* pointer)",
    "return (unsigned)__cvta_generic_to_shared(pointer);",
    "return emulated::shared_address(pointer);",
)
_BARRIER = Instruction(
    "void named_barrier(int number, int threads)",
    _asm("bar.sync %0, %1;", "", '"r"(number), "r"(threads)', memory=True),
    "emulated::named_barrier(number, threads);",
)
_MATRICES = (
    *(_ldmatrix(count, transposed) for count in (1, 2, 4) for transposed in (False, True)),
    _mma("bf16", "m16n8k16"),
    _mma("f16", "m16n8k16"),
    _mma("tf32", "m16n8k8"),
)
_COPIES = (
    *(_cp_async(size) for size in (4, 8, 16)),
    Instruction(
        "void cp_async_commit()", _asm("cp.async.commit_group;", memory=True),
        "emulated::copy_commit();",
    ),
    Instruction(
        "void cp_async_wait()", _asm("cp.async.wait_group %0;", "", '"n"(N)', memory=True),
        "emulated::copy_wait(N);", template="template <int N> ",
    ),
)
_MBARRIERS = (
    Instruction(
        "void mbarrier_init(unsigned barrier, int arrivals)",
        _asm("mbarrier.init.shared.b64 [%0], %1;", "", '"r"(barrier), "r"(arrivals)', memory=True),
        "emulated::mbarrier_init(barrier, arrivals);",
    ),
    Instruction(
        "void mbarrier_arrive(unsigned barrier)",
        _asm("mbarrier.arrive.shared.b64 _, [%0];", "", '"r"(barrier)', memory=True),
        "emulated::mbarrier_arrive(barrier, 0);",
    ),
    Instruction(
        "void mbarrier_arrive_expecting(unsigned barrier, unsigned bytes)",
        _asm(
            "mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;", "",
            '"r"(barrier), "r"(bytes)', memory=True,
        ),
        "emulated::mbarrier_arrive(barrier, bytes);",
        needs=_HOPPER,
    ),
    Instruction(
        "void mbarrier_wait(unsigned barrier, int parity)",
        _asm(
            "{\\n.reg .pred p;\\nagain:\\nmbarrier.try_wait.parity.shared.b64 p, [%0], %1;\\n"
            "@p bra done;\\nbra again;\\ndone:\\n}",
            "", '"r"(barrier), "r"(parity)', memory=True,
        ),
        "emulated::mbarrier_wait(barrier, parity);",
        needs=_HOPPER,
    ),
    Instruction(
        "void copy_bulk(unsigned to, const void* from, unsigned bytes, unsigned barrier)",
        _asm(
            "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes "
            "[%0], [%1], %2, [%3];",
            "", '"r"(to), "l"(from), "r"(bytes), "r"(barrier)', memory=True,
        ),
        "emulated::copy_bulk(to, from, bytes, barrier);",
        needs=_HOPPER,
    ),
)
_WARPGROUPS = (
    Instruction(
        "void async_proxy_fence()", _asm("fence.proxy.async.shared::cta;", memory=True),
        "emulated::proxy_fence();", needs=_HOPPER,
    ),
    Instruction(
        "void wgmma_fence()", _asm("wgmma.fence.sync.aligned;", memory=True),
        "emulated::wgmma_fence();", needs=WGMMA,
    ),
    Instruction(
        "void wgmma_commit()", _asm("wgmma.commit_group.sync.aligned;", memory=True),
        "emulated::wgmma_commit();", needs=WGMMA,
    ),
    Instruction(
        "void wgmma_wait()", _asm("wgmma.wait_group.sync.aligned %0;", "", '"n"(N)', memory=True),
        "emulated::wgmma_wait(N);", template="template <int N> ", needs=WGMMA,
    ),
    *(_wgmma(kind, columns) for kind in ("bf16", "f16") for columns in (64, 128, 256)),
)

# A kernel's dynamic shared memory, as an array of bytes.
SHARED = """\
#ifdef GRAPHC_HOST
#define DYNAMIC_SHARED(name) unsigned char* const name = emulated::dynamic_shared()
#else
#define DYNAMIC_SHARED(name) extern __shared__ __align__(1024) unsigned char name[]
#endif
"""

# Where lines of 64 halves lie 128 bytes apart, 16-byte pieces xor-ed with the line (mode 1 of three
# swizzles), and eight such lines make a block of 1024 bytes. `panel`: bytes from 64 rows to the
# next 64, where lines go along rows; else it does not count.
_DESCRIPTOR = """\
__device__ inline unsigned long long wgmma_descriptor(unsigned address, unsigned panel = 16) {
  return (unsigned long long)((address & 0x3ffff) >> 4) | (unsigned long long)(panel >> 4) << 16 |
         64ULL << 32 | 1ULL << 62;
}
"""

# What templates begin with, behind the prelude of prelude.py.
INSTRUCTIONS = "".join((
    "#ifndef GRAPHC_INSTRUCTIONS\n#define GRAPHC_INSTRUCTIONS\n",
    *(
        each.text()
        for each in (
            *_SCALARS, _AROUND, _TF32, _SHARED, _BARRIER, *_MATRICES, *_COPIES,
            *_MBARRIERS, *_WARPGROUPS,
        )
    ),
    _DESCRIPTOR,
    "#endif\n",
))
