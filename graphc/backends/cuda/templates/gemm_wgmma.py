"""Products of halves by wgmma, which sm_90a has: the tiles and the loader are those of gemm_mma.

A warpgroup multiplies 64 rows by all columns of the tile, straight from shared memory. One product
is on its way while the next step's is begun; so a stage is written again two steps behind the one
that reads it. Lines of both operands go along k. Sums go along k in steps of 16, in order, as those
of mma.sync do.
"""

from __future__ import annotations

from graphc.backends.cuda.templates.gemm_mma import loader
from graphc.backends.cuda.templates.gemm_plan import Tile

_MULTIPLY = """
// The sums over first <= k < end of a tile, to `sums` in shared memory.
template <class Left, class Right>
__device__ __forceinline__ void multiply(
    unsigned char* shared, const Left& left, const Right& right, i64 m0, i64 n0, i64 first,
    i64 end, float* sums) {
  const int BYTES = (TALL + BROAD) * DEEP * 2, lane = threadIdx.x % 32;
  const int group = threadIdx.x / 128, warp = threadIdx.x / 32 % 4;
  const int steps = (int)((end - first + DEEP - 1) / DEEP);
  float d[BROAD / 2] = {};
  for (int s = 0; s < STAGES - 2; s++) {
    if (s < steps) load_step(shared + s * BYTES, left, right, m0, n0, first + (i64)s * DEEP);
    cp_async_commit();
  }
  for (int step = 0; step < steps; step++) {
    cp_async_wait<STAGES - 3>();
    async_proxy_fence();
    __syncthreads();
    const unsigned a = shared_address(shared) + step % STAGES * BYTES + group * 64 * DEEP * 2;
    const unsigned b = shared_address(shared) + step % STAGES * BYTES + TALL * DEEP * 2;
    wgmma_fence();
    #pragma unroll
    for (int part = 0; part < DEEP / 16; part++)
      wgmma_HALF_nBROAD(d, wgmma_descriptor(a + part * 32), wgmma_descriptor(b + part * 32));
    wgmma_commit();
    const int next = step + STAGES - 2;
    if (next < steps)
      load_step(
          shared + next % STAGES * BYTES, left, right, m0, n0, first + (i64)next * DEEP);
    cp_async_commit();
    wgmma_wait<1>();
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


def multiply(tile: Tile, kind: str) -> str:
    """CUDA C of multiply(): see gemm_kernel. `kind`: bf16 or f16."""
    text = _MULTIPLY.replace("nBROAD", f"n{tile.n}")
    stages = f"const int STAGES = {tile.stages};\n"
    return (stages + loader("depth", "depth") + text).replace("HALF", kind)
