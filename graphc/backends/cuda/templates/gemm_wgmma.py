"""Products of halves by wgmma, which sm_90a has: the tiles and the loader are those of gemm_mma.

A warpgroup multiplies 64 rows by all columns of the tile, straight from shared memory. One product
is on its way while the next step's is begun; so a stage is written again two steps behind the one
that reads it. Sums go along k in steps of 16, in order, as those of mma.sync do.

Lines along k are what PTX calls K-major: sixteen of k are 32 bytes of a line. Lines along rows are
MN-major: sixteen of k are sixteen lines, and 64 rows a panel. Source: PTX ISA, "Matrix descriptor"
and the canonical layouts with 128-byte swizzle ((T,8,m),(8,k)):((1,T,LBO),(8T,SBO)).
"""

from __future__ import annotations

from graphc.backends.cuda.templates.gemm_loader import begin, loader
from graphc.backends.cuda.templates.gemm_operand import TileSource
from graphc.backends.cuda.templates.gemm_plan import Tile

_MULTIPLY = """
struct __align__(8) Pair { float x, y; };
// The sums over first <= k < end of a tile, to `sums` in shared memory.
template <class Left, class Right>
__device__ __forceinline__ void multiply(
    unsigned char* shared, const Left& left, const Right& right, i64 m0, i64 n0, i64 first,
    i64 end, float* sums) {
  const int BYTES = (TALL + BROAD) * 128, lane = threadIdx.x % 32;
  const int group = threadIdx.x / 128, warp = threadIdx.x / 32 % 4;
  const int steps = (int)((end - first + DEEP - 1) / DEEP), AHEAD = STAGES - 2;
  float d[BROAD / 2] = {};
  BEGIN
  for (int step = -AHEAD; step < steps; step++) {
    if (step >= 0) {
      cp_async_wait<AHEAD - 1>();
      async_proxy_fence();
      __syncthreads();
      const unsigned stage = shared_address(shared) + step % STAGES * BYTES;
      const unsigned a = stage + group * 64 * 128, b = stage + TALL * 128;
      wgmma_fence();
      #pragma unroll
      for (int part = 0; part < DEEP / 16; part++)
        wgmma_KIND_nBROAD<LEFT_ROWS, RIGHT_ROWS>(
            d, wgmma_descriptor(a + part * LEFT_STEP, LEFT_PANEL),
            wgmma_descriptor(b + part * RIGHT_STEP, RIGHT_PANEL));
      wgmma_commit();
    }
    const int next = step + AHEAD;
    if (next < steps) {
      unsigned char* const stage = shared + next % STAGES * BYTES;
      left_tile.load(stage, first + (i64)next * DEEP);
      right_tile.load(stage + TALL * 128, first + (i64)next * DEEP);
    }
    cp_async_commit();
    if (step >= 0) wgmma_wait<1>();
  }
  cp_async_wait<0>();
  wgmma_wait<0>();
  __syncthreads();
  #pragma unroll
  for (int j = 0; j < BROAD / 8; j++)
    #pragma unroll
    for (int e = 0; e < 4; e += 2) {
      const int row = group * 64 + warp * 16 + lane / 4 + e / 2 * 8;
      const Pair pair = {d[4 * j + e], d[4 * j + e + 1]};
      *(Pair*)(sums + row * PITCH + j * 8 + lane % 4 * 2) = pair;
    }
}
"""


def multiply(tile: Tile, left: TileSource, right: TileSource) -> str:
    """CUDA C of multiply(): see gemm_kernel."""
    text = _MULTIPLY.replace("BEGIN", begin(tile, left, right)).replace("nBROAD", f"n{tile.n}")
    for side, source in (("LEFT", left), ("RIGHT", right)):
        in_rows = source.along == "rows"
        text = text.replace(f"{side}_ROWS", str(int(in_rows)))
        text = text.replace(f"{side}_STEP", "2048" if in_rows else "32")
        text = text.replace(f"{side}_PANEL", "DEEP * 128" if in_rows else "16")
    stages = f"const int STAGES = {tile.stages};\n"
    return (stages + loader(left.dtype) + text).replace("KIND", left.dtype.name)
