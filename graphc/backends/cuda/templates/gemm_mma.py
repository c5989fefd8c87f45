"""Products by tensor cores: cp.async stages, ldmatrix, mma.sync. Halves go by m16n8k16, and sums
along k in steps of 16, in order.

Floats that may be rounded to TF32 go by m16n8k8, in steps of 8. To ldmatrix four floats are a row
of eight halves, and what a lane gets of it is the float that mma wants there; so lines along k are
read as those of halves are. For lines along rows there is no such thing: their floats are read one
by one. They are rounded as they come from shared memory.
"""

from __future__ import annotations

from graphc.backends.cuda.templates.gemm_loader import begin, loader
from graphc.backends.cuda.templates.gemm_operand import TileSource
from graphc.backends.cuda.templates.gemm_plan import Tile

# How fragments are read in one step of k: 16 rows of the left operand, 16 of the right one (two
# products' worth).
_FRAGMENTS: dict[str, str] = {
    "left depth": """
__device__ __forceinline__ void left_fragment(
    unsigned* r, const unsigned char* tile, int row, int part) {
  const int lane = threadIdx.x % 32;
  ldmatrix_x4(r, shared_address(tile + place(row + lane % 16, part * 2 + lane / 16)));
}
""",
    "right depth": """
__device__ __forceinline__ void right_fragment(
    unsigned* r, const unsigned char* tile, int row, int part) {
  const int lane = threadIdx.x % 32, line = row + lane / 16 * 8 + lane % 8;
  ldmatrix_x4(r, shared_address(tile + place(line, part * 2 + lane / 8 % 2)));
}
""",
    "left rows of halves": """
__device__ __forceinline__ void left_fragment(
    unsigned* r, const unsigned char* tile, int row, int part) {
  const int lane = threadIdx.x % 32, line = part * 16 + lane / 16 * 8 + lane % 8;
  ldmatrix_x4_trans(r, shared_address(in_rows(tile, line, row + lane / 8 % 2 * 8)));
}
""",
    "right rows of halves": """
__device__ __forceinline__ void right_fragment(
    unsigned* r, const unsigned char* tile, int row, int part) {
  const int lane = threadIdx.x % 32, line = part * 16 + lane / 8 % 2 * 8 + lane % 8;
  ldmatrix_x4_trans(r, shared_address(in_rows(tile, line, row + lane / 16 * 8)));
}
""",
    "left rows of floats": """
__device__ __forceinline__ void left_fragment(
    unsigned* r, const unsigned char* tile, int row, int part) {
  const int lane = threadIdx.x % 32, line = part * 8 + lane % 4;
  #pragma unroll
  for (int e = 0; e < 4; e++)
    r[e] = *(const unsigned*)in_rows(tile, line + e / 2 * 4, row + lane / 4 + e % 2 * 8);
}
""",
    "right rows of floats": """
__device__ __forceinline__ void right_fragment(
    unsigned* r, const unsigned char* tile, int row, int part) {
  const int lane = threadIdx.x % 32, line = part * 8 + lane % 4;
  #pragma unroll
  for (int e = 0; e < 4; e++)
    r[e] = *(const unsigned*)in_rows(tile, line + e % 2 * 4, row + lane / 4 + e / 2 * 8);
}
""",
}
# An element of lines along rows; its row is a column of the tile.
_IN_ROWS = """
__device__ __forceinline__ const unsigned char* in_rows(
    const unsigned char* tile, int line, int column) {
  return tile + column / PANEL * DEEP * 128 + place_rows(line, column % PANEL / PIECE) +
         column % PIECE * ITEM_BYTES;
}
"""
_ROUNDED: dict[int, str] = {
    2: """
__device__ __forceinline__ void round_fragment(unsigned*) {}
""",
    4: """
__device__ __forceinline__ void round_fragment(unsigned* r) {
  #pragma unroll
  for (int e = 0; e < 4; e++) r[e] = tf32_round(r[e]);
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
  const int BYTES = (TALL + BROAD) * 128, lane = threadIdx.x % 32, warp = threadIdx.x / 32;
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
      right_tile.load(stage + TALL * 128, first + (i64)next * DEEP);
    }
    cp_async_commit();
    if (step < 0) continue;
    const unsigned char* const a = shared + step % STAGES * BYTES, *const b = a + TALL * 128;
    #pragma unroll
    for (int part = 0; part < 4; part++) {  // 32 bytes of k
      unsigned x[WARP_TALL / 16][4], y[WARP_BROAD / 16][4];
      #pragma unroll
      for (int i = 0; i < WARP_TALL / 16; i++) {
        left_fragment(x[i], a, row0 + i * 16, part);
        round_fragment(x[i]);
      }
      #pragma unroll
      for (int j = 0; j < WARP_BROAD / 16; j++) {
        right_fragment(y[j], b, column0 + j * 16, part);
        round_fragment(y[j]);
      }
      #pragma unroll
      for (int i = 0; i < WARP_TALL / 16; i++)
        #pragma unroll
        for (int j = 0; j < WARP_BROAD / 8; j++) mma_KIND(d[i][j], x[i], y[j / 2] + j % 2 * 2);
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
    size = left.dtype.itemsize
    constants = {
        "WARP_TALL": tile.warp_m, "WARP_BROAD": tile.warp_n, "STAGES": tile.stages,
    }
    in_rows = "rows of halves" if size == 2 else "rows of floats"
    text = "".join((
        *(f"const int {name} = {value};\n" for name, value in constants.items()),
        loader(left.dtype), _IN_ROWS, _ROUNDED[size],
        *(
            _FRAGMENTS[f"{side} {in_rows if source.along == 'rows' else 'depth'}"]
            for side, source in (("left", left), ("right", right))
        ),
        _MULTIPLY.replace("BEGIN", begin(tile, left, right)),
    ))
    return text.replace("KIND", left.dtype.name if size == 2 else "tf32")
