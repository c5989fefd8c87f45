"""Products of halves by tensor cores: cp.async stages, ldmatrix, mma.sync m16n8k16.

Tiles lie in rows of 64 halves, 128 bytes, whose pieces of 16 bytes are xor-ed with the row:
ldmatrix meets no bank conflict, and wgmma's 128-byte swizzle is the same. A tile wider than that is
made of panels, one behind the other. Sums go along k in steps of 16, in order.
"""

from __future__ import annotations

from graphc.backends.cuda.templates.gemm_plan import Along, Tile

_TILES = """
// A line's piece within a panel of lines of 128 bytes.
__device__ inline int place(int line, int piece) {
  return line * 128 + ((piece ^ (line & 7)) << 4);
}
template <int LINES, int PANELS, class X>
__device__ __forceinline__ void fill(unsigned char* tile, const X& x, i64 line0, i64 along0) {
  const bool wide = x.wide();
  #pragma unroll 4
  for (int i = threadIdx.x; i < LINES * PANELS * 8; i += THREADS) {
    const int piece = i % 8, line = i / 8 % LINES, panel = i / 8 / LINES;
    unsigned char* const to = tile + panel * LINES * 128 + place(line, piece);
    int count;
    const HALF* const from = x.at(line0 + line, along0 + panel * 64 + piece * 8, &count);
    if (wide) {
      cp_async_16(shared_address(to), from, count * 2);
    } else {
      #pragma unroll
      for (int e = 0; e < 8; e++)
        ((unsigned short*)to)[e] = e < count ? from[e * x.step].bits : (unsigned short)0;
    }
  }
}
"""

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

_LOAD = """
struct __align__(8) Pair { float x, y; };
template <class Left, class Right>
__device__ __forceinline__ void load_step(
    unsigned char* stage, const Left& left, const Right& right, i64 m0, i64 n0, i64 k) {
  fill<LEFT_TILE>(stage, left, LEFT_START);
  fill<RIGHT_TILE>(stage + TALL * DEEP * 2, right, RIGHT_START);
}
"""

_MULTIPLY = """
// The sums over first <= k < end of a tile, to `sums` in shared memory.
template <class Left, class Right>
__device__ __forceinline__ void multiply(
    unsigned char* shared, const Left& left, const Right& right, i64 m0, i64 n0, i64 first,
    i64 end, float* sums) {
  const int BYTES = (TALL + BROAD) * DEEP * 2, lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int row0 = warp / (BROAD / WARP_BROAD) * WARP_TALL;
  const int column0 = warp % (BROAD / WARP_BROAD) * WARP_BROAD;
  const int steps = (int)((end - first + DEEP - 1) / DEEP);
  float d[WARP_TALL / 16][WARP_BROAD / 8][4] = {};
  for (int s = 0; s < STAGES - 1; s++) {
    if (s < steps) load_step(shared + s * BYTES, left, right, m0, n0, first + (i64)s * DEEP);
    cp_async_commit();
  }
  for (int step = 0; step < steps; step++) {
    cp_async_wait<STAGES - 2>();
    __syncthreads();
    const int next = step + STAGES - 1;
    if (next < steps)
      load_step(
          shared + next % STAGES * BYTES, left, right, m0, n0, first + (i64)next * DEEP);
    cp_async_commit();
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


def multiply(tile: Tile, left: Along, right: Along, kind: str) -> str:
    """CUDA C of multiply(): see gemm_kernel. `kind`: bf16 or f16."""
    constants = {
        "WARP_TALL": tile.warp_m, "WARP_BROAD": tile.warp_n, "STAGES": tile.stages,
    }
    text = "".join((
        *(f"const int {name} = {value};\n" for name, value in constants.items()),
        loader(left, right), _FRAGMENTS["left", left], _FRAGMENTS["right", right], _MULTIPLY,
    ))
    return text.replace("HALF", kind)


def loader(left: Along, right: Along) -> str:
    """CUDA C of load_step(): a step of both operands, into a stage. HALF is their type."""
    text = _TILES + _LOAD
    for side, along, row, extent in (
        ("LEFT", left, "m0", "TALL"), ("RIGHT", right, "n0", "BROAD")
    ):
        in_depth = along == "depth"
        shape = f"{extent}, DEEP / 64" if in_depth else f"DEEP, {extent} / 64"
        text = text.replace(f"{side}_TILE", shape)
        text = text.replace(f"{side}_START", f"{row}, k" if in_depth else f"k, {row}")
    return text


def shared_bytes(tile: Tile) -> int:
    """Of the stages."""
    return tile.stages * (tile.m + tile.n) * tile.k * 2
