"""Builds contraction kernels and runs them natively, guarded on both sides of the result."""

import ctypes
import functools
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from graphc.backends.host import machine as machines
from graphc.backends.llvm import microkernel
from graphc.backends.llvm import target as targets
from graphc.backends.llvm.cache import ObjectCache
from graphc.backends.llvm.conv_reach import conv_reach, is_by_strips
from graphc.backends.llvm.emit import emit
from graphc.backends.llvm.libraries import emit_library, template_libraries
from graphc.backends.llvm.target import Target, host_target, make_target
from graphc.ir import dtypes
from graphc.ir.dim import Dim, Size, product
from graphc.ir.dtypes import DType
from graphc.ir.kernel import (
    ConvGeometry,
    Convolution,
    Kernel,
    Operand,
    Param,
    Product,
    Scalar,
    Stmt,
    Store,
    Var,
)
from graphc.ir.kernel.plan_contraction import plan_template
from graphc.ir.kernel.templates.convolution import OPERANDS
from graphc.ir.kernel.text import kernel_symbol
from graphc.ir.kernel.verify import verify_kernel
from graphc.ir.record import replaced

from .native import function_of

Array = np.ndarray
GUARD = 64  # elements on either side of a result
B, M, N, K = (Dim.var(name) for name in "bmnk")


@functools.cache
def _library(name: str, target: Target) -> bytes:
    return ObjectCache().compile(emit_library(name, target).text(), target)


def forget_machines() -> None:
    """Behind a test that has changed what a Machine is made of, and before."""
    for each in (
        machines.cpu, targets._machine, microkernel._machine, _library, conv_reach, is_by_strips,
    ):
        each.cache_clear()


def run(
    kernel: Kernel,
    buffers: Sequence[Array],
    dims: Sequence[int] = (),
    target: Target | None = None,
    threads: int = 1,
) -> None:
    """Compiles a kernel, links it with its libraries and calls it once."""
    target = target or host_target()
    cache = ObjectCache()
    objects = [cache.compile(emit(kernel, target), target)]
    objects += [_library(name, target) for name in template_libraries(kernel, target)]
    words = [buffer.ctypes.data for buffer in buffers] + list(dims)
    template = kernel.template
    assert template is not None
    plan = plan_template(template, target.machine, dict(zip(kernel.dims, dims, strict=True)))
    assert plan is not None
    memory, scratch = guarded(plan.scratch(threads), np.dtype(np.uint8), GUARD << 10)
    args = (ctypes.c_int64 * len(words))(*words)
    status = (ctypes.c_int64 * 6)(0, 0, 0, 0, scratch.ctypes.data, threads)
    function = function_of(objects, kernel_symbol(kernel), target, threads)
    function(ctypes.addressof(args), ctypes.addressof(status))
    assert unharmed(memory, GUARD << 10)


def guarded(size: int, dtype: np.dtype, guard: int = GUARD) -> tuple[Array, Array]:
    """(the whole memory, the result in it, 64-byte aligned); `unharmed` checks the rest."""
    memory = np.full(size + 2 * guard + 64, 7, dtype)
    memory = memory[-memory.ctypes.data // dtype.itemsize % 64 :][: size + 2 * guard]
    return memory, memory[guard : guard + size]


def unharmed(memory: Array, guard: int = GUARD) -> bool:
    """True if nothing was written beside the result."""
    return bool((memory[:guard] == 7).all() and (memory[-guard:] == 7).all())


def narrow_targets() -> list[Target]:
    """x86 with 256-bit and with 128-bit registers, where this machine has them."""
    host = host_target()
    if host.arch != "x86_64" or host.vector_bytes < 32:
        return []
    avx2 = "+avx,+avx2,+fma,+f16c,+bmi,+bmi2,+sse4.2"
    return [make_target(host.triple, "x86-64-v3", avx2), make_target(host.triple, "x86-64", "")]


@dataclass(frozen=True)
class Gemm:
    """A batch of products; a_t and b_t say that an operand lies transposed in memory."""

    m: int
    n: int
    k: int
    batch: int = 1
    a_t: bool = False
    b_t: bool = False
    dtype: DType = dtypes.f32
    acc: DType | None = None
    b_dtype: DType | None = None  # of the right operand, if another one

    @property
    def acc_dtype(self) -> DType:
        return self.acc or self.dtype

    @property
    def dtypes(self) -> tuple[DType, DType]:
        """Of both operands."""
        return self.dtype, self.b_dtype or self.dtype

    def kernel(self, epilogue: tuple[Stmt, ...] = (), params: tuple[Param, ...] = ()) -> Kernel:
        """Parameters A, B, C and `params`; by default the sums are stored in C."""
        m, n, k, batch = self.m, self.n, self.k, self.batch
        left = B * (m * k) + (M + K * m if self.a_t else M * k + K)
        right = B * (k * n) + (K + N * k if self.b_t else K * n + N)
        acc = self.acc_dtype
        store = (Store("C", B * (m * n) + M * n + N, Var("acc", acc)),)
        template = Product(
            batch, m, n, k, Operand("A", left, self.dtypes[0]),
            Operand("B", right, self.dtypes[1]), acc, epilogue or store,
        )
        buffers = (
            Param("A", self.dtypes[0], batch * m * k, "in"),
            Param("B", self.dtypes[1], batch * k * n, "in"),
            Param("C", acc, batch * m * n, "out"),
        )
        kernel = Kernel("gemm", buffers + params, (), (), template)
        if m * n * k * batch:
            verify_kernel(kernel)
        return kernel

    def operands(self, rng: np.random.Generator) -> tuple[Array, Array]:
        """Random operands as matrices [batch, m, k] and [batch, k, n]."""
        shapes = ((self.batch, self.m, self.k), (self.batch, self.k, self.n))
        if self.dtype.is_float:
            a, b = (rng.standard_normal(shape) for shape in shapes)
        else:
            a, b = (rng.integers(0, 100, shape) for shape in shapes)
        return a.astype(self.dtypes[0].numpy), b.astype(self.dtypes[1].numpy)

    def in_memory(self, a: Array, b: Array) -> tuple[Array, Array]:
        """The operands as they lie in memory."""
        if self.a_t:
            a = a.transpose(0, 2, 1)
        if self.b_t:
            b = b.transpose(0, 2, 1)
        return np.ascontiguousarray(a), np.ascontiguousarray(b)


@dataclass(frozen=True)
class Conv:
    """A convolution over len(input) spatial dimensions."""

    batch: int
    channels: int
    input: tuple[int, ...]
    outputs: int
    window: tuple[int, ...]
    stride: tuple[int, ...] = ()
    pad: tuple[int, ...] = ()
    dilation: tuple[int, ...] = ()
    groups: int = 1
    dtype: DType = dtypes.f32
    acc: DType | None = None
    output: tuple[int, ...] = field(init=False)

    def __post_init__(self) -> None:
        rank = len(self.input)
        for name, missing in (("stride", 1), ("pad", 0), ("dilation", 1)):
            if not getattr(self, name):
                object.__setattr__(self, name, (missing,) * rank)
        sizes = zip(self.input, self.window, self.stride, self.pad, self.dilation, strict=True)
        output = tuple((i + 2 * p - d * (w - 1) - 1) // s + 1 for i, w, s, p, d in sizes)
        object.__setattr__(self, "output", output)

    @property
    def geometry(self) -> ConvGeometry:
        return ConvGeometry(
            self.batch, self.channels, self.outputs, self.input, self.window, self.output,
            self.stride, self.pad, self.dilation, self.groups,
        )

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Of x, w and y."""
        return {
            "x": (self.batch, self.channels, *self.input),
            "w": (self.outputs, self.channels // self.groups, *self.window),
            "y": (self.batch, self.outputs, *self.output),
        }

    def kernel(
        self, kind: str, value: Scalar | None = None, more: tuple[Param, ...] = ()
    ) -> Kernel:
        """A kernel of one of the three kinds; parameters left, right, result and `more`."""
        g = self.geometry
        sizes: dict[str, Size] = {name: product(s) for name, s in self.shapes.items()}
        left, right, out = OPERANDS[kind]
        acc = self.acc or self.dtype
        template = Convolution(
            kind, g, Operand(left, g.planes(left), self.dtype),
            Operand(right, g.planes(right), self.dtype), acc, (),
        )
        m, n = template.m, template.n
        store = Store(out, B * (m * n) + M * n + N, value or Var("acc", acc))
        template = replaced(template, epilogue=(store,))
        params = (
            Param(left, self.dtype, sizes[left], "in"),
            Param(right, self.dtype, sizes[right], "in"),
            Param(out, acc, sizes[out], "out"),
            *more,
        )
        kernel = Kernel(kind, params, (), (), template)
        verify_kernel(kernel)
        return kernel
