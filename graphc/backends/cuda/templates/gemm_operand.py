"""Tiles of operands: where their elements lie, and how they come to shared memory.

A tile is made of lines: runs of elements that lie one behind the other. What says where they lie is
a struct of CUDA C with these members, `Lines` for an operand that is affine; a convolution has its
own, and everything else of a product is the same for both:

    dense, step;                 // from one element of a line to the next: 1 where it is dense
    bool wide() const;           // whether pieces of 16 bytes may be copied
    Line line(i64) const;        // what is to be known of a line
    Along along(i64) const;      // ... of a piece's place along every line
    const T* at(const Line&, const Along&, int* count) const;
        // a piece's first element, and how many of PIECE are there; 0: nothing is read, all are 0

Lines and places are worked out once for many pieces, which `at` joins by a few instructions.
"""

from __future__ import annotations

from dataclasses import dataclass

from graphc.backends.cuda.scalar import c_type
from graphc.backends.cuda.statements.indices import index_text
from graphc.backends.cuda.templates.gemm_plan import Along
from graphc.backends.cuda.templates.gemm_sizes import Sizes
from graphc.ir.dim import Size
from graphc.ir.dtypes import DType
from graphc.ir.kernel import Operand
from graphc.ir.kernel.templates.operand import base_and_strides


@dataclass(frozen=True, slots=True)
class TileSource:
    """One operand of a product as a kernel reads it. `along`: the direction of its lines.
    `declarations`: the struct, where it is not Lines; `make`: C++ that makes `name`, where b is in
    scope; `line_bytes`: what is kept of a line."""

    dtype: DType
    along: Along
    struct: str
    make: str
    declarations: str = ""
    line_bytes: int = 8


def affine(
    name: str, operand: Operand, row: str, rows: Size, depth: Size, sizes: Sizes
) -> TileSource:
    """An operand affine in `row` ("m" or "n") and k. `rows` and `depth` are their extents."""
    base, row_step, step = base_and_strides(operand, row, "k")
    along: Along = "rows" if row_step == 1 and step != 1 else "depth"
    line, inner = (row_step, step) if along == "depth" else (step, row_step)
    lines, length = (rows, depth) if along == "depth" else (depth, rows)
    dense = inner == 1
    fields = [
        f"{operand.buffer} + {index_text(sizes.index(base))}",
        index_text(sizes.argument(line)),
        "1" if dense else index_text(sizes.argument(inner)),
        index_text(lines), index_text(length),
    ]
    struct = f"Lines<{c_type(operand.dtype)}, {str(dense).lower()}>"
    make = f"const {struct} {name} = {{{', '.join(fields)}}};"
    return TileSource(operand.dtype, along, struct, make)


LINES = """
template <class T> __device__ inline int in_piece(i64 left) {
  return left < 16 / (int)sizeof(T) ? (left < 0 ? 0 : (int)left) : 16 / (int)sizeof(T);
}
// A line by its first element (0: there is no such line), and how far along it a piece is, and how
// many of its elements are there.
template <class T> struct Start { const T* x; };
struct Offset { i64 offset; int count; };
template <class T> __device__ inline const T* joined(
    const T* x, const Start<T>& line, const Offset& along, int* count) {
  *count = line.x ? along.count : 0;
  return *count ? line.x + along.offset : x;
}
template <class T, bool DENSE> struct Lines {
  typedef Start<T> Line;
  typedef Offset Along;
  static const bool dense = DENSE;
  const T* x;
  i64 line_step, step, lines, length;
  bool wide() const {
    return DENSE && ((u64)x | (u64)line_step * sizeof(T)) % 16 == 0;
  }
  Line line(i64 line) const { return {line < lines ? x + line * line_step : 0}; }
  Along along(i64 along) const { return {along * step, in_piece<T>(length - along)}; }
  const T* at(const Line& line, const Along& along, int* count) const {
    return joined(x, line, along, count);
  }
};
"""
