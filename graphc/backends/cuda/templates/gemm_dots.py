"""Products of few rows by dot products: each element of the right operand is read once, 16 bytes by
each lane, straight from memory; what counts is how many such reads are on their way.

A warp has OWN columns at a time, and its lanes go along k, side by side. Lane by lane sums are in
the order of k; those of the lanes are added by halves.
"""

from __future__ import annotations

from graphc.backends.cuda.scalar import c_type
from graphc.backends.cuda.templates.gemm_plan import Tile
from graphc.ir.dtypes import DType

_MULTIPLY = """
struct __align__(16) Piece { T x[PIECE]; };
template <class X> __device__ __forceinline__ Piece taken(
    const X& x, const typename X::Line& line, const typename X::Along& along, bool wide) {
  int count;
  const T* const from = x.at(line, along, &count);
  if (wide && count == PIECE) return *(const Piece*)from;
  Piece piece;
  #pragma unroll
  for (int e = 0; e < PIECE; e++) piece.x[e] = e < count ? from[e * x.step] : (T)0;
  return piece;
}
// The sums over first <= k < end of a tile, to `sums` in shared memory.
template <class Left, class Right>
__device__ __forceinline__ void multiply(
    unsigned char* shared, const Left& left, const Right& right, i64 m0, i64 n0, i64 first,
    i64 end, T* sums) {
  const int lane = threadIdx.x % 32, column0 = threadIdx.x / 32 * OWN;
  const bool left_wide = left.wide(), right_wide = right.wide();
  T d[TALL][OWN] = {};
  typename Right::Line columns[OWN];
  #pragma unroll
  for (int j = 0; j < OWN; j++) columns[j] = right.line(n0 + column0 + j);
  #pragma unroll 1  // registers
  for (i64 k = first + lane * PIECE; k < end; k += 32 * PIECE) {
    const typename Left::Along left_along = left.along(k);
    const typename Right::Along right_along = right.along(k);
    Piece y[OWN];
    #pragma unroll
    for (int j = 0; j < OWN; j++) y[j] = taken(right, columns[j], right_along, right_wide);
    #pragma unroll
    for (int i = 0; i < TALL; i++) {
      const Piece x = taken(left, left.line(m0 + i), left_along, left_wide);
      #pragma unroll
      for (int j = 0; j < OWN; j++)
        #pragma unroll
        for (int e = 0; e < PIECE; e++) d[i][j] = FMA(x.x[e], y[j].x[e], d[i][j]);
    }
  }
  #pragma unroll
  for (int i = 0; i < TALL; i++)
    #pragma unroll
    for (int j = 0; j < OWN; j++) {
      #pragma unroll
      for (int by = 16; by > 0; by /= 2) d[i][j] += shuffle_xor(~0u, d[i][j], by);
      if (lane == 0) sums[i * PITCH + column0 + j] = d[i][j];
    }
}
"""


def multiply(tile: Tile, dtype: DType) -> str:
    """CUDA C of multiply(): see gemm_kernel. Lines of both operands go along k."""
    constants = (
        f"typedef {c_type(dtype)} T;\n"
        f"const int OWN = {tile.own}, PIECE = {16 // dtype.itemsize};\n"
    )
    return constants + _MULTIPLY.replace("FMA(", "fmaf(" if dtype.itemsize == 4 else "fma(")
