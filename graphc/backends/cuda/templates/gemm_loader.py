"""Tiles of operands on their way to shared memory, for engines that are fed by it.

Tiles lie in rows of 128 bytes, 64 halves or 32 floats, whose pieces of 16 bytes are xor-ed with the
row: ldmatrix meets no bank conflict, and wgmma's 128-byte swizzle is the same. A tile wider than
that is made of panels, one behind the other. (Floats in lines along rows are read one by one; their
pieces are xor-ed so that four lines, of which eight rows are read at once, are in different banks.)

A thread copies the same piece of every so-many-th line. What does not change from step to step of
k is worked out once for a tile: of lines that go along k, where they are (kept in shared memory
behind the stages); of lines that go along rows, the places along them (in registers).
"""

from __future__ import annotations

from graphc.backends.cuda.scalar import c_type
from graphc.backends.cuda.templates.gemm_operand import TileSource
from graphc.backends.cuda.templates.gemm_plan import Tile
from graphc.ir.dtypes import DType

# Where a line's piece lies within a panel of lines of 128 bytes.
_PLACE = """
__device__ inline int place(int line, int piece) {
  return line * 128 + ((piece ^ (line & 7)) << 4);
}
"""
_PLACE_ROWS: dict[int, str] = {
    2: """
__device__ inline int place_rows(int line, int piece) { return place(line, piece); }
""",
    4: """
__device__ inline int place_rows(int line, int piece) {
  return line * 128 + ((piece ^ ((line & 3) << 1)) << 4);
}
""",
}

# A piece that is not 16 aligned bytes: its first `count` elements, zeros behind them. By bytes of
# an element.
_NARROW: dict[int, str] = {
    2: """
struct __align__(16) Words { unsigned x[4]; };
// Of the 16 bytes that the first lies in, and the next 16, those words are read that have one of
// them.
__device__ __forceinline__ void shifted_piece(unsigned char* to, const ITEM* from, int count) {
  const int skip = (int)((u64)from & 15) / 2, end = (skip + count) * 2;
  const unsigned char* const words = (const unsigned char*)((u64)from & ~(u64)15);
  unsigned w[8] = {};
  Words piece;
  if (count > 0) load_around(w, words, skip * 2, end);
  if (end > 16) load_around(w + 4, words + 16, 0, end - 16);
  #pragma unroll
  for (int i = 0; i < 6; i++) w[i] = skip & 4 ? w[i + 2] : w[i];
  #pragma unroll
  for (int i = 0; i < 5; i++) w[i] = skip & 2 ? w[i + 1] : w[i];
  #pragma unroll
  for (int i = 0; i < 4; i++) {
    const unsigned found = skip & 1 ? w[i] >> 16 | w[i + 1] << 16 : w[i];
    piece.x[i] = count >= 2 * i + 2 ? found : count == 2 * i + 1 ? found & 0xffff : 0;
  }
  *(Words*)to = piece;
}
template <class X> __device__ __forceinline__ void narrow_piece(
    unsigned char* to, const X& x, const ITEM* from, int count) {
  if (X::dense) {
    shifted_piece(to, from, count);
    return;
  }
  #pragma unroll
  for (int e = 0; e < PIECE; e++)
    ((unsigned short*)to)[e] = e < count ? from[e * x.step].bits : (unsigned short)0;
}
""",
    4: """
template <class X> __device__ __forceinline__ void narrow_piece(
    unsigned char* to, const X& x, const ITEM* from, int count) {
  #pragma unroll
  for (int e = 0; e < PIECE; e++)
    cp_async_4(
        shared_address(to + e * 4), e < count ? from + e * x.step : from, e < count ? 4 : 0);
}
""",
}

_TILES = """
// LINES lines that go along k.
template <class X, int LINES> struct DepthTile {
  const X& x;
  typename X::Line* lines;
  bool wide;
  void begin(i64 row0) const {
    for (int i = threadIdx.x; i < LINES; i += THREADS) lines[i] = x.line(row0 + i);
  }
  void load(unsigned char* tile, i64 k) const {
    const int piece = threadIdx.x % 8, line0 = threadIdx.x / 8;
    const typename X::Along along = x.along(k + piece * PIECE);
    int count;
    if (wide) {
      #pragma unroll
      for (int i = 0; i < LINES; i += PASS) {
        const ITEM* const from = x.at(lines[line0 + i], along, &count);
        cp_async_16(shared_address(tile + place(line0 + i, piece)), from, count * ITEM_BYTES);
      }
    } else {
      #pragma unroll 1
      for (int i = 0; i < LINES; i += PASS) {
        const ITEM* const from = x.at(lines[line0 + i], along, &count);
        narrow_piece(tile + place(line0 + i, piece), x, from, count);
      }
    }
  }
};
// DEEP lines that go along rows, in PANELS of these.
template <class X, int PANELS> struct RowsTile {
  const X& x;
  typename X::Along along[PANELS];
  bool wide;
  void begin(i64 row0) {
    #pragma unroll
    for (int p = 0; p < PANELS; p++) along[p] = x.along(row0 + p * PANEL + threadIdx.x % 8 * PIECE);
  }
  void load(unsigned char* tile, i64 k) const {
    const int piece = threadIdx.x % 8, line0 = threadIdx.x / 8;
    int count;
    if (wide) {
      #pragma unroll
      for (int i = 0; i < DEEP; i += PASS) {
        const typename X::Line line = x.line(k + line0 + i);
        const unsigned to = shared_address(tile + place_rows(line0 + i, piece));
        #pragma unroll
        for (int p = 0; p < PANELS; p++) {
          const ITEM* const from = x.at(line, along[p], &count);
          cp_async_16(to + p * DEEP * 128, from, count * ITEM_BYTES);
        }
      }
    } else {
      #pragma unroll 1
      for (int i = 0; i < DEEP; i += PASS) {
        const typename X::Line line = x.line(k + line0 + i);
        unsigned char* const to = tile + place_rows(line0 + i, piece);
        #pragma unroll
        for (int p = 0; p < PANELS; p++) {
          const ITEM* const from = x.at(line, along[p], &count);
          narrow_piece(to + p * DEEP * 128, x, from, count);
        }
      }
    }
  }
};
"""

# Within multiply(), which has left, right, m0, n0 and the bytes of all stages: both operands'
# tiles.
_BEGIN = """
  typedef LEFT_TILE LeftTile;
  typedef RIGHT_TILE RightTile;
  LEFT_MAKE
  RIGHT_MAKE
  left_tile.begin(m0);
  right_tile.begin(n0);
  __syncthreads();
"""


def loader(dtype: DType) -> str:
    """CUDA C of the tiles' structs, for elements of a type."""
    size = dtype.itemsize
    constants = (
        f"typedef {c_type(dtype)} ITEM;\n"
        f"const int ITEM_BYTES = {size}, PIECE = {16 // size}, PANEL = {128 // size};\n"
        "const int PASS = THREADS / 8;  // lines that are copied at a time\n"
    )
    return "".join((constants, _PLACE, _PLACE_ROWS[size], _NARROW[size], _TILES))


def begin(tile: Tile, left: TileSource, right: TileSource) -> str:
    """CUDA C that makes and begins `left_tile` and `right_tile`."""
    text, behind = _BEGIN, stage_bytes(tile) * tile.stages
    panel = 128 // left.dtype.itemsize
    for side, source, extent in (("left", left, tile.m), ("right", right, tile.n)):
        kind = side.capitalize()
        if source.along == "depth":
            struct = f"DepthTile<{kind}, {extent}>"
            made = (
                f"const {kind}Tile {side}_tile = {{{side}, "
                f"(typename {kind}::Line*)(shared + {behind}), {side}.wide()}};"
            )
            behind += extent * source.line_bytes
        else:
            struct = f"RowsTile<{kind}, {extent // panel}>"
            made = f"{kind}Tile {side}_tile = {{{side}, {{}}, {side}.wide()}};"
        text = text.replace(f"{side.upper()}_TILE", struct).replace(f"{side.upper()}_MAKE", made)
    return text


def stage_bytes(tile: Tile) -> int:
    """Of both operands' tiles, whose steps of k are lines of 128 bytes."""
    return (tile.m + tile.n) * 128


def shared_bytes(tile: Tile, left: TileSource, right: TileSource) -> int:
    """Of the stages, and of what is kept of lines."""
    kept = sum(
        extent * source.line_bytes
        for source, extent in ((left, tile.m), (right, tile.n)) if source.along == "depth"
    )
    return stage_bytes(tile) * tile.stages + kept
