"""Products of floats by tensor cores, which multiply them as TF32: cp.async stages, mma.sync
m16n8k8.

Tiles lie in rows of 32 floats, 128 bytes, made of pieces of 16 bytes; a wider one is made of
panels, one behind the other. Lines along k have ldmatrix's order (gemm_mma's): to it four floats
are a row of eight halves, and what a lane gets of it is the float that mma wants there. For lines
along rows there is no such thing: their floats are read one by one, and their pieces xor-ed so that
the four lines, and eight rows, that a warp reads at once are in different banks. Floats are rounded
as they come from shared memory. Sums go along k in steps of 8, in order.
"""

from __future__ import annotations

from graphc.backends.cuda.templates.gemm_plan import Along, Tile

_TILES = """
// Where a line's piece lies within a panel of lines of 128 bytes: of lines along k, and along rows.
__device__ inline int place_depth(int line, int piece) {
  return line * 128 + ((piece ^ (line & 7)) << 4);
}
__device__ inline int place_rows(int line, int piece) {
  return line * 128 + ((piece ^ ((line & 3) << 1)) << 4);
}
"""

_FILL = """
template <int LINES, int PANELS, class X>
__device__ __forceinline__ void fill_ALONG(
    unsigned char* tile, const X& x, i64 line0, i64 along0) {
  const bool wide = x.wide();
  #pragma unroll 4
  for (int i = threadIdx.x; i < LINES * PANELS * 8; i += THREADS) {
    const int piece = i % 8, line = i / 8 % LINES, panel = i / 8 / LINES;
    const unsigned to = shared_address(tile + panel * LINES * 128 + place_ALONG(line, piece));
    int count;
    const float* const from =
        x.at(x.line(line0 + line), x.along(along0 + panel * 32 + piece * 4), &count);
    if (wide) {
      cp_async_16(to, from, count * 4);
    } else {
      #pragma unroll
      for (int e = 0; e < 4; e++)
        cp_async_4(to + e * 4, e < count ? from + e * x.step : from, e < count ? 4 : 0);
    }
  }
}
"""

# What a lane has of 16 rows of the left operand, and of 16 rows of the right one (two products'
# worth), in 8 steps of k.
_FRAGMENTS: dict[tuple[str, Along], str] = {
    ("left", "depth"): """
__device__ __forceinline__ void left_fragment(
    unsigned* r, const unsigned char* tile, int row, int part) {
  const int lane = threadIdx.x % 32;
  ldmatrix_x4(r, shared_address(tile + place_depth(row + lane % 16, part * 2 + lane / 16)));
}
""",
    ("right", "depth"): """
__device__ __forceinline__ void right_fragment(
    unsigned* r, const unsigned char* tile, int row, int part) {
  const int lane = threadIdx.x % 32;
  const int line = row + lane / 16 * 8 + lane % 8;
  ldmatrix_x4(r, shared_address(tile + place_depth(line, part * 2 + lane / 8 % 2)));
}
""",
    ("left", "rows"): """
__device__ __forceinline__ void left_fragment(
    unsigned* r, const unsigned char* tile, int row, int part) {
  const int lane = threadIdx.x % 32;
  #pragma unroll
  for (int e = 0; e < 4; e++)
    r[e] = one(tile, part * 8 + lane % 4 + e / 2 * 4, row + lane / 4 + e % 2 * 8);
}
""",
    ("right", "rows"): """
__device__ __forceinline__ void right_fragment(
    unsigned* r, const unsigned char* tile, int row, int part) {
  const int lane = threadIdx.x % 32;
  #pragma unroll
  for (int e = 0; e < 4; e++)
    r[e] = one(tile, part * 8 + lane % 4 + e % 2 * 4, row + lane / 4 + e / 2 * 8);
}
""",
}

_ONE = """
__device__ __forceinline__ unsigned one(const unsigned char* tile, int line, int column) {
  return *(const unsigned*)(
      tile + column / 32 * DEEP * 128 + place_rows(line, column % 32 / 4) + column % 4 * 4);
}
"""

_MULTIPLY = """
struct __align__(8) Pair { float x, y; };
template <class Left, class Right>
__device__ __forceinline__ void load_step(
    unsigned char* stage, const Left& left, const Right& right, i64 m0, i64 n0, i64 k) {
  LEFT_FILL(stage, left, LEFT_START);
  RIGHT_FILL(stage + TALL * DEEP * 4, right, RIGHT_START);
}
// The sums over first <= k < end of a tile, to `sums` in shared memory.
template <class Left, class Right>
__device__ __forceinline__ void multiply(
    unsigned char* shared, const Left& left, const Right& right, i64 m0, i64 n0, i64 first,
    i64 end, float* sums) {
  const int BYTES = (TALL + BROAD) * DEEP * 4, lane = threadIdx.x % 32, warp = threadIdx.x / 32;
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
    const unsigned char* const a = shared + step % STAGES * BYTES;
    const unsigned char* const b = a + TALL * DEEP * 4;
    #pragma unroll
    for (int part = 0; part < DEEP / 8; part++) {
      unsigned x[WARP_TALL / 16][4], y[WARP_BROAD / 16][4];
      #pragma unroll
      for (int i = 0; i < WARP_TALL / 16; i++) {
        left_fragment(x[i], a, row0 + i * 16, part);
        #pragma unroll
        for (int e = 0; e < 4; e++) x[i][e] = tf32_round(x[i][e]);
      }
      #pragma unroll
      for (int j = 0; j < WARP_BROAD / 16; j++) {
        right_fragment(y[j], b, column0 + j * 16, part);
        #pragma unroll
        for (int e = 0; e < 4; e++) y[j][e] = tf32_round(y[j][e]);
      }
      #pragma unroll
      for (int i = 0; i < WARP_TALL / 16; i++)
        #pragma unroll
        for (int j = 0; j < WARP_BROAD / 8; j++) mma_tf32(d[i][j], x[i], y[j / 2] + j % 2 * 2);
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


def multiply(tile: Tile, left: Along, right: Along) -> str:
    """CUDA C of multiply(): see gemm_kernel."""
    constants = {
        "WARP_TALL": tile.warp_m, "WARP_BROAD": tile.warp_n, "STAGES": tile.stages,
    }
    used = sorted({left, right})
    text = "".join((
        *(f"const int {name} = {value};\n" for name, value in constants.items()),
        _TILES, *(_FILL.replace("ALONG", along) for along in used),
        _ONE if "rows" in used else "",
        _FRAGMENTS["left", left], _FRAGMENTS["right", right], _MULTIPLY,
    ))
    for side, along, row, extent in (
        ("LEFT", left, "m0", "TALL"), ("RIGHT", right, "n0", "BROAD")
    ):
        shape = f"{extent}, DEEP / 32" if along == "depth" else f"DEEP, {extent} / 32"
        text = text.replace(f"{side}_FILL", f"fill_{along}<{shape}>")
        text = text.replace(f"{side}_START", f"{row}, k" if along == "depth" else f"k, {row}")
    return text


def shared_bytes(tile: Tile) -> int:
    """Of the stages."""
    return tile.stages * (tile.m + tile.n) * tile.k * 4
