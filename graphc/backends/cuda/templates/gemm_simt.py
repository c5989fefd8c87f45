"""Products of floats and doubles by ordinary arithmetic: each thread has a tile of sums in
registers. Two tiles of shared memory take turns; a sum goes along k in order, by fma.

A tile whose lines go along k lies row by row, and a thread reads pieces of 16 bytes along k; its
rows are spread, so that neighbours read neighbouring rows. One whose lines go along rows lies k by
k, and a thread reads pieces along its rows. Lines are as much longer as avoids bank conflicts.
"""

from __future__ import annotations

from graphc.backends.cuda.scalar import c_type
from graphc.backends.cuda.templates.gemm_plan import Along, Tile
from graphc.ir.dtypes import DType

_FILL = """
template <int LINES, int LENGTH, class X>
__device__ __forceinline__ void fill(T* tile, const X& x, i64 line0, i64 along0) {
  const bool wide = x.wide();
  #pragma unroll
  for (int i = threadIdx.x; i < LINES * LENGTH / PIECE; i += THREADS) {
    const int line = i / (LENGTH / PIECE), along = i % (LENGTH / PIECE) * PIECE;
    T* const to = tile + line * (LENGTH + PIECE) + along;
    int count;
    const T* const from = x.at(x.line(line0 + line), x.along(along0 + along), &count);
    if (wide) {
      cp_async_16(shared_address(to), from, count * (int)sizeof(T));
    } else {
      #pragma unroll
      for (int e = 0; e < PIECE; e++)
        COPY_ONE(
            shared_address(to + e), e < count ? from + e * x.step : from,
            e < count ? (int)sizeof(T) : 0);
    }
  }
}
"""

# PIECE steps of k of a thread's rows, and which rows these are.
_FRAGMENTS: dict[Along, str] = {
    "depth": """
__device__ __forceinline__ int SIDE_row(int thread, int i) { return thread + i * (EXTENT / OWN); }
__device__ __forceinline__ void SIDE_fragment(
    T x[PIECE][OWN], const T* tile, int thread, int k) {
  #pragma unroll
  for (int i = 0; i < OWN; i++) {
    const Piece piece = *(const Piece*)(tile + SIDE_row(thread, i) * (DEEP + PIECE) + k);
    #pragma unroll
    for (int e = 0; e < PIECE; e++) x[e][i] = piece.x[e];
  }
}
""",
    "rows": """
__device__ __forceinline__ int SIDE_row(int thread, int i) {
  return (i / PIECE * (EXTENT / OWN) + thread) * PIECE + i % PIECE;
}
__device__ __forceinline__ void SIDE_fragment(
    T x[PIECE][OWN], const T* tile, int thread, int k) {
  #pragma unroll
  for (int e = 0; e < PIECE; e++)
    #pragma unroll
    for (int i = 0; i < OWN; i += PIECE) {
      const T* const from = tile + (k + e) * (EXTENT + PIECE) + SIDE_row(thread, i);
      const Piece piece = *(const Piece*)from;
      #pragma unroll
      for (int j = 0; j < PIECE; j++) x[e][i + j] = piece.x[j];
    }
}
""",
}

_MULTIPLY = """
template <class Left, class Right>
__device__ __forceinline__ void load_step(
    T* stage, const Left& left, const Right& right, i64 m0, i64 n0, i64 k) {
  fill<LEFT_TILE>(stage, left, LEFT_START);
  fill<RIGHT_TILE>(stage + LEFT_SIZE, right, RIGHT_START);
}
// The sums over first <= k < end of a tile, to `sums` in shared memory.
template <class Left, class Right>
__device__ __forceinline__ void multiply(
    unsigned char* shared, const Left& left, const Right& right, i64 m0, i64 n0, i64 first,
    i64 end, T* sums) {
  const int row = threadIdx.x / (BROAD / OWN), column = threadIdx.x % (BROAD / OWN);
  const int steps = (int)((end - first + DEEP - 1) / DEEP);
  T* const stages = (T*)shared;
  T d[OWN][OWN] = {};
  if (steps > 0) load_step(stages, left, right, m0, n0, first);
  cp_async_commit();
  for (int step = 0; step < steps; step++) {
    cp_async_wait<0>();
    __syncthreads();
    if (step + 1 < steps)
      load_step(
          stages + (step + 1) % 2 * STAGE, left, right, m0, n0, first + (i64)(step + 1) * DEEP);
    cp_async_commit();
    const T* const a = stages + step % 2 * STAGE;
    #pragma unroll 1
    for (int k = 0; k < DEEP; k += PIECE) {
      T x[PIECE][OWN], y[PIECE][OWN];
      left_fragment(x, a, row, k);
      right_fragment(y, a + LEFT_SIZE, column, k);
      #pragma unroll
      for (int e = 0; e < PIECE; e++)
        #pragma unroll
        for (int i = 0; i < OWN; i++)
          #pragma unroll
          for (int j = 0; j < OWN; j++) d[i][j] = FMA(x[e][i], y[e][j], d[i][j]);
    }
  }
  __syncthreads();
  #pragma unroll
  for (int i = 0; i < OWN; i++)
    #pragma unroll
    for (int j = 0; j < OWN; j++) sums[left_row(row, i) * PITCH + right_row(column, j)] = d[i][j];
}
"""


def multiply(tile: Tile, left: Along, right: Along, dtype: DType) -> str:
    """CUDA C of multiply(): see gemm_kernel."""
    copy = f"cp_async_{dtype.itemsize}"
    left_lines, left_length = _shape(tile.m, tile.k, left)
    right_lines, right_length = _shape(tile.n, tile.k, right)
    piece = 16 // dtype.itemsize
    left_size, right_size = _size(tile.m, tile.k, left, piece), _size(tile.n, tile.k, right, piece)
    text = "".join((
        f"typedef {c_type(dtype)} T;\n",
        f"const int OWN = {tile.own}, PIECE = {piece}, LEFT_SIZE = {left_size};\n",
        f"const int STAGE = {left_size + right_size};\n",
        "struct __align__(16) Piece { T x[PIECE]; };\n",
        _FILL.replace("COPY_ONE", copy),
        _FRAGMENTS[left].replace("SIDE", "left").replace("EXTENT", "TALL"),
        _FRAGMENTS[right].replace("SIDE", "right").replace("EXTENT", "BROAD"),
        _MULTIPLY,
    ))
    return (
        text.replace("LEFT_TILE", f"{left_lines}, {left_length}")
        .replace("RIGHT_TILE", f"{right_lines}, {right_length}")
        .replace("LEFT_START", "m0, k" if left == "depth" else "k, m0")
        .replace("RIGHT_START", "n0, k" if right == "depth" else "k, n0")
        .replace("FMA(", "fmaf(" if dtype.itemsize == 4 else "fma(")
    )


def shared_bytes(tile: Tile, left: Along, right: Along, dtype: DType) -> int:
    """Of both stages."""
    piece = 16 // dtype.itemsize
    stage = _size(tile.m, tile.k, left, piece) + _size(tile.n, tile.k, right, piece)
    return 2 * stage * dtype.itemsize


def _shape(rows: int, depth: int, along: Along) -> tuple[int, int]:
    """Lines, and elements of one."""
    return (rows, depth) if along == "depth" else (depth, rows)


def _size(rows: int, depth: int, along: Along, piece: int) -> int:
    """Elements of a tile in shared memory."""
    lines, length = _shape(rows, depth, along)
    return lines * (length + piece)
