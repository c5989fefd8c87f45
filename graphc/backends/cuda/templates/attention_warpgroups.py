"""Attention by wgmma, which sm_90a has: the functions of attention_text.py for warpgroups.

A warpgroup has 64 rows of its own, whose scores lie among its threads as mma.sync's do; rounded to
halves they are the left operand of the next product where they lie. Panels in shared memory are
those of attention_engines.py: their swizzle is the one that descriptors know. Products are begun,
and waited for where their sums are read: while a tile's scores become probabilities, the tensor
cores work on other products (Shah et al. 2024, FlashAttention-3, arXiv:2407.08608). Nothing is
specialised: all threads copy, by cp.async, a tile ahead of the one that is multiplied.
"""

from __future__ import annotations

from graphc.backends.cuda import wgmma
from graphc.backends.cuda.templates import attention_engines as engines
from graphc.backends.cuda.templates.attention_text import (
    BACKWARD_BEGIN,
    BACKWARD_END,
    BACKWARD_TILE,
    BLOCKS,
    FORWARD_END,
    PAIRS_HERE,
    SOFTEN,
    SUMS,
)

_ENGINE = engines.FRAGMENTS + """
// A group of products: rows of this warpgroup along e (or f) with rows of a tile.
template <int WIDTH> __device__ __forceinline__ void begin_products(
    float* s, const unsigned char* left, const unsigned char* right) {
  const unsigned a = shared_address(left) + threadIdx.x / 128 * 64 * 128;
  const unsigned b = shared_address(right);
  settle<COLUMNS / 2>(s);
  wgmma_fence();
  #pragma unroll
  for (int part = 0; part < WIDTH / 16; part++)
    wgmma_shared(
        Columns<COLUMNS>(), s, wgmma_descriptor(a + part / 4 * ROWS * 128 + part % 4 * 32),
        wgmma_descriptor(b + part / 4 * COLUMNS * 128 + part % 4 * 32), part > 0);
  wgmma_commit();
}
// Another: what `round` has left, along the columns of a tile, with what these have.
template <int WIDTH> __device__ __forceinline__ void begin_sums(
    float* sums, unsigned* halves, const unsigned char* right) {
  const unsigned b = shared_address(right);
  settle<WIDTH / 2>(sums);
  settle<COLUMNS / 4>(halves);
  wgmma_fence();
  #pragma unroll
  for (int part = 0; part < COLUMNS / 16; part++)
    wgmma_registers(
        Columns<WIDTH>(), sums, halves + part * 4, wgmma_rows(b + part * 16 * 128, COLUMNS * 128));
  wgmma_commit();
}
__device__ __forceinline__ void round(unsigned* halves, const float* s) {
  #pragma unroll
  for (int n = 0; n < COLUMNS / 4; n++) halves[n] = PACK(s[2 * n], s[2 * n + 1]);
}
__device__ __forceinline__ float thinned(float x, bool stays, float factor) {
  return !DROPOUT ? x : stays ? x * factor : 0;
}
// What was copied is there for all threads and for wgmma, and what was read before is free.
__device__ __forceinline__ void arrive() {
  cp_async_wait<0>();
  async_proxy_fence();
  __syncthreads();
}
"""


def engine(kind: str, columns: int, sums: tuple[int, ...]) -> str:
    """For tiles of `columns`, and sums so wide."""
    return "".join((
        wgmma.COLUMNS, wgmma.SETTLED, wgmma.ROWS_DESCRIPTOR, wgmma.of_shared(kind, columns),
        *(wgmma.of_registers(kind, width) for width in dict.fromkeys(sums)), _ENGINE,
    ))


# Scores of a tile are begun before what the tile before it adds: the softmax of the one overlaps
# the products of the other. Keys are a tile ahead of values.
FORWARD = SOFTEN + BLOCKS + """\
    const Matrix q = matrix(MATRIX_q), k = matrix(MATRIX_k), v = matrix(MATRIX_v);
    PAIR_BASES
    const i64 end = CAUSAL && first + ROWS < n ? first + ROWS : n, first_query = first;
""" + SUMS + """\
    float s[COLUMNS / 2];
    unsigned halves[COLUMNS / 4], kept_bits[2];
    unsigned char *stage = shared + STAGE, *other = shared + STAGE + STAGE_SIZE;
    load<ROWS, E>(shared, q, first, m);
    load<COLUMNS, E>(stage, k, 0, n);
    cp_async_commit();
    arrive();
    begin_products<E>(s, shared, stage);
    load<COLUMNS, F>(stage + RIGHT_F, v, 0, n);
    if (COLUMNS < end) load<COLUMNS, E>(other, k, COLUMNS, n);
    cp_async_commit();
    {
      const i64 first_key = 0;
""" + PAIRS_HERE + """\
      draw_tile(kept_bits, pairs);
      wgmma_wait<0>();
      settle<COLUMNS / 2>(s);
      soften(s, pairs, kept_bits, peak, total, shrunk);
      round(halves, s);
    }
    for (i64 first_key = COLUMNS; first_key < end; first_key += COLUMNS) {
      const i64 next = first_key + COLUMNS;
      arrive();
      begin_products<E>(s, shared, other);
      begin_sums<F>(sums, halves, stage + RIGHT_F);
      load<COLUMNS, F>(other + RIGHT_F, v, first_key, n);
      if (next < end) load<COLUMNS, E>(stage, k, next, n);
      cp_async_commit();
      unsigned char* const read = stage;
      stage = other, other = read;
""" + PAIRS_HERE + """\
      draw_tile(kept_bits, pairs);
      wgmma_wait<1>();
      settle<COLUMNS / 2>(s);
      soften(s, pairs, kept_bits, peak, total, shrunk);
      wgmma_wait<0>();
      settle<F / 2>(sums);
      round(halves, s);
      #pragma unroll
      for (int c = 0; c < F / 2; c++) sums[c] *= shrunk[c % 4 / 2];
    }
    arrive();
    begin_sums<F>(sums, halves, stage + RIGHT_F);
    wgmma_wait<0>();
    settle<F / 2>(sums);
""" + FORWARD_END

# Both products of a tile are begun together; what the first gives is summed while the second is
# multiplied, and the last sums are still under way when the next tile's products are begun. So a
# tile stays in shared memory for one tile more: there are three stages.
BACKWARD = BACKWARD_BEGIN + """\
    float s[COLUMNS / 2], rise[COLUMNS / 2];
    unsigned halves_e[COLUMNS / 4], halves_f[COLUMNS / 4];
""" + BACKWARD_TILE + """\
      arrive();
      begin_products<E>(s, shared, right);
      if (SUMS_E) begin_products<F>(rise, shared + LEFT_F, right + RIGHT_F);
      stage = stage == shared + STAGE + (STAGES - 1) * STAGE_SIZE ? shared + STAGE
                                                                  : stage + STAGE_SIZE;
      LOAD_NEXT
      cp_async_commit();
""" + PAIRS_HERE + """\
      const float* const values = (const float*)(right + VALUES);
      unsigned kept_bits[2];
      draw_tile(kept_bits, pairs);
      wgmma_wait<SUMS_E ? 1 : 0>();
      settle<COLUMNS / 2>(s);
      const float by = scores_by(pairs);
      if (whole) scores<true>(s, pairs); else scores<false>(s, pairs);
      #pragma unroll
      for (int j = 0; j < THREAD_COLUMNS; j++) {
        const float column_lse = OF_KEYS ? values[column_of(j)] * UNIT : 0;
        #pragma unroll
        for (int i = 0; i < 2; i++) {
          float* const x = s + at(THREAD_COLUMNS, i, j);
          *x = power(fmaf(*x, by, -(OF_KEYS ? column_lse : row_lse[i])));
        }
      }
      if (SUMS_F) {
        #pragma unroll
        for (int j = 0; j < THREAD_COLUMNS; j += 2)
          #pragma unroll
          for (int i = 0; i < 2; i++) {
            const float* const x = s + at(THREAD_COLUMNS, i, j);
            halves_f[j + i] = PACK(thinned(x[0], is_kept(kept_bits, i, j), factor),
                                   thinned(x[1], is_kept(kept_bits, i, j + 1), factor));
          }
        begin_sums<F>(sums_f, halves_f, right + RIGHT_F);
      }
      if (!SUMS_E) continue;
      wgmma_wait<SUMS_F ? 1 : 0>();
      settle<COLUMNS / 2>(rise);
      #pragma unroll
      for (int j = 0; j < THREAD_COLUMNS; j++) {
        const float column_slope = OF_KEYS ? values[COLUMNS + column_of(j)] : 0;
        #pragma unroll
        for (int i = 0; i < 2; i++) {
          const int here = at(THREAD_COLUMNS, i, j);
          const float up = thinned(rise[here], is_kept(kept_bits, i, j), factor);
          rise[here] = s[here] * (up - (OF_KEYS ? column_slope : row_slope[i]));
        }
      }
      round(halves_e, rise);
      begin_sums<E>(sums_e, halves_e, right);
      if (SUMS_F) wgmma_wait<1>();  // before it: what frees the registers of its halves
    }
    cp_async_wait<0>();
    wgmma_wait<0>();
    if (SUMS_E) settle<SUMS_E ? E / 2 : 1>(sums_e);
    if (SUMS_F) settle<SUMS_F ? F / 2 : 1>(sums_f);
""" + BACKWARD_END
