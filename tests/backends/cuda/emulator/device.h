// CUDA C's words for a host compiler: emitted text compiles after it as C++. What a thread of a
// block does there (wait, trade values with its warp) is scheduler.cpp's.
#pragma once
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <tuple>
#include <utility>

#define __global__
#define __device__ static
#define __forceinline__ inline
#define __launch_bounds__(...)
// Blocks run one after the other: a module's shared variables exist once, in a section that is
// poisoned before each block.
#define __shared__ static __attribute__((section("emulated_shared")))

namespace emulator {

struct Index { unsigned x, y, z; };
extern Index thread_index, block_index, block_size, grid_size;  // of the thread that runs

// Waits for the block, at a line of the text.
void barrier(int line);
// Waits for the lanes of a mask; `value` is what this lane gives the others.
void meet(unsigned mask, uint64_t value, int line);
// What a lane of this warp gave at the last meeting.
uint64_t given(unsigned lane);
unsigned lane();

template <class T> T shuffle(unsigned mask, T value, unsigned from, int line) {
  static_assert(sizeof(T) <= sizeof(uint64_t));
  uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof value);
  meet(mask, bits, line);
  bits = given(from % 32);
  std::memcpy(&value, &bits, sizeof value);
  return value;
}
template <class T> T shuffle_down(unsigned mask, T value, unsigned by, int line) {
  return shuffle(mask, value, lane() + by < 32 ? lane() + by : lane(), line);
}
inline unsigned ballot(unsigned mask, bool value, int line) {
  meet(mask, value, line);
  unsigned votes = 0;
  for (unsigned other = 0; other < 32; other++)
    if (mask >> other & 1) votes |= (unsigned)given(other) << other;
  return votes;
}

// Calls a kernel with arguments packed as cuLaunchKernel takes them: each at a multiple of its size.
template <class... A> void call(void (*kernel)(A...), const unsigned char* packed) {
  size_t offset = 0;
  auto next = [&](auto zero) {
    offset = (offset + sizeof zero - 1) / sizeof zero * sizeof zero;
    std::memcpy(&zero, packed + offset, sizeof zero);
    offset += sizeof zero;
    return zero;
  };
  std::tuple<A...> arguments{next(A{})...};  // braces: in order
  std::apply(kernel, arguments);
}

}  // namespace emulator

#define threadIdx emulator::thread_index
#define blockIdx emulator::block_index
#define blockDim emulator::block_size
#define gridDim emulator::grid_size
#define __syncthreads() emulator::barrier(__LINE__)
#define __syncwarp() emulator::meet(0xffffffffu, 0, __LINE__)
#define __shfl_xor_sync(mask, value, by) \
  emulator::shuffle(mask, value, emulator::lane() ^ (by), __LINE__)
#define __shfl_sync(mask, value, from) emulator::shuffle(mask, value, from, __LINE__)
#define __shfl_down_sync(mask, value, by) emulator::shuffle_down(mask, value, by, __LINE__)
#define __ballot_sync(mask, value) emulator::ballot(mask, value, __LINE__)

static inline unsigned long long atomicCAS(
    unsigned long long* place, unsigned long long expected, unsigned long long value) {
  const unsigned long long old = *place;
  if (old == expected) *place = value;
  return old;
}

// what CUDA's library has and the host's has not
static inline double erfinv(double y) {
  if (!(std::fabs(y) < 1)) return std::fabs(y) == 1 ? y * INFINITY : NAN;
  double low = -6, high = 6;
  for (int i = 0; i < 200; i++) {
    const double x = (low + high) / 2;
    (std::erf(x) < y ? low : high) = x;
  }
  return (low + high) / 2;
}
static inline float erfinvf(float y) { return (float)erfinv((double)y); }
static inline float rsqrtf(float x) { return 1 / std::sqrt(x); }
static inline double rsqrt(double x) { return 1 / std::sqrt(x); }
