"""A product's kernel taken apart: a library's product into scratch, then the epilogue as a kernel.

The result is the same function of the sums: the library rounds a sum to the operands' type where
all that the epilogue does with it is to round it so; elsewhere it stays as it was summed. Rows of
the result are padded, so that they are aligned.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from graphc.backends.cuda.cublaslt import WORKSPACE, CublasLt, Matrix, Problem
from graphc.backends.cuda.driver import Driver, Stream
from graphc.backends.cuda.source import Source
from graphc.backends.cuda.templates import gemm_kernel
from graphc.ir import dtypes
from graphc.ir.dim import Size, ceil_div, evaluate, product, substitute, unwrap
from graphc.ir.dtypes import DType
from graphc.ir.kernel import Apply, BufferRef, Kernel, Launch, Operand, Product, Scalar, Var
from graphc.ir.kernel.templates.operand import strides_of
from graphc.ir.kernel.walk import children, evaluated, scalars

_ROW = 16  # bytes that the rows of a result are multiples of
_ALIGNED = 256  # bytes: where a workspace begins


@dataclass(frozen=True, slots=True)
class LibraryProduct:
    """See steps.LibraryCall: the sums of one launch, to scratch, from where the launch behind it
    takes them."""

    library: CublasLt
    template: Product
    buffers: tuple[BufferRef, ...]  # of the operands
    dims: tuple[tuple[str, Size], ...]  # the kernel's, over the program's
    proposal: int  # see Problem

    @property
    def workspace(self) -> Size:
        """The sums, then the library's own."""
        sums = substitute(_sums(self.template), dict(self.dims))
        return unwrap(sums + _ALIGNED + WORKSPACE)

    def begin(
        self, driver: Driver, addresses: Sequence[int], dims: Mapping[str, int], workspace: int,
        stream: Stream,
    ) -> None:
        """See LibraryCall."""
        env = {name: evaluate(size, dict(dims)) for name, size in self.dims}
        asked, *starts = problem(self.template, env, self.template.tf32, self.proposal)
        size = evaluate(_sums(self.template), env)
        if not asked.k or not size:
            driver.fill(workspace, 0, 1, size, stream)
            return
        behind = workspace + -(-size // _ALIGNED) * _ALIGNED
        left, right = (at + start for at, start in zip(addresses, starts, strict=True))
        self.library.multiply(asked, left, right, workspace, behind, stream)


class Products:
    """What a library computes of a program's kernels. `chosen`: of those with these ids alone, by
    which of its proposals."""

    def __init__(self, library: CublasLt, chosen: Mapping[int, int] | None = None) -> None:
        self.library, self._chosen = library, chosen

    def only(self, chosen: Mapping[int, int]) -> Products:
        """The same, of these alone."""
        return Products(self.library, chosen)

    def take(self, kernel: Kernel) -> bool:
        """Whether a kernel is taken apart."""
        if self._chosen is not None and id(kernel) not in self._chosen:
            return False
        return isinstance(kernel.template, Product) and takes(kernel.template)

    def call(self, step: Launch) -> LibraryProduct:
        """The sums of a launch of such a kernel."""
        kernel = step.kernel
        t = kernel.template
        assert isinstance(t, Product)
        refs = {param.name: ref for param, ref in zip(kernel.params, step.buffers, strict=True)}
        buffers = refs[t.left.buffer], refs[t.right.buffer]
        dims = tuple(zip(kernel.dims, step.dims, strict=True))
        proposal = 0 if self._chosen is None else self._chosen[id(kernel)]
        return LibraryProduct(self.library, t, buffers, dims, proposal)


def takes(template: Product) -> bool:
    """Whether a library multiplies these operands where they lie: matrices, one like the other,
    at equal distances."""
    if template.k == 0 or template.left.dtype is not template.right.dtype:
        return False
    return all(
        _matrix(operand, names) is not None
        for operand, names in ((template.left, ("m", "k")), (template.right, ("k", "n")))
    ) and template.left.dtype in (dtypes.f16, dtypes.bf16, dtypes.f32, dtypes.f64)


def _matrix(operand: Operand, names: tuple[str, str]) -> tuple[Size, Size, Size, bool] | None:
    """(offset, stride of a batch, pitch, whether rows are contiguous instead of columns); None
    where it is no matrix. A library wants a pitch that is no less than a line."""
    found = strides_of(operand.index, ("b", *names))
    if found is None:
        return None
    offset, batch, row, column = found
    if column == 1 and row != 0:
        return offset, batch, row, False
    if row == 1 and column != 0:
        return offset, batch, column, True
    return None


def stored(template: Product) -> DType:
    """The type of the sums in scratch."""
    dtype = template.left.dtype
    bare = any(_is_sum(scalar) for stmt in template.epilogue for scalar in scalars(stmt))
    rounded = all(
        isinstance(scalar, Apply) and scalar.op == "cast" and scalar.dtype is dtype
        for _, scalar in evaluated(template.epilogue) if any(map(_is_sum, children(scalar)))
    )
    return dtype if rounded and not bare else template.acc_dtype


def _is_sum(scalar: Scalar) -> bool:
    return isinstance(scalar, Var) and scalar.name == "acc"


def pitch(template: Product) -> Size:
    """Elements of a row of sums."""
    quantum = _ROW // stored(template).itemsize
    return unwrap(ceil_div(template.n, quantum) * quantum)


def _sums(template: Product) -> Size:
    """Bytes of all."""
    rows = product((template.batch, template.m, pitch(template)))
    return unwrap(rows * stored(template).itemsize)


def problem(
    template: Product, dims: Mapping[str, int], tf32: bool = False, proposal: int = 0
) -> tuple[Problem, int, int]:
    """What the library is asked, and where in their buffers the operands begin, in bytes; for
    values of the kernel's dims."""
    env = dict(dims)
    t, size = template, template.left.dtype.itemsize
    sides = []
    for operand, names in ((t.left, ("m", "k")), (t.right, ("k", "n"))):
        found = _matrix(operand, names)
        assert found is not None
        offset, stride, step = (evaluate(each, env) for each in found[:3])
        sides.append((offset * size, Matrix(operand.dtype.name, step, stride, found[3])))
    batch, m, n, k = (evaluate(each, env) for each in (t.batch, t.m, t.n, t.k))
    row = evaluate(pitch(t), env)
    compute = "64F" if t.acc_dtype is dtypes.f64 else "32F_FAST_TF32" if tf32 else "32F"
    (left_at, left), (right_at, right) = sides
    result = Matrix(stored(t).name, row, m * row)
    asked = Problem(batch, m, n, k, left, right, result, compute, proposal)
    return asked, left_at, right_at


def epilogue(kernel: Kernel) -> Source:
    """The kernel of what a product's epilogue does with the sums in its scratch."""
    t = kernel.template
    assert isinstance(t, Product)
    return gemm_kernel.finish(kernel, t, stored(t), pitch(t))
