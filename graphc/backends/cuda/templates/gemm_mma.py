"""Products of halves by tensor cores: cp.async stages, ldmatrix, mma.sync m16n8k16. Sums go along
k in steps of 16, in order."""

from __future__ import annotations

from graphc.backends.cuda.templates.gemm_loader import begin, loader
from graphc.backends.cuda.templates.gemm_operand import TileSource
from graphc.backends.cuda.templates.gemm_plan import Along, Tile

# How fragments are read: 16 rows of the left operand, 16 of the right one (two products' worth).
_FRAGMENTS: dict[tuple[str, Along], str] = {
    ("left", "depth"): """
__device__ __forceinline__ void left_fragment(unsigned* r, unsigned tile, int row, int part) {
  const int lane = threadIdx.x % 32;
  ldmatrix_x4(r, tile + place(row + lane % 16, part * 2 + lane / 16));
}
""",
    ("left", "rows"): """
__device__ __forceinline__ void left_fragment(unsigned* r, unsigned tile, int row, int part) {
  const int lane = threadIdx.x % 32, line = part * 16 + lane / 16 * 8 + lane % 8;
  const int column = row + lane / 8 % 2 * 8;
  ldmatrix_x4_trans(r, tile + column / 64 * DEEP * 128 + place(line, column % 64 / 8));
}
""",
    ("right", "depth"): """
__device__ __forceinline__ void right_fragment(unsigned* r, unsigned tile, int row, int part) {
  const int lane = threadIdx.x % 32;
  ldmatrix_x4(r, tile + place(row + lane / 16 * 8 + lane % 8, part * 2 + lane / 8 % 2));
}
""",
    ("right", "rows"): """
__device__ __forceinline__ void right_fragment(unsigned* r, unsigned tile, int row, int part) {
  const int lane = threadIdx.x % 32, line = part * 16 + lane / 8 % 2 * 8 + lane % 8;
  const int column = row + lane / 16 * 8;
  ldmatrix_x4_trans(r, tile + column / 64 * DEEP * 128 + place(line, column % 64 / 8));
}
""",
}

_MULTIPLY = """
struct __align__(8) Pair { float x, y; };
// The sums over first <= k < end of a tile, to `sums` in shared memory.
template <class Left, class Right>
__device__ __forceinline__ void multiply(
    unsigned char* shared, const Left& left, const Right& right, i64 m0, i64 n0, i64 first,
    i64 end, float* sums) {
  const int BYTES = (TALL + BROAD) * DEEP * 2, lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int row0 = warp / (BROAD / WARP_BROAD) * WARP_TALL;
  const int column0 = warp % (BROAD / WARP_BROAD) * WARP_BROAD;
  const int steps = (int)((end - first + DEEP - 1) / DEEP), AHEAD = STAGES - 1;
  float d[WARP_TALL / 16][WARP_BROAD / 8][4] = {};
  BEGIN
  for (int step = -AHEAD; step < steps; step++) {
    if (step >= 0) {
      cp_async_wait<AHEAD - 1>();
      __syncthreads();
    }
    const int next = step + AHEAD;
    if (next < steps) {
      unsigned char* const stage = shared + next % STAGES * BYTES;
      left_tile.load(stage, first + (i64)next * DEEP);
      right_tile.load(stage + TALL * DEEP * 2, first + (i64)next * DEEP);
    }
    cp_async_commit();
    if (step < 0) continue;
    const unsigned a = shared_address(shared) + step % STAGES * BYTES, b = a + TALL * DEEP * 2;
    #pragma unroll
    for (int part = 0; part < DEEP / 16; part++) {
      unsigned x[WARP_TALL / 16][4], y[WARP_BROAD / 16][4];
      #pragma unroll
      for (int i = 0; i < WARP_TALL / 16; i++) left_fragment(x[i], a, row0 + i * 16, part);
      #pragma unroll
      for (int j = 0; j < WARP_BROAD / 16; j++) right_fragment(y[j], b, column0 + j * 16, part);
      #pragma unroll
      for (int i = 0; i < WARP_TALL / 16; i++)
        #pragma unroll
        for (int j = 0; j < WARP_BROAD / 8; j++) mma_HALF(d[i][j], x[i], y[j / 2] + j % 2 * 2);
    }
  }
  cp_async_wait<0>();
  __syncthreads();
  #pragma unroll
  for (int i = 0; i < WARP_TALL / 16; i++)
    #pragma unroll
    for (int j = 0; j < WARP_BROAD / 8; j++)
      #pragma unroll
      for (int e = 0; e < 4; e += 2) {
        const int row = row0 + i * 16 + lane / 4 + e / 2 * 8;
        const Pair pair = {d[i][j][e], d[i][j][e + 1]};
        *(Pair*)(sums + row * PITCH + column0 + j * 8 + lane % 4 * 2) = pair;
      }
}
"""


def multiply(tile: Tile, left: TileSource, right: TileSource) -> str:
    """CUDA C of multiply(): see gemm_kernel."""
    constants = {
        "WARP_TALL": tile.warp_m, "WARP_BROAD": tile.warp_n, "STAGES": tile.stages,
    }
    text = "".join((
        *(f"const int {name} = {value};\n" for name, value in constants.items()),
        loader(), _FRAGMENTS["left", left.along], _FRAGMENTS["right", right.along],
        _MULTIPLY.replace("BEGIN", begin(tile, left, right)),
    ))
    return text.replace("HALF", left.dtype.name)
