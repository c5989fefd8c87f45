"""What multiplies tiles of attention: tensor cores for 16-bit floats, and FFMA for f32. Both say
where the elements of a tile lie among the threads, and have the same functions.

A tile lies in shared memory as panels, of lines of 128 bytes, whose 16-byte pieces are xor-ed with
the row: eight rows' pieces are in different banks, and so are eight pieces of a row.
"""

from __future__ import annotations

_FLOOR = """
__device__ __forceinline__ float lowest() { return float_bits(0xff800000u); }
"""
# How scores are counted: in powers of 2, which a power is made of at once; or, where a mask is
# added, as they are: it may be the least of all floats, whose multiple would be infinite.
IN_POWERS_OF_2 = _FLOOR + """
__device__ __forceinline__ float power(float x) { return power_of_2(x); }
__device__ __forceinline__ float logarithm(float x) { return log2f(x); }
const float UNIT = 1.4426950408889634f;
"""
AS_THEY_ARE = _FLOOR + """
__device__ __forceinline__ float power(float x) { return power_of_2(x * 1.4426950408889634f); }
__device__ __forceinline__ float logarithm(float x) { return logf(x); }
const float UNIT = 1.0f;
"""
EXACTLY = _FLOOR + """
__device__ __forceinline__ float power(float x) { return expf(x); }
__device__ __forceinline__ float logarithm(float x) { return logf(x); }
const float UNIT = 1.0f;
"""

# Rows outside of a tensor and columns outside of a head are zeros: they are multiplied, too.
COMMON = """
const int PIECE = 16 / (int)sizeof(T);  // elements
template <int HEIGHT> __device__ __forceinline__ unsigned place(int row, int piece) {
  return (unsigned)(((piece >> 3) * HEIGHT + row) * 128 + (((piece ^ row) & 7) << 4));
}
struct Matrix { const T* base; i64 row, column; int width; bool whole; };
__device__ __forceinline__ Matrix matrix(const T* base, i64 row, i64 column, i64 width) {
  const bool whole = column == 1 && row % PIECE == 0 && width % PIECE == 0 && (u64)base % 16 == 0;
  return Matrix{base, row, column, (int)width, whole};
}
template <int HEIGHT, int WIDTH> __device__ __forceinline__ void load(
    unsigned char* to, const Matrix& x, i64 first, i64 end) {
  const int pieces = WIDTH / PIECE, rows = end - first < HEIGHT ? (int)(end - first) : HEIGHT;
  const T* const from = x.base + first * x.row;
  if (x.whole && THREADS % (pieces * 8) == 0) {
    // a thread's pieces are below each other; one register for all their addresses
    const int piece = threadIdx.x % pieces, step = THREADS / pieces;
    const bool within = piece * PIECE < x.width;
    int row = threadIdx.x / pieces;
    const T* source = from + row * x.row + piece * PIECE;
    unsigned address = shared_address(to) + place<HEIGHT>(row, piece);
    #pragma unroll 1
    for (; row < HEIGHT; row += step, source += step * x.row, address += step * 128) {
      const bool inside = row < rows && within;
      cp_async_16(address, inside ? source : x.base, inside ? 16 : 0);
    }
    return;
  }
  if (x.whole) {
    const unsigned address = shared_address(to);
    for (int n = threadIdx.x; n < HEIGHT * pieces; n += THREADS) {
      const int row = n / pieces, piece = n % pieces;
      const bool inside = row < rows && piece * PIECE < x.width;
      const T* const source = inside ? from + row * x.row + piece * PIECE : x.base;
      cp_async_16(address + place<HEIGHT>(row, piece), source, inside ? 16 : 0);
    }
    return;
  }
  for (int n = threadIdx.x; n < HEIGHT * WIDTH; n += THREADS) {
    const int row = n / WIDTH, column = n % WIDTH;
    const bool inside = row < rows && column < x.width;
    T value = T(0.0f);
    if (inside) value = from[row * x.row + column * x.column];
    *((T*)(to + place<HEIGHT>(row, column / PIECE)) + column % PIECE) = value;
  }
}
template <class F> __device__ __forceinline__ float over_row(float x, F combined) {
  #pragma unroll
  for (int by = 1; by < SHARING; by *= 2) x = combined(x, __shfl_xor_sync(~0u, x, by));
  return x;
}
"""

# Where a warp's 16 rows lie among its threads, in what mma.sync and wgmma give.
FRAGMENTS = """
__device__ __forceinline__ int row_of(int i) {
  return threadIdx.x / 32 * 16 + threadIdx.x % 32 / 4 + i * 8;
}
__device__ __forceinline__ int column_of(int j) {
  return j / 2 * 8 + threadIdx.x % 4 * 2 + j % 2;
}
__device__ __forceinline__ int sum_column_of(int j) { return column_of(j); }
constexpr int at(int columns, int i, int j) { return j / 2 * 4 + i * 2 + j % 2; }
"""
# Fragments of m16n8k16. Probabilities are those of a product's result, and as they lie the left
# operand of the next.
TENSOR = FRAGMENTS + """
__device__ __forceinline__ void fragment(unsigned* a, const unsigned char* left, int part) {
  const int lane = threadIdx.x % 32;
  const int row = threadIdx.x / 32 * 16 + lane % 16;
  ldmatrix_x4(a, shared_address(left) + place<ROWS>(row, part * 2 + lane / 16));
}
template <int WIDTH> __device__ __forceinline__ void hold(
    unsigned* held, const unsigned char* left) {
  #pragma unroll
  for (int part = 0; part < WIDTH / 16; part++) fragment(held + part * 4, left, part);
}
template <int WIDTH, bool HELD> __device__ __forceinline__ void products(
    float* s, const unsigned* held, const unsigned char* left, const unsigned char* right, int) {
  const int lane = threadIdx.x % 32;
  const unsigned address = shared_address(right);
  #pragma unroll
  for (int n = 0; n < COLUMNS / 2; n++) s[n] = 0;
  #pragma unroll
  for (int part = 0; part < WIDTH / 16; part++) {
    unsigned read[4];
    if (!HELD) fragment(read, left, part);
    const unsigned* const a = HELD ? held + part * 4 : read;
    #pragma unroll
    for (int pair = 0; pair < COLUMNS / 16; pair++) {
      unsigned b[4];
      const int row = pair * 16 + lane % 8 + lane / 16 * 8;
      ldmatrix_x4(b, address + place<COLUMNS>(row, part * 2 + lane / 8 % 2));
      MULTIPLY(s + pair * 8, a, b);
      MULTIPLY(s + pair * 8 + 4, a, b + 2);
    }
  }
}
template <int WIDTH> __device__ __forceinline__ void add(
    float* sums, const float* p, const unsigned char* right, unsigned char*) {
  const int lane = threadIdx.x % 32;
  const unsigned address = shared_address(right);
  #pragma unroll
  for (int part = 0; part < COLUMNS / 16; part++) {
    unsigned a[4], b[4];
    #pragma unroll
    for (int n = 0; n < 4; n++) a[n] = PACK(p[part * 8 + n * 2], p[part * 8 + n * 2 + 1]);
    #pragma unroll
    for (int pair = 0; pair < WIDTH / 16; pair++) {
      ldmatrix_x4_trans(b, address + place<COLUMNS>(part * 16 + lane % 16, pair * 2 + lane / 16));
      MULTIPLY(sums + pair * 8, a, b);
      MULTIPLY(sums + pair * 8 + 4, a, b + 2);
    }
  }
}
"""

# 16 x 16 threads. Probabilities go through shared memory, from lane to lane of a half-warp, which
# has the same rows in both products.
FFMA = """
__device__ __forceinline__ int row_of(int i) { return threadIdx.x / 16 * THREAD_ROWS + i; }
__device__ __forceinline__ int column_of(int j) { return threadIdx.x % 16 + j * 16; }
__device__ __forceinline__ int sum_column_of(int j) {
  return j / 4 * 64 + threadIdx.x % 16 * 4 + j % 4;
}
constexpr int at(int columns, int i, int j) { return i * columns + j; }

template <int HEIGHT> __device__ __forceinline__ float4 four(
    const unsigned char* tile, int row, int piece) {
  return *(const float4*)(tile + place<HEIGHT>(row, piece));
}
template <int WIDTH> __device__ __forceinline__ void hold(unsigned*, const unsigned char*) {}
template <int WIDTH, bool HELD> __device__ __forceinline__ void products(
    float* s, const unsigned*, const unsigned char* left, const unsigned char* right, int width) {
  #pragma unroll
  for (int n = 0; n < THREAD_ROWS * THREAD_COLUMNS; n++) s[n] = 0;
  for (int piece = 0; piece < (width + 3) / 4; piece++) {
    float4 a[THREAD_ROWS];
    #pragma unroll
    for (int i = 0; i < THREAD_ROWS; i++) a[i] = four<ROWS>(left, row_of(i), piece);
    #pragma unroll
    for (int j = 0; j < THREAD_COLUMNS; j++) {
      const float4 b = four<COLUMNS>(right, column_of(j), piece);
      #pragma unroll
      for (int i = 0; i < THREAD_ROWS; i++) {
        float* const sum = s + at(THREAD_COLUMNS, i, j);
        *sum = fmaf(a[i].w, b.w, fmaf(a[i].z, b.z, fmaf(a[i].y, b.y, fmaf(a[i].x, b.x, *sum))));
      }
    }
  }
}
template <int WIDTH> __device__ __forceinline__ void add(
    float* sums, const float* p, const unsigned char* right, unsigned char* through) {
  float* const shared = (float*)through;
  __syncwarp();
  #pragma unroll
  for (int i = 0; i < THREAD_ROWS; i++)
    #pragma unroll
    for (int j = 0; j < THREAD_COLUMNS; j++)
      shared[row_of(i) * PITCH + column_of(j)] = p[at(THREAD_COLUMNS, i, j)];
  __syncwarp();
  for (int column = 0; column < COLUMNS; column += 4) {
    float a[THREAD_ROWS][4];
    #pragma unroll
    for (int i = 0; i < THREAD_ROWS; i++) {
      const float4 found = *(const float4*)(shared + row_of(i) * PITCH + column);
      a[i][0] = found.x, a[i][1] = found.y, a[i][2] = found.z, a[i][3] = found.w;
    }
    #pragma unroll
    for (int k = 0; k < 4; k++)
      #pragma unroll
      for (int n = 0; n < WIDTH / 64; n++) {
        const float4 b = four<COLUMNS>(right, column + k, n * 16 + threadIdx.x % 16);
        #pragma unroll
        for (int i = 0; i < THREAD_ROWS; i++) {
          float* const sum = sums + i * (WIDTH / 16) + n * 4;
          sum[0] = fmaf(a[i][k], b.x, sum[0]), sum[1] = fmaf(a[i][k], b.y, sum[1]);
          sum[2] = fmaf(a[i][k], b.z, sum[2]), sum[3] = fmaf(a[i][k], b.w, sum[3]);
        }
      }
  }
}
"""
