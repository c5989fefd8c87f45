"""The functions of attention and of its gradient, over either engine (attention_engines.py).

Online softmax: Milakov & Gimelshein 2018, arXiv:1805.02867; Dao et al. 2022, arXiv:2205.14135. No
block adds to what another has summed: dq is summed along keys, dk and dv along queries, by stages
of their own that make the scores again. Words in capitals are filled in, or are constants of a
stage.
"""

from __future__ import annotations

# What is known of a tile's queries and keys, and how a score is made of a product.
PAIRS = """
struct Pairs {
  int queries, keys, diagonal;  // query q sees keys up to q + diagonal
  bool whole;
  float scale;
  FIELDS
};
__device__ __forceinline__ bool inside(const Pairs& pairs, int query, int key) {
  return query < pairs.queries && key < pairs.keys && (!CAUSAL || key <= query + pairs.diagonal);
}
template <bool WHOLE> __device__ __forceinline__ float score(
    const Pairs& pairs, float product, int query, int key) {
  if (!WHOLE && !inside(pairs, query, key)) return lowest();
  float x = RAW ? product : product * pairs.scale;
  MASKED
  return x;
}
// What scores still have to be multiplied by: RAW ones are products, which the same instruction
// that subtracts from them scales.
__device__ __forceinline__ float scores_by(const Pairs& pairs) { return RAW ? pairs.scale : 1.0f; }
template <bool WHOLE> __device__ __forceinline__ void scores(float* s, const Pairs& pairs) {
  #pragma unroll
  for (int i = 0; i < THREAD_ROWS; i++)
    #pragma unroll
    for (int j = 0; j < THREAD_COLUMNS; j++) {
      float* const x = s + at(THREAD_COLUMNS, i, j);
      const int row = row_of(i), column = column_of(j);
      *x = score<WHOLE>(pairs, *x, OF_KEYS ? column : row, OF_KEYS ? row : column);
    }
}
__device__ __forceinline__ bool keeps(const Pairs& pairs, int query, int key) {
  KEEPS
}
// What dropout keeps, a bit for each of a thread's columns: it is drawn before there are scores,
// which take the registers.
__device__ __forceinline__ void draw_tile(unsigned* kept, const Pairs& pairs) {
  if (!DROPOUT) return;
  #pragma unroll
  for (int i = 0; i < THREAD_ROWS; i++) {
    const int row = row_of(i);
    kept[i] = 0;
    #pragma unroll 4
    for (int j = 0; j < THREAD_COLUMNS; j++) {
      const int column = column_of(j);
      const bool stays = keeps(pairs, OF_KEYS ? column : row, OF_KEYS ? row : column);
      kept[i] |= (unsigned)stays << j;
    }
  }
}
__device__ __forceinline__ bool is_kept(const unsigned* kept, int i, int j) {
  return !DROPOUT || (kept[i] >> j & 1);
}
"""
MASKED = {
    "": "",
    "bool": "if (!pairs.mask[query * pairs.mask_by_m + key * pairs.mask_by_n]) return lowest();",
    "float": "x = fmaf((float)pairs.mask[query * pairs.mask_by_m + key * pairs.mask_by_n], UNIT, "
             "x);",
}
KEEPS = {
    "": "return true;",
    "kept": "return inside(pairs, query, key) && "
            "pairs.kept[query * pairs.kept_by_m + key * pairs.kept_by_n];",
    "draw": "return squares32(pairs.counter + (u64)query * pairs.row + (u64)key, pairs.key) < "
            "pairs.keep;",
}
# Widynski, Squares: A Fast Counter-Based RNG, arXiv:2004.06278
SQUARES = """
__device__ __forceinline__ unsigned squares32(u64 counter, u64 key) {
  const u64 y = counter * key, z = y + key;
  u64 x = y * y + y;
  x = x >> 32 | x << 32;
  x = x * x + z;
  x = x >> 32 | x << 32;
  x = x * x + y;
  x = x >> 32 | x << 32;
  return (unsigned)((x * x + z) >> 32);
}
"""

BLOCKS = """
extern "C" __global__ void __launch_bounds__(BOUNDS) FUNCTION(PARAMETERS) {
  NUMBERS
  DYNAMIC_SHARED(shared);
  const i64 tiles = (ROW_COUNT + ROWS - 1) / ROWS;
  for (i64 block = blockIdx.x; block < batch * tiles * PARTS; block += gridDim.x) {
    const i64 b = block / PARTS / tiles, turn = block / PARTS % tiles;
    const i64 first = (LAST_FIRST ? tiles - 1 - turn : turn) * ROWS;  // what is longest comes first
"""
PAIRS_HERE = """\
      const bool whole = first_query + QUERY_TILE <= m && first_key + KEY_TILE <= n &&
          (!CAUSAL || first_key + KEY_TILE - 1 <= first_query);
      const Pairs pairs = {(int)(m - first_query), (int)(n - first_key),
          (int)(first_query - first_key), whole, float_bits((unsigned)scale), PAIR_VALUES};
"""
# What a tile's products become: dropped or not, what each adds; and by how much what was summed
# before shrinks.
SOFTEN = """
__device__ __forceinline__ void soften(
    float* s, const Pairs& pairs, const unsigned* kept, float* peak, float* total, float* shrunk) {
  const float by = scores_by(pairs);
  if (pairs.whole) scores<true>(s, pairs); else scores<false>(s, pairs);
  #pragma unroll
  for (int i = 0; i < THREAD_ROWS; i++) {
    float top = lowest(), sum = 0;
    #pragma unroll
    for (int j = 0; j < THREAD_COLUMNS; j++) top = fmaxf(top, s[at(THREAD_COLUMNS, i, j)]);
    top = fmaxf(peak[i], over_row(top, larger) * by);
    const float away = top == lowest() ? 0 : top;
    shrunk[i] = power(peak[i] - away);
    peak[i] = top;
    #pragma unroll
    for (int j = 0; j < THREAD_COLUMNS; j++) {
      float* const x = s + at(THREAD_COLUMNS, i, j);
      *x = power(fmaf(*x, by, -away));
      sum += *x;
      if (!is_kept(kept, i, j)) *x = 0;
    }
    total[i] = fmaf(total[i], shrunk[i], sum);
  }
}
"""
# What is summed of a thread's rows: values, the largest score so far, the powers' sum.
SUMS = """\
    float sums[THREAD_ROWS * (F / SHARING)], peak[THREAD_ROWS], total[THREAD_ROWS];
    float shrunk[THREAD_ROWS];
    #pragma unroll
    for (int c = 0; c < THREAD_ROWS * (F / SHARING); c++) sums[c] = 0;
    #pragma unroll
    for (int i = 0; i < THREAD_ROWS; i++) peak[i] = lowest(), total[i] = 0;
"""
FORWARD_END = """\
    #pragma unroll
    for (int i = 0; i < THREAD_ROWS; i++) {
      const i64 row = first + row_of(i);
      const float all = over_row(total[i], both);
      if (row >= m) continue;
      FINISH
    }
    __syncthreads();
  }
}
"""
FORWARD = SOFTEN + BLOCKS + """\
    const i64 part = block % PARTS;
    const Matrix q = matrix(MATRIX_q), k = matrix(MATRIX_k), v = matrix(MATRIX_v);
    PAIR_BASES
    i64 end = CAUSAL && first + ROWS < n ? first + ROWS : n;
    if (PARTS > 1 && end > (part + 1) * PART_KEYS) end = (part + 1) * PART_KEYS;
    const i64 start = PARTS > 1 ? part * PART_KEYS : 0;
""" + SUMS + """\
    unsigned held[HELD ? E / 4 : 1];
    unsigned char* stage = shared + STAGE;
    load<ROWS, E>(shared, q, first, m);
    if (start < end) {
      load<COLUMNS, E>(stage, k, start, n);
      load<COLUMNS, F>(stage + RIGHT_F, v, start, n);
    }
    cp_async_commit();
    if (HELD) {
      cp_async_wait<0>();
      __syncthreads();
      hold<E>(held, shared);
    }
    for (i64 first_key = start; first_key < end; first_key += COLUMNS) {
      const i64 first_query = first, next = first_key + COLUMNS;
      unsigned char* const right = stage;
      cp_async_wait<0>();
      __syncthreads();
      if (STAGES == 2) {
        stage = shared + STAGE + (stage == shared + STAGE ? STAGE_SIZE : 0);
        if (next < end) {
          load<COLUMNS, E>(stage, k, next, n);
          load<COLUMNS, F>(stage + RIGHT_F, v, next, n);
        }
        cp_async_commit();
      }
""" + PAIRS_HERE + """\
      float s[THREAD_ROWS * THREAD_COLUMNS];
      unsigned kept_bits[THREAD_ROWS];
      draw_tile(kept_bits, pairs);
      products<E, HELD>(s, held, shared, right, q.width);
      soften(s, pairs, kept_bits, peak, total, shrunk);
      #pragma unroll
      for (int i = 0; i < THREAD_ROWS; i++)
        #pragma unroll
        for (int j = 0; j < F / SHARING; j++) sums[at(F / SHARING, i, j)] *= shrunk[i];
      add<F>(sums, s, right + RIGHT_F, shared + THROUGH);
      if (STAGES == 1) {
        __syncthreads();
        if (next < end) {
          load<COLUMNS, E>(stage, k, next, n);
          load<COLUMNS, F>(stage + RIGHT_F, v, next, n);
        }
        cp_async_commit();
      }
    }
    cp_async_wait<0>();
""" + FORWARD_END
SOFTMAX = """
__device__ __forceinline__ float larger(float a, float b) { return fmaxf(a, b); }
__device__ __forceinline__ float both(float a, float b) { return a + b; }
__device__ __forceinline__ float log_sum(float peak, float total) {
  return total == 0 ? -lowest() : (peak + logarithm(total)) / UNIT;
}
"""
# What a block that has all keys stores, and one that has a part of them: the sums, and their rows'
# largest scores and sums of powers.
FINISH = {
    "out": """\
const float factor = all == 0 ? 0 : float_bits((unsigned)kept_factor) / all;
      #pragma unroll
      for (int j = 0; j < F / SHARING; j++) {
        const int column = sum_column_of(j);
        if (column < f) AT_out = T(sums[at(F / SHARING, i, j)] * factor);
      }
      """,
    "lse": "if (column_of(0) == 0) AT_lse = log_sum(peak[i], all);",
    "part": """\
float* const values = (float*)scratch + ((b * m + row) * PARTS + part) * (F + 2);
      #pragma unroll
      for (int j = 0; j < F / SHARING; j++)
        values[sum_column_of(j)] = sums[at(F / SHARING, i, j)];
      if (column_of(0) == 0) values[F] = peak[i], values[F + 1] = all;""",
    "dk": """\
#pragma unroll
      for (int j = 0; j < E / SHARING; j++) {
        const int column = sum_column_of(j);
        const float value = sums_e[at(E / SHARING, i, j)] * float_bits((unsigned)plain_scale);
        if (column < e) AT_dk = T(value);
      }
      """,
    "dv": """\
#pragma unroll
      for (int j = 0; j < F / SHARING; j++) {
        const int column = sum_column_of(j);
        if (column < f) AT_dv = T(sums_f[at(F / SHARING, i, j)]);
      }""",
}
FINISH["dq"] = FINISH["dk"].replace("AT_dk", "AT_dq")
COMBINE = """
extern "C" __global__ void __launch_bounds__(BOUNDS) FUNCTION(PARAMETERS) {
  NUMBERS
  for (i64 block = blockIdx.x; block < batch * m; block += gridDim.x) {
    const i64 b = block / m, row = block % m;
    const float* const values = (const float*)scratch + block * PARTS * (F + 2);
    float top = lowest(), all = 0;
    for (i64 part = 0; part < PARTS; part++) top = fmaxf(top, values[part * (F + 2) + F]);
    const float away = top == lowest() ? 0 : top;
    for (i64 part = 0; part < PARTS; part++)
      all = fmaf(values[part * (F + 2) + F + 1], power(values[part * (F + 2) + F] - away), all);
    COMBINED
  }
}
"""
COMBINED = {
    "out": """\
const float factor = all == 0 ? 0 : float_bits((unsigned)kept_factor) / all;
    for (int column = threadIdx.x; column < f; column += THREADS) {
      float sum = 0;
      for (i64 part = 0; part < PARTS; part++) {
        const float* const found = values + part * (F + 2);
        sum = fmaf(found[column], power(found[F] - away), sum);
      }
      AT_out = T(sum * factor);
    }
    """,
    "lse": "if (threadIdx.x == 0) AT_lse = log_sum(top, all);",
}

# Rows' products with what their columns have twice: scores, and how much a result would rise. What
# a stage begins with, what a tile of columns begins with, and the end.
BACKWARD_BEGIN = BLOCKS + """\
    const Matrix left_e = matrix(MATRIX_LEFT_E), left_f = matrix(MATRIX_LEFT_F);
    const Matrix right_e = matrix(MATRIX_RIGHT_E), right_f = matrix(MATRIX_RIGHT_F);
    const float* const lse = PLACE_lse;
    const float* const slope = PLACE_slope;
    const float factor = float_bits((unsigned)kept_factor);
    PAIR_BASES
    const i64 start = OF_KEYS && CAUSAL ? first / COLUMNS * COLUMNS : 0;
    const i64 end = !OF_KEYS && CAUSAL && first + ROWS < COLUMN_COUNT ? first + ROWS : COLUMN_COUNT;
    float sums_e[SUMS_E ? THREAD_ROWS * (E / SHARING) : 1];
    float sums_f[SUMS_F ? THREAD_ROWS * (F / SHARING) : 1];
    if (SUMS_E)
      #pragma unroll
      for (int c = 0; c < THREAD_ROWS * (E / SHARING); c++) sums_e[c] = 0;
    if (SUMS_F)
      #pragma unroll
      for (int c = 0; c < THREAD_ROWS * (F / SHARING); c++) sums_f[c] = 0;
    float row_lse[THREAD_ROWS], row_slope[THREAD_ROWS];
    #pragma unroll
    for (int i = 0; i < THREAD_ROWS; i++) {
      const i64 row = first + row_of(i);
      const bool there = !OF_KEYS && row < m;
      row_lse[i] = there ? lse[row * lse_by_m] * UNIT : 0;
      row_slope[i] = there ? slope[row * slope_by_m] : 0;
    }
    unsigned char* stage = shared + STAGE;
    load<ROWS, E>(shared, left_e, first, ROW_COUNT);
    if (SUMS_E) load<ROWS, F>(shared + LEFT_F, left_f, first, ROW_COUNT);
    LOAD_FIRST
    cp_async_commit();
"""
BACKWARD_TILE = """\
    for (i64 column = start; column < end; column += COLUMNS) {
      const i64 first_query = OF_KEYS ? column : first, first_key = OF_KEYS ? first : column;
      const i64 next = column + COLUMNS;
      unsigned char* const right = stage;
"""
BACKWARD_END = """\
    #pragma unroll
    for (int i = 0; i < THREAD_ROWS; i++) {
      const i64 row = first + row_of(i);
      if (row >= ROW_COUNT) continue;
      FINISH
    }
    __syncthreads();
  }
}
"""
BACKWARD = BACKWARD_BEGIN + BACKWARD_TILE + """\
      cp_async_wait<0>();
      __syncthreads();
      if (STAGES == 2) {
        stage = shared + STAGE + (stage == shared + STAGE ? STAGE_SIZE : 0);
        LOAD_NEXT
        cp_async_commit();
      }
""" + PAIRS_HERE + """\
      float s[THREAD_ROWS * THREAD_COLUMNS], rise[THREAD_ROWS * THREAD_COLUMNS];
      unsigned kept_bits[THREAD_ROWS];
      draw_tile(kept_bits, pairs);
      products<E, false>(s, nullptr, shared, right, left_e.width);
      if (SUMS_E)
        products<F, false>(rise, nullptr, shared + LEFT_F, right + RIGHT_F, left_f.width);
      if (whole) scores<true>(s, pairs); else scores<false>(s, pairs);
      const float* const values = (const float*)(right + VALUES);
      const float by = scores_by(pairs);
      #pragma unroll
      for (int j = 0; j < THREAD_COLUMNS; j++) {
        const float column_lse = OF_KEYS ? values[column_of(j)] * UNIT : 0;
        const float column_slope = OF_KEYS && SUMS_E ? values[COLUMNS + column_of(j)] : 0;
        #pragma unroll
        for (int i = 0; i < THREAD_ROWS; i++) {
          const int here = at(THREAD_COLUMNS, i, j);
          const float p = power(fmaf(s[here], by, -(OF_KEYS ? column_lse : row_lse[i])));
          const bool stays = is_kept(kept_bits, i, j);
          s[here] = stays ? p * factor : 0;  // whatever p is
          if (SUMS_E) {
            const float up = stays ? rise[here] * factor : 0;
            rise[here] = p * (up - (OF_KEYS ? column_slope : row_slope[i]));
          }
        }
      }
      if (SUMS_F) add<F>(sums_f, s, right + RIGHT_F, shared + THROUGH);
      if (SUMS_E) add<E>(sums_e, rise, right, shared + THROUGH);
      if (STAGES == 1) {
        __syncthreads();
        LOAD_NEXT
        cp_async_commit();
      }
    }
    cp_async_wait<0>();
""" + BACKWARD_END
LOAD_TILE = """\
if (WHERE < end) {
          load<COLUMNS, E>(stage, right_e, WHERE, COLUMN_COUNT);
          load<COLUMNS, F>(stage + RIGHT_F, right_f, WHERE, COLUMN_COUNT);
          if (OF_KEYS)
            for (int c = threadIdx.x; c < COLUMNS; c += THREADS) {
              const bool there = WHERE + c < m;
              const i64 query = there ? WHERE + c : 0;
              const unsigned value = shared_address((float*)(stage + VALUES) + c);
              cp_async_4(value, lse + query * lse_by_m, there ? 4 : 0);
              if (SUMS_E)
                cp_async_4(value + COLUMNS * 4, slope + query * slope_by_m, there ? 4 : 0);
            }
        }"""
