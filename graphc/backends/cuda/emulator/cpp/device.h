// What CUDA C is compiled with on the host: CUDA's words, and the functions of the emulator that
// the prelude's host bodies call. Included before the prelude; the definitions are in the runtime.
#pragma once
#include <math.h>

#define GRAPHC_HOST 1
#define __global__ __attribute__((noinline))
#define __device__ static
#define __forceinline__ inline
#define __noinline__
#define __launch_bounds__(...)
#define __align__(n) alignas(n)
#define __grid_constant__
// SHARED_SECTION is one per source, so that a block knows its own static shared memory.
#define __shared__ static __attribute__((section(SHARED_SECTION)))

struct alignas(8) float2 { float x, y; };
struct alignas(16) float4 { float x, y, z, w; };
struct alignas(8) uint2 { unsigned x, y; };
struct alignas(16) uint4 { unsigned x, y, z, w; };
struct uint3 { unsigned x, y, z; };

// CUDA's special registers, of the thread that runs.
struct EmulatedRegisters { uint3 thread, block, threads, blocks; };
extern EmulatedRegisters emulated_registers;
#define threadIdx emulated_registers.thread
#define blockIdx emulated_registers.block
#define blockDim emulated_registers.threads
#define gridDim emulated_registers.blocks

namespace emulated {
typedef unsigned long long Word;
enum class Numbers { bf16, f16, tf32 };

void barrier(int line);
void named_barrier(int number, int threads);
void warp_barrier(unsigned mask);
Word shuffle(unsigned mask, Word value, int source);  // source: a lane of the warp
unsigned ballot(unsigned mask, bool vote);
int lane();
float f16_number(unsigned bits);
unsigned short f16_round(float x);
unsigned short bf16_round(float x);

unsigned shared_address(const void* pointer);  // as 32-bit instructions name it
unsigned char* dynamic_shared();
void ldmatrix(unsigned* registers, unsigned row, int matrices, bool transposed);
void mma(float* d, const unsigned* a, const unsigned* b, Numbers numbers);
void copy_async(unsigned to, const void* from, int size, int bytes);  // the rest up to size is 0
void copy_commit();
void copy_wait(int groups_left);
void copy_bulk(unsigned to, const void* from, unsigned bytes, unsigned mbarrier);
void aligned(const void* pointer, int bytes);

void mbarrier_init(unsigned address, int arrivals);
void mbarrier_arrive(unsigned address, unsigned transaction_bytes);
void mbarrier_wait(unsigned address, int parity);

void proxy_fence();
void wgmma_fence();
struct WgmmaOperands {
  Word a, b;                      // descriptors
  const unsigned* registers;      // four of a, in the place of its descriptor; null: none
  bool accumulate;                // else d begins at 0
  bool rows_of_left, rows_of_right;  // lines do not go along k
};
void wgmma(const WgmmaOperands& operands, float* d, int columns, Numbers numbers);
void wgmma(
    float* d, Word a, Word b, int columns, Numbers numbers, bool rows_of_left = false,
    bool rows_of_right = false);
void wgmma_commit();
void wgmma_wait(int groups_left);

Word compare_and_swap(Word* place, Word expected, Word value);
Word add_atomically(void* place, Word value, int bytes);

template <class T> inline Word bits_of(T value) {
  Word word = 0;
  __builtin_memcpy(&word, &value, sizeof value);
  return word;
}
template <class T> inline T from_bits(Word word) {
  T value;
  __builtin_memcpy(&value, &word, sizeof value);
  return value;
}
}  // namespace emulated

inline void __syncthreads(int line = __builtin_LINE()) { emulated::barrier(line); }
inline void __syncwarp(unsigned mask = ~0u) { emulated::warp_barrier(mask); }
template <class T> inline T __shfl_sync(unsigned mask, T value, int source, int width = 32) {
  const int first = emulated::lane() & ~(width - 1);
  return emulated::from_bits<T>(
      emulated::shuffle(mask, emulated::bits_of(value), first + (source & (width - 1))));
}
template <class T> inline T __shfl_xor_sync(unsigned mask, T value, int by, int width = 32) {
  const int here = emulated::lane(), source = here ^ by;
  const bool outside = source / width > here / width;
  return emulated::from_bits<T>(
      emulated::shuffle(mask, emulated::bits_of(value), outside ? here : source));
}
template <class T> inline T __shfl_down_sync(unsigned mask, T value, unsigned by, int width = 32) {
  const int here = emulated::lane();
  const bool outside = (here & (width - 1)) + (int)by >= width;
  return emulated::from_bits<T>(
      emulated::shuffle(mask, emulated::bits_of(value), outside ? here : here + (int)by));
}
template <class T> inline T __shfl_up_sync(unsigned mask, T value, unsigned by, int width = 32) {
  const int here = emulated::lane();
  const bool outside = (here & (width - 1)) < (int)by;
  return emulated::from_bits<T>(
      emulated::shuffle(mask, emulated::bits_of(value), outside ? here : here - (int)by));
}
inline unsigned __ballot_sync(unsigned mask, int vote) { return emulated::ballot(mask, vote); }
inline int __any_sync(unsigned mask, int vote) { return emulated::ballot(mask, vote) != 0; }
inline int __all_sync(unsigned mask, int vote) { return emulated::ballot(mask, !vote) == 0; }

inline unsigned long long atomicCAS(
    unsigned long long* place, unsigned long long expected, unsigned long long value) {
  return emulated::compare_and_swap(place, expected, value);
}
inline unsigned long long atomicAdd(unsigned long long* place, unsigned long long value) {
  return emulated::add_atomically(place, value, 8);
}
inline unsigned atomicAdd(unsigned* place, unsigned value) {
  return (unsigned)emulated::add_atomically(place, value, 4);
}
inline int atomicAdd(int* place, int value) {
  return (int)emulated::add_atomically(place, (unsigned)value, 4);
}
inline void __threadfence() {}
inline int __popc(unsigned x) { return __builtin_popcount(x); }
inline int __clz(int x) { return x ? __builtin_clz((unsigned)x) : 32; }
inline int __ffs(int x) { return __builtin_ffs(x); }
inline float __uint_as_float(unsigned x) { return emulated::from_bits<float>(x); }
inline unsigned __float_as_uint(float x) { return (unsigned)emulated::bits_of(x); }
inline float rsqrtf(float x) { return 1 / sqrtf(x); }

// CUDA's library has it and C's has not: bisection, then Newton's steps to the last bits, on what of
// erf and erfc has them.
inline double erfinv(double y) {
  const double a = fabs(y), scale = 0.886226925452758;  // sqrt(pi) / 2
  if (!(a < 1)) return a == 1 ? y * INFINITY : NAN;
  if (a < 1e-8) return y * scale;
  double low = 0, high = 6;
  for (int i = 0; i < 40; i++) {
    const double middle = (low + high) / 2;
    (erf(middle) < a ? low : high) = middle;
  }
  double x = (low + high) / 2;
  for (int i = 0; i < 4; i++)
    x += (a < 0.5 ? a - erf(x) : erfc(x) - (1 - a)) * scale * exp(x * x);
  return copysign(x, y);
}
inline float erfinvf(float y) { return (float)erfinv(y); }

// A kernel by its packed arguments: each at a multiple of its size, as a C compiler lays them out.
template <int...> struct EmulatedPlaces {};
template <int N, int... P> struct EmulatedCount : EmulatedCount<N - 1, N - 1, P...> {};
template <int... P> struct EmulatedCount<0, P...> { typedef EmulatedPlaces<P...> places; };
template <class... Types, int... P>
__attribute__((no_sanitize_thread)) inline void emulated_call(
    void (*kernel)(Types...), const unsigned char* packed, EmulatedPlaces<P...>) {
  const int sizes[] = {(int)sizeof(Types)..., 0}, alignments[] = {(int)alignof(Types)..., 1};
  int starts[sizeof...(Types) + 1] = {};
  for (unsigned i = 0; i < sizeof...(Types); i++) {
    starts[i] = (starts[i] + alignments[i] - 1) / alignments[i] * alignments[i];
    starts[i + 1] = starts[i] + sizes[i];
  }
  kernel(*(Types*)(packed + starts[P])...);
}
template <class... Types>
__attribute__((no_sanitize_thread)) inline void emulated_call(
    void (*kernel)(Types...), const unsigned char* packed) {
  emulated_call(kernel, packed, typename EmulatedCount<(int)sizeof...(Types)>::places());
}
