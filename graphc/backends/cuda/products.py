"""Which products a library computes, as steps: its sums go to the launch's scratch, from where the
kernel of the epilogue takes them (`apart.py`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from graphc.backends.cuda import apart
from graphc.backends.cuda.cublaslt import WORKSPACE, Problem
from graphc.backends.cuda.driver import Driver, Stream
from graphc.ir.dim import Size, ceil_div, evaluate, product, unwrap
from graphc.ir.kernel import BufferRef, Kernel, Launch, Product

LEAST = 1 << 22  # multiplications; for fewer, a call of the library costs more than it saves
_ALIGNMENT = 256


class Multiplies(Protocol):
    """A library."""

    def multiply(
        self, problem: Problem, left: int, right: int, result: int, workspace: int, stream: Stream
    ) -> None:
        """See CublasLt."""


@dataclass(frozen=True, slots=True)
class ProductCall:
    """See LibraryCall: the sums of a product, at the beginning of its workspace. `sums`: their
    bytes; `dims`: the kernel's, over the program's."""

    template: Product
    buffers: tuple[BufferRef, ...]  # of the left operand, and of the right one
    dims: Mapping[str, Size]
    sums: Size
    library: Multiplies
    # what the library is asked, by the values of the dims
    _asked: dict[tuple[int, ...], tuple[Problem, int, int, int]] = field(default_factory=dict)

    @property
    def workspace(self) -> Size:
        """Behind the sums, what the library may use."""
        return self.sums + WORKSPACE

    def begin(
        self, driver: Driver, addresses: Sequence[int], dims: Mapping[str, int], workspace: int,
        stream: Stream,
    ) -> None:
        """See LibraryCall."""
        values = {name: evaluate(size, dims) for name, size in self.dims.items()}
        key = tuple(values.values())
        if key not in self._asked:
            sums = evaluate(self.sums, dims)
            self._asked[key] = *apart.problem(self.template, values), sums
        problem, left, right, sums = self._asked[key]
        self.library.multiply(
            problem, addresses[0] + left, addresses[1] + right, workspace, workspace + sums, stream
        )


def taken(kernel: Kernel) -> bool:
    """Whether a library computes a kernel's sums, where there is one."""
    t = kernel.template
    if not isinstance(t, Product) or not apart.takes(t):
        return False
    work = unwrap(product((t.batch, t.m, t.n, t.k)))
    return not isinstance(work, int) or work >= LEAST


def call(step: Launch, sums: Size, library: Multiplies) -> ProductCall:
    """The first step of a launch that is taken apart; `sums`: bytes of its scratch, over the
    program's dims."""
    t = step.kernel.template
    assert isinstance(t, Product)
    names = [param.name for param in step.kernel.params]
    sides = tuple(step.buffers[names.index(side.buffer)] for side in (t.left, t.right))
    dims = dict(zip(step.kernel.dims, step.dims, strict=True))
    aligned = unwrap(ceil_div(sums, _ALIGNMENT) * _ALIGNMENT)
    return ProductCall(t, sides, dims, aligned, library)
