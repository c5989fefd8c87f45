"""C helpers that scalar.py's expressions call; every kernel's text begins with them.

Integer arithmetic wraps, so it is done unsigned; a division never traps: by 0 it counts as by 1
(the kernel's own Check reports it), and by -1 it negates.
"""

from __future__ import annotations

from graphc.backends.cuda.instructions import HALVES, SHARED

_COMMON = """\
#ifndef GRAPHC_PRELUDE
#define GRAPHC_PRELUDE
typedef long long i64;
typedef unsigned long long u64;
__device__ inline float float_bits(unsigned b) {
  union { unsigned u; float f; } x; x.u = b; return x.f;
}
__device__ inline double double_bits(u64 b) {
  union { u64 u; double f; } x; x.u = b; return x.f;
}
template <class T> __device__ inline T floordiv(T a, T b) {
  T q = a / b; return q - (a % b != 0 && (a % b < 0) != (b < 0));
}
template <class T> __device__ inline T floormod(T a, T b) {
  T r = a % b; return r != 0 && (r < 0) != (b < 0) ? r + b : r;
}

template <class T> __device__ inline T take_max(T a, T b) { return a > b || a != a ? a : b; }
template <class T> __device__ inline T take_min(T a, T b) { return a < b || a != a ? a : b; }
template <class T> __device__ inline bool better_max(T a, T b) {
  return b == b && (a > b || a != a);
}
template <class T> __device__ inline bool better_max_last(T a, T b) {
    return a > b || a != a;
}
template <class T> __device__ inline bool better_min(T a, T b) {
  return b == b && (a < b || a != a);
}
template <class T> __device__ inline int to_i32(T x) {
  return x > (T)-2147483648.0 && x < (T)2147483648.0 ? (int)x : -2147483647 - 1;
}
template <class T> __device__ inline i64 to_i64(T x) {
  return x > (T)-9223372036854775808.0 && x < (T)9223372036854775808.0 ? (i64)x : (i64)1 << 63;
}
"""

# Values of 16 bits: arithmetic widens them to float; what is made from a float is rounded. Without
# initialisers, so that they may lie in shared memory. (Members bear no `__device__`: see OPTIONS of
# nvrtc.py.)
_HALVES = """\
struct bf16 {
  unsigned short bits;
  bf16() = default;
  bf16(float x) : bits(bf16_round(x)) {}
  operator float() const { return float_bits((unsigned)bits << 16); }
};
struct f16 {
  unsigned short bits;
  f16() = default;
  f16(float x) : bits(f16_round(x)) {}
  operator float() const { return f16_float(bits); }
};
__device__ inline bf16 bf16_bits(unsigned b) { bf16 x; x.bits = (unsigned short)b; return x; }
__device__ inline f16 f16_bits(unsigned b) { f16 x; x.bits = (unsigned short)b; return x; }
"""

# What adjacent lanes touch: one access, where the address is aligned, and all of it is there; else
# element by element, zeros behind the last.
_PACKS = """\
template <class T, int N> struct alignas(sizeof(T) * N < 16 ? sizeof(T) * N : 16) Pack { T x[N]; };
template <int N, class T> __device__ inline bool is_aligned(const T* x) {
  return (u64)x % alignof(Pack<T, N>) == 0;
}
template <int N, class T> __device__ inline Pack<T, N> load_pack(
    const T* from, bool whole, i64 left = N) {
  if (whole) return *(const Pack<T, N>*)from;
  Pack<T, N> pack;
  #pragma unroll
  for (int n = 0; n < N; n++) pack.x[n] = n < left ? from[n] : T();
  return pack;
}
template <int N, class T> __device__ inline Pack<T, N> filled_pack(T x) {
  Pack<T, N> pack;
  #pragma unroll
  for (int n = 0; n < N; n++) pack.x[n] = x;
  return pack;
}
template <class T, int N> __device__ inline void store_pack(
    T* to, const Pack<T, N>& pack, bool whole, i64 left = N) {
  if (whole) { *(Pack<T, N>*)to = pack; return; }
  #pragma unroll
  for (int n = 0; n < N; n++) if (n < left) to[n] = pack.x[n];
}
"""

# Values of any type from another lane.
_SHUFFLES = """\
template <class T> __device__ inline T shuffle(unsigned mask, T x, int lane) {
  if (sizeof(T) == 8) {
    union { T value; u64 bits; } y; y.value = x;
    y.bits = __shfl_sync(mask, y.bits, lane); return y.value;
  }
  union { T value; unsigned bits; } y; y.bits = 0; y.value = x;
  y.bits = __shfl_sync(mask, y.bits, lane); return y.value;
}
template <class T> __device__ inline T shuffle_xor(unsigned mask, T x, int by) {
  return shuffle(mask, x, (threadIdx.x & 31) ^ by);
}
"""

# Words of status: state, the device's words (0: there are none), what fail() is to call the launch
# (else the Check's number), its value. The device's: state, where the host sees them.
_FAIL = """\
__device__ inline void fail(i64* status, i64 check, i64 value) {
  i64* const first = status[1] ? (i64*)status[1] : status;
  if (atomicCAS((unsigned long long*)first, 0ULL, 1ULL) == 0ULL) {
    i64* const told = status[1] ? (i64*)first[1] : status;
    told[1] = status[2];
    told[2] = check;
    told[3] = value;
    told[0] = 1;
  }
}
#ifdef GRAPHC_HOST
__device__ inline bool failed(const i64* status) { return *status != 0; }
#else
// all threads of a block see the same, also where another stream's launch fails meanwhile
__device__ inline bool failed(const i64* status) { return __syncthreads_or(*status != 0); }
#endif
"""

_INTEGERS = """\
template <class T> __device__ inline T wrapped_add(T a, T b) { return (T)((u64)a + (u64)b); }
template <class T> __device__ inline T wrapped_sub(T a, T b) { return (T)((u64)a - (u64)b); }
template <class T> __device__ inline T wrapped_mul(T a, T b) { return (T)((u64)a * (u64)b); }
template <class T> __device__ inline T wrapped_neg(T a) { return (T)(0 - (u64)a); }
template <class T> __device__ inline T trunc_divide(T a, T b) {
  if (b == 0) return a;
  return b < 0 && b == (T)-1 ? (T)(0 - (u64)a) : (T)(a / b);
}
template <class T> __device__ inline T rest(T a, T b) {
  return (T)((u64)a - (u64)trunc_divide(a, b) * (u64)b);
}
template <class T> __device__ inline T floor_divide(T a, T b) {
  T r = rest(a, b);
  return (T)((u64)trunc_divide(a, b) - (r != 0 && (r < 0) != (b < 0)));
}
template <class T> __device__ inline T remainder_of(T a, T b) {
  T r = rest(a, b); return r != 0 && (r < 0) != (b < 0) ? (T)((u64)r + (u64)b) : r;
}
template <class T> __device__ inline T power(T a, T b) {
  if (b < 0) return a == 1 ? (T)1 : a == (T)-1 ? (T)(b & 1 ? -1 : 1) : (T)0;
  u64 result = 1, square = (u64)a;
  for (u64 left = (u64)b; left; left >>= 1, square *= square) if (left & 1) result *= square;
  return (T)result;
}
template <class T> __device__ inline bool inside(T b) { return b >= 0 && b < 8 * (T)sizeof(T); }
template <class T> __device__ inline T shift_left(T a, T b) {
  return inside(b) ? (T)((u64)a << b) : (T)0;
}
template <class T> __device__ inline T shift_right(T a, T b) {
  return inside(b) ? (T)(a >> b) : a < 0 ? (T)-1 : (T)0;
}
"""

# for float (its functions end in f) and double; floor_divide: see _floor_divide of llvm/scalar.py
_FLOATS = """\
__device__ inline TYPE trunc_divide(TYPE a, TYPE b) { return truncF(a / b); }
__device__ inline TYPE remainder_of(TYPE a, TYPE b) {
  TYPE r = fmodF(a, b); return r != 0 && (r < 0) != (b < 0) ? r + b : r;
}
__device__ inline TYPE floor_divide(TYPE a, TYPE b) {
  if (b == 0) return a / b;
  TYPE r = fmodF(a, b), q = (a - r) / b;
  if (r != 0 && (r < 0) != (b < 0)) q -= 1;
  if (q == 0) return copysignF((TYPE)0, a / b);
  TYPE whole = floorF(q);
  return q - whole > (TYPE)0.5 ? whole + 1 : whole;
}
"""

# reflection, recurrence up to 10, asymptotic series (Cephes), as in llvm/vmath_special.py
_DIGAMMA = """\
__device__ inline double digamma(double x) {
  const double pi = 3.141592653589793;
  double sum = 0;
  if (x == 0) return copysign(1.0 / 0.0, -x);
  if (x < 0) {
    double fraction = x - trunc(x);
    if (fraction == 0) return 0.0 / 0.0;
    sum = -pi / tan(fraction * pi);
    x = 1 - x;
  }
  for (; x < 10; x += 1) sum -= 1 / x;
  double z = 1 / (x * x), p = 1.0 / 12;
  p = p * z - 691.0 / 32760;
  p = p * z + 1.0 / 132;
  p = p * z - 1.0 / 240;
  p = p * z + 1.0 / 252;
  p = p * z - 1.0 / 120;
  p = p * z + 1.0 / 12;
  return log(x) - 0.5 / x - z * p + sum;
}
__device__ inline float digamma(float x) { return (float)digamma((double)x); }
"""


def _floats(kind: str, suffix: str) -> str:
    text = _FLOATS.replace("TYPE", kind)
    for name in ("trunc", "fmod", "copysign", "floor"):
        text = text.replace(f"{name}F(", f"{name}{suffix}(")
    return text


PRELUDE = "".join((
    _COMMON, SHARED, *(each.text() for each in HALVES), _HALVES, _PACKS, _SHUFFLES, _FAIL,
    _INTEGERS, _floats("float", "f"), _floats("double", ""), _DIGAMMA, "#endif\n",
))
