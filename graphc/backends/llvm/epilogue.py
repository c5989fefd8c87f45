"""Epilogues that kernels share: code for what becomes of sums, wherever these lie.

Convolutions of one net differ in how far apart images and channels lie. An epilogue whose indices
are affine gets such distances as words behind its buffers' addresses, and is a library, whose name
is its text; so it is compiled once for all kernels that have it. One that asks for more, as which
element it is at, is compiled with its kernel, and so is that of a product, which may be so small
that it takes 1% longer.
"""

from __future__ import annotations

import hashlib
from functools import lru_cache
from typing import NamedTuple

from graphc.backends.llvm.microkernel import Tile
from graphc.ir.dim import Dim, Size, unwrap
from graphc.ir.kernel import (
    Apply,
    Convolution,
    Kernel,
    Let,
    Literal,
    Load,
    Param,
    Scalar,
    Stmt,
    Store,
    Var,
    walk,
)
from graphc.ir.kernel.templates.operand import strides_of
from graphc.ir.kernel.text import print_kernel
from graphc.ir.record import replaced

SUMS = "sums"  # in the text, the buffer that acc is read from
_KEPT = 128  # kernels: each is asked about for its libraries and for its code


class Epilogue(NamedTuple):
    """`text`: a kernel whose one stage is what is done with the sum at (b, m, n); `buffers` of the
    kernel that has it, and numbers, which are the words that it is given."""

    text: str
    buffers: tuple[str, ...]
    numbers: tuple[int, ...]

    @property
    def kind(self) -> str:
        """Of its library."""
        return f"epilogue.{self.text}"


def epilogue_symbol(text: str, tile: Tile) -> str:
    """void (words, b, m, rows, n, columns, tile, pitch)."""
    digest = hashlib.sha256(f"{tile.name} {text}".encode()).hexdigest()
    return f"@graphc_epilogue_{digest[:24]}"


@lru_cache(maxsize=_KEPT)
def shared_epilogue(kernel: Kernel) -> Epilogue | None:
    """That of a contraction; None for one of its own. It is not asked of one that only stores its
    sums."""
    template = kernel.template
    if not isinstance(template, Convolution) or template.kind == "conv_last" or kernel.dims:
        return None
    body = template.epilogue
    if not _is_plain(body):
        return None
    buffers: dict[str, str] = {}
    numbers: dict[int, str] = {}

    def rename(buffer: str) -> str:
        return buffers.setdefault(buffer, f"a{len(buffers)}")

    def open_(index: Size) -> Size:
        strides = strides_of(index, ("b", "m", "n"))
        assert strides is not None
        result: Size = 0
        for stride, name in zip(strides, ("", "b", "m", "n"), strict=True):
            assert isinstance(stride, int)
            known = stride in (0, 1) or name == "n"
            size = stride if known else Dim.var(numbers.setdefault(stride, f"d{len(numbers)}"))
            result = result + size * (Dim.var(name) if name else 1)
        return unwrap(result)

    def scalar(old: Scalar) -> Scalar:
        if isinstance(old, Load):
            return replaced(old, buffer=rename(old.buffer), index=open_(old.index))
        return old

    acc = Let("acc", Load(SUMS, Dim.var("n"), template.acc_dtype))
    stage: list[Stmt] = [acc]
    for stmt in walk.rewrite(body, scalar):
        if isinstance(stmt, Store):
            stmt = replaced(stmt, buffer=rename(stmt.buffer), index=open_(stmt.index))
        stage.append(stmt)
    params = {param.name: param for param in kernel.params}
    given = [Param(SUMS, template.acc_dtype, 1, "in")]
    given += [replaced(params[old], name=new, size=1) for old, new in buffers.items()]
    found = Kernel("_", tuple(given), tuple(numbers.values()), (tuple(stage),))
    return Epilogue(print_kernel(found, name=False), tuple(buffers), tuple(numbers))


def _is_plain(body: tuple[Stmt, ...]) -> bool:
    """Whether an epilogue asks nothing but what lies at affine indices, of neighbours along n."""
    if not all(isinstance(stmt, (Let, Store)) for stmt in body):
        return False
    found = list(walk.parts(walk.roots(body)))
    if not all(isinstance(scalar, (Apply, Literal, Load, Var)) for scalar in found):
        return False
    indices = [scalar.index for scalar in found if isinstance(scalar, Load)]
    indices += [stmt.index for stmt in body if isinstance(stmt, Store)]
    return all(_is_affine(index) for index in indices)


def _is_affine(index: Size) -> bool:
    strides = strides_of(index, ("b", "m", "n"))
    if strides is None or not all(isinstance(stride, int) for stride in strides):
        return False
    return strides[3] in (0, 1)
