"""Matrix products."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from ... import tf32
from ...dim import Size, evaluate, product
from ...dtypes import DType
from ...record import record
from ..lanes import Array
from ..nest import Stmt
from .operand import Operand, acc_text, read_acc
from .term import Term

if TYPE_CHECKING:
    from ..text import Reader
    from ..verify import Verifier


@record
class Product:
    """For every (b, m, n): acc = the sum over k of left * right.

    The index of `left` is over b, m and k, that of `right` over b, k and n; both are affine in m,
    n and k, or the right operand lies in panels (`panels_of`). Operands are summed in `acc_dtype`:
    f32 for f16, bf16 and f32; f64. `tf32`: f32 operands are rounded to TF32 first.
    """

    keywords: ClassVar = ("gemm",)

    batch: Size
    m: Size
    n: Size
    k: Size
    left: Operand
    right: Operand
    acc_dtype: DType
    epilogue: tuple[Stmt, ...]
    tf32: bool = False

    @property
    def operands(self) -> tuple[Operand, Operand]:
        """What is read."""
        return self.left, self.right

    @property
    def place(self) -> tuple[Size, Size] | None:
        """The rows and columns that the sums lie in, for Partials."""
        return product((self.batch, self.m)), self.n

    def as_rows(self, values: Array) -> Array:
        """Values for every b, m and n, in their rows and columns."""
        return values.reshape(-1, values.shape[2])

    @property
    def sizes(self) -> tuple[Size, ...]:
        """All that may be symbolic."""
        return self.batch, self.m, self.n, self.k

    @property
    def multiplications(self) -> Size:
        return product((self.batch, self.m, self.n, self.k))

    def lines(self) -> list[str]:
        """The text of all but the epilogue."""
        return [
            f"gemm batch [{self.batch}] m [{self.m}] n [{self.n}] k [{self.k}] "
            f"acc {acc_text(self.acc_dtype, self.tf32)} {{",
            f"  left {self.left.text()}",
            f"  right {self.right.text()}",
        ]

    @classmethod
    def read(cls, reader: Reader, word: str) -> Product:
        """The template whose keyword has just been read."""
        sizes: list[Size] = []
        for name in ("batch", "m", "n", "k"):
            reader.expect(name)
            sizes.append(reader.size())
        reader.expect("acc")
        acc, narrow = read_acc(reader)
        reader.expect("{", "left")
        left = Operand.read(reader)
        reader.expect("right")
        right = Operand.read(reader)
        batch, m, n, k = sizes
        return cls(batch, m, n, k, left, right, acc, reader.epilogue(acc), narrow)

    def term(self) -> Term:
        """What is summed."""
        return Term((("k", self.k),), self.left.index, self.right.index)

    def verify(self, verifier: Verifier) -> None:
        extents = {"b": self.batch, "m": self.m, "n": self.n, "k": self.k}
        for side, operand, names in (("left", self.left, "bmk"), ("right", self.right, "bkn")):
            operand.verify(side, {name: extents[name] for name in names}, verifier)

    def sums(self, memory: Mapping[str, Array], env: Mapping[str, int]) -> Iterator[Array]:
        """acc[m, n] for every b."""
        acc = self.acc_dtype.numpy
        m, n, k = (evaluate(size, env) for size in (self.m, self.n, self.k))
        rows, columns, inner = np.arange(m), np.arange(n), np.arange(k)
        for b in range(evaluate(self.batch, env)):
            left = {**env, "b": b, "m": rows[:, None], "k": inner[None, :]}
            right = {**env, "b": b, "k": inner[:, None], "n": columns[None, :]}
            x = self.left.gather(memory, left, (m, k), acc)
            y = self.right.gather(memory, right, (k, n), acc)
            yield tf32.rounded(x) @ tf32.rounded(y) if self.tf32 else x @ y
