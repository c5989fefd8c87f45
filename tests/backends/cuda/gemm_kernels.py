"""Two products written by hand, as a template would be: c[m, n] = sum of a[m, k] b[n, k], halves
in and floats out, any m and n, k a multiple of 8. One loader (cp.async, zeros behind the edges,
16-byte pieces xor-ed with the row) feeds mma.sync, and wgmma, whose 128-byte swizzle is the same.
"""

from graphc.backends.cuda.instructions import INSTRUCTIONS

THREADS = 128
TILE = 64  # rows of a and of b that a block multiplies
SHARED = 3 * 2 * TILE * 128  # bytes: three stages of both tiles, rows of 64 halves

_LOADER = """
const int TILE = 64, STAGES = 3, BYTES = TILE * 128;
__device__ inline unsigned piece(unsigned tile, int row, int column) {
  return tile + row * 128 + ((column ^ (row & 7)) << 4);
}
__device__ inline void load(unsigned tile, const bf16* x, i64 first, i64 rows, i64 k0, i64 depth) {
  for (int i = threadIdx.x; i < TILE * 8; i += 128) {
    const int row = i / 8, column = i % 8;
    const bool inside = first + row < rows && k0 + column * 8 < depth;
    const bf16* from = inside ? x + (first + row) * depth + k0 + column * 8 : x;
    cp_async_16(piece(tile, row, column), from, inside ? 16 : 0);
  }
}
"""

_PIPELINE = """
extern "C" __global__ void __launch_bounds__(128) gemm(
    const bf16* a, const bf16* b, float* c, i64 m, i64 n, i64 k) {
  DYNAMIC_SHARED(shared);
  const unsigned base = shared_address(shared);
  const i64 m0 = (i64)blockIdx.y * TILE, n0 = (i64)blockIdx.x * TILE;
  const int steps = (int)((k + 63) / 64), lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  START
  for (int s = 0; s < STAGES - 1; s++) {
    if (s < steps) {
      load(base + s * 2 * BYTES, a, m0, m, s * 64, k);
      load(base + s * 2 * BYTES + BYTES, b, n0, n, s * 64, k);
    }
    cp_async_commit();
  }
  for (int step = 0; step < steps; step++) {
    cp_async_wait<STAGES - 2>();
    BEFORE
    __syncthreads();
    const int next = step + STAGES - 1;
    if (next < steps) {
      const unsigned to = base + next % STAGES * 2 * BYTES;
      load(to, a, m0, m, (i64)next * 64, k);
      load(to + BYTES, b, n0, n, (i64)next * 64, k);
    }
    cp_async_commit();
    const unsigned left = base + step % STAGES * 2 * BYTES, right = left + BYTES;
    MULTIPLY
  }
  STORE
}
"""

# Warps as 2 x 2, of 32 x 32 each.
_MMA = {
    "START": """float d[2][4][4] = {};
  const int row0 = warp / 2 * 32, column0 = warp % 2 * 32;""",
    "BEFORE": "",
    "MULTIPLY": """#pragma unroll
    for (int part = 0; part < 4; part++) {
      unsigned x[2][4], y[2][4];
      for (int i = 0; i < 2; i++) {
        const int row = row0 + i * 16 + lane % 16;
        ldmatrix_x4(x[i], piece(left, row, part * 2 + lane / 16));
      }
      for (int j = 0; j < 2; j++) {
        const int row = column0 + j * 16 + lane % 8 + lane / 16 * 8;
        ldmatrix_x4(y[j], piece(right, row, part * 2 + lane / 8 % 2));
      }
      for (int i = 0; i < 2; i++)
        for (int j = 0; j < 4; j++) mma_bf16(d[i][j], x[i], y[j / 2] + j % 2 * 2);
    }""",
    "STORE": """for (int i = 0; i < 2; i++)
    for (int j = 0; j < 4; j++)
      for (int e = 0; e < 4; e++) {
        const i64 row = m0 + row0 + i * 16 + lane / 4 + e / 2 * 8;
        const i64 column = n0 + column0 + j * 8 + lane % 4 * 2 + e % 2;
        if (row < m && column < n) c[row * n + column] = d[i][j][e];
      }""",
}
# One warpgroup; a product reads its tiles until it is waited for.
_WGMMA = {
    "START": "float d[32] = {};",
    "BEFORE": "async_proxy_fence(); wgmma_wait<0>();",
    "MULTIPLY": """wgmma_fence();
    for (int part = 0; part < 4; part++)
      wgmma_bf16_n64(d, wgmma_descriptor(left + part * 32), wgmma_descriptor(right + part * 32));
    wgmma_commit();""",
    "STORE": """wgmma_wait<0>();
  for (int j = 0; j < 8; j++)
    for (int e = 0; e < 4; e++) {
      const i64 row = m0 + warp * 16 + lane / 4 + e / 2 * 8;
      const i64 column = n0 + j * 8 + lane % 4 * 2 + e % 2;
      if (row < m && column < n) c[row * n + column] = d[4 * j + e];
    }""",
}


def _kernel(name: str, parts: dict[str, str]) -> str:
    text = _PIPELINE.replace("gemm(", f"{name}(")
    for part, code in parts.items():
        text = text.replace(part, code, 1)
    return INSTRUCTIONS + _LOADER + text


MMA = _kernel("gemm_mma", _MMA)
WGMMA = _kernel("gemm_wgmma", _WGMMA)
