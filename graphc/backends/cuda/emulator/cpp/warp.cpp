// What the lanes of a warp do together. Fragments: PTX ISA, "Matrix fragments for mma.m16n8k16"
// and "mma.m16n8k8"; ldmatrix: "Warp-level matrix load instruction".
#include <cstring>

#include "state.h"

namespace emulated {
int lane() { return current % LANES; }

static void pass_barrier(Lanes, unsigned) { warp_epochs[current / LANES]++; }
static const Collective WARP_BARRIER = {"__syncwarp()", pass_barrier};
void warp_barrier(unsigned mask) { join(WARP_BARRIER, mask, 0, CALLER); }

// words[0]: the value, words[1]: the lane to read from
static void run_shuffle(Lanes lanes, unsigned mask) {
  Word values[LANES] = {};
  for (int i = 0; i < LANES; i++)
    if (lanes[i]) values[i] = lanes[i]->words[0];
  for (int i = 0; i < LANES; i++) {
    if (!(mask >> i & 1) || !lanes[i]) continue;
    const Word source = lanes[i]->words[1] & 31;
    lanes[i]->words[0] = values[source];
    lanes[i]->words[1] = mask >> source & 1 && lanes[source];
  }
}
static const Collective SHUFFLE = {"a shuffle", run_shuffle};

Word shuffle(unsigned mask, Word value, int source) {
  const int thread = current;
  fibers[thread].words[0] = value;
  fibers[thread].words[1] = (Word)source;
  join(SHUFFLE, mask, 0, CALLER);
  if (!fibers[thread].words[1])
    fail(Fault::launch, CALLER,
        "a shuffle reads lane %d, which its mask %08x does not name", source, mask);
  return fibers[thread].words[0];
}

static void run_ballot(Lanes lanes, unsigned mask) {
  unsigned votes = 0;
  for (int i = 0; i < LANES; i++)
    if (mask >> i & 1 && lanes[i] && lanes[i]->words[0]) votes |= 1u << i;
  for (int i = 0; i < LANES; i++)
    if (mask >> i & 1 && lanes[i]) lanes[i]->words[0] = votes;
}
static const Collective BALLOT = {"a ballot", run_ballot};

unsigned ballot(unsigned mask, bool vote) {
  const int thread = current;
  fibers[thread].words[0] = vote;
  join(BALLOT, mask, 0, CALLER);
  return (unsigned)fibers[thread].words[0];
}

// words[0]: the address of a row; then the registers. detail: matrices, and 8 for .trans
static void run_ldmatrix(Lanes lanes, unsigned) {
  const int matrices = lanes[0]->detail & 7;
  const bool transposed = lanes[0]->detail & 8;
  unsigned short rows[4][8][8];
  for (int m = 0; m < matrices; m++)
    for (int r = 0; r < 8; r++)
      memcpy(rows[m][r], (const void*)lanes[m * 8 + r]->words[0], 16);
  for (int i = 0; i < LANES; i++) {
    for (int m = 0; m < matrices; m++) {
      const int row = i / 4, column = i % 4 * 2;
      const unsigned low = transposed ? rows[m][column][row] : rows[m][row][column];
      const unsigned high = transposed ? rows[m][column + 1][row] : rows[m][row][column + 1];
      lanes[i]->words[m] = low | high << 16;
    }
  }
}
static const Collective LDMATRIX = {"ldmatrix", run_ldmatrix};

void ldmatrix(unsigned* registers, unsigned row, int matrices, bool transposed) {
  const int thread = current;
  if (thread % LANES < matrices * 8) {
    fibers[thread].words[0] = (Word)at_shared(row, 16, 16, CALLER);
    touch_row(row, thread % LANES, CALLER);
  }
  join(LDMATRIX, ~0u, matrices | (transposed ? 8 : 0), CALLER);
  for (int m = 0; m < matrices; m++) registers[m] = (unsigned)fibers[thread].words[m];
}

static float bf16_number(unsigned half) { return from_bits<float>((Word)(half & 0xffff) << 16); }
float f16_number(unsigned half) {
  const int exponent = half >> 10 & 31;
  const unsigned fraction = half & 1023;
  const float magnitude = exponent == 31  ? (fraction ? NAN : INFINITY)
                          : exponent == 0 ? ldexpf((float)fraction, -24)
                                          : ldexpf((float)(fraction | 1024), exponent - 25);
  return half & 0x8000 ? -magnitude : magnitude;
}

// To the nearest, of two equally near the even one.
unsigned short bf16_round(float x) {
  const unsigned bits = (unsigned)bits_of(x);
  if (x != x) return 0x7fff;
  return (unsigned short)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}
unsigned short f16_round(float x) {
  const unsigned sign = (unsigned)bits_of(x) >> 16 & 0x8000;
  const float magnitude = fabsf(x);
  if (x != x) return 0x7fff;
  if (magnitude >= 65520) return (unsigned short)(sign | 0x7c00);
  int exponent = 0;
  frexpf(magnitude, &exponent);
  if (magnitude == 0 || exponent < -13) exponent = -13;  // subnormal: in steps of 2^-24
  const unsigned steps = (unsigned)nearbyintf(ldexpf(magnitude, 11 - exponent));
  // 1024 steps are the implicit bit; a carry of the rounding goes into the exponent
  return (unsigned short)(sign | ((unsigned)(exponent + 13) * 1024 + steps));
}

float half_number(unsigned half, Numbers numbers) {
  return numbers == Numbers::bf16 ? bf16_number(half) : f16_number(half);
}

// words[0..1]: A's four registers, words[2]: B's two, words[3..6]: the results as doubles
static unsigned register_of(const Fiber& fiber, int number) {
  return (unsigned)(fiber.words[number / 2] >> number % 2 * 32);
}
static double dot16(Lanes lanes, int row, int column, Numbers numbers) {
  double sum = 0;
  for (int k = 0; k < 16; k++) {
    const unsigned a = register_of(*lanes[row % 8 * 4 + k % 8 / 2], row / 8 + k / 8 * 2);
    const unsigned b = register_of(*lanes[column * 4 + k % 8 / 2], 4 + k / 8);
    sum += (double)half_number(k % 2 ? a >> 16 : a, numbers) * half_number(k % 2 ? b >> 16 : b, numbers);
  }
  return sum;
}
static float tf32_number(unsigned bits) { return from_bits<float>(bits & 0xffffe000u); }
static double dot8(Lanes lanes, int row, int column) {
  double sum = 0;
  for (int k = 0; k < 8; k++) {
    const unsigned a = register_of(*lanes[row % 8 * 4 + k % 4], row / 8 + k / 4 * 2);
    const unsigned b = register_of(*lanes[column * 4 + k % 4], 4 + k / 4);
    sum += (double)tf32_number(a) * tf32_number(b);
  }
  return sum;
}
static void run_mma(Lanes lanes, unsigned) {
  const Numbers numbers = (Numbers)lanes[0]->detail;
  for (int i = 0; i < LANES; i++) {
    for (int e = 0; e < 4; e++) {
      const int row = i / 4 + e / 2 * 8, column = i % 4 * 2 + e % 2;
      const double sum = numbers == Numbers::tf32 ? dot8(lanes, row, column) : dot16(lanes, row, column, numbers);
      lanes[i]->words[3 + e] = bits_of(sum);
    }
  }
}
static const Collective MMA = {"mma", run_mma};

void mma(float* d, const unsigned* a, const unsigned* b, Numbers numbers) {
  const int thread = current;
  Fiber& fiber = fibers[thread];
  fiber.words[0] = a[0] | (Word)a[1] << 32;
  fiber.words[1] = a[2] | (Word)a[3] << 32;
  fiber.words[2] = b[0] | (Word)b[1] << 32;
  join(MMA, ~0u, (int)numbers, CALLER);
  for (int e = 0; e < 4; e++) d[e] = (float)(d[e] + from_bits<double>(fiber.words[3 + e]));
}
}  // namespace emulated
