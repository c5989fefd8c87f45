// wgmma: each warp multiplies for its own 16 rows of the result, as late as the waits allow, or when
// a group is committed, as the schedule says.
#include <algorithm>
#include <cstring>

#include "state.h"

namespace emulated {
float half_number(unsigned half, Numbers numbers);

constexpr int ROWS = 16, DEPTH = 16;  // of a warp's product

// Descriptors (PTX ISA, "Matrix descriptor"), in units of 16 bytes: bits 0-13 the address; 32-45
// from eight lines of 128 bytes to the next eight; 16-29, where lines do not go along k, from 64
// elements of a line to the next 64; 62-63 the swizzle, of which 1 is that of 128 bytes.
static unsigned field(Word descriptor, int first) {
  return (unsigned)(descriptor >> first & 0x3fff) << 4;
}

static const unsigned char* place_of(Word descriptor, int line, int column, const void* place) {
  const unsigned l = (unsigned)line, c = (unsigned)column;
  unsigned address = field(descriptor, 0) + c / 64 * field(descriptor, 16) +
      l / 8 * field(descriptor, 32) + l % 8 * 128 + c % 64 * 2;
  address ^= (address >> 7 & 7) << 4;
  return at_shared(address, 2, 2, place);
}

static float number_at(Word descriptor, int line, int column, const Product& product) {
  unsigned short half;
  memcpy(&half, place_of(descriptor, line, column, product.place), 2);
  return half_number(half, product.numbers);
}

// A thread's share of both operands: they are inside of shared memory, and no other thread writes
// to them.
static void touch_operands(const Product& product) {
  const int thread = current % 128;
  const auto touch_piece = [&](Word descriptor, int line, int column) {
    const unsigned char* piece = place_of(descriptor, line, column, product.place);
    if (schedule.watch) touch_unnoted(piece, 16, product.place);
  };
  const int left = product.rows_of_left ? 8 : 2;  // pieces of a line
  const int right = product.rows_of_right ? product.columns / 8 : 2;
  if (!product.registers) touch_piece(product.a, thread / left, thread % left * 8);
  for (int i = thread; i < product.columns * 2; i += 128)
    touch_piece(product.b, i / right, i % right * 8);
}

// What wgmma has of registers, they had at the thread's last wgmma.fence, or got from wgmma.

static Registers& known_at(const void* place, unsigned words) {
  std::vector<Registers>& all = fibers[current].registers;
  const auto is_it = [&](const Registers& each) {
    return each.place == place && each.seen.size() == words;
  };
  const auto found = std::find_if(all.begin(), all.end(), is_it);
  if (found != all.end()) return *found;
  all.push_back({place, std::vector<unsigned>(words)});
  memcpy(all.back().seen.data(), place, words * 4);
  return all.back();
}

static void check_fenced(const void* place, unsigned words, const void* caller) {
  if (memcmp(known_at(place, words).seen.data(), place, words * 4))
    fail(Fault::launch, caller,
        "registers of a wgmma have been written since the thread's last wgmma.fence");
}

void proxy_fence() { fibers[current].unfenced = false; }

void wgmma_fence() {
  fibers[current].fenced = true;
  for (Registers& known : fibers[current].registers)
    memcpy(known.seen.data(), known.place, known.seen.size() * 4);
}

static void begin(const Product& product) {
  const void* const place = product.place;
  if (unfenced)
    fail(Fault::launch, place,
        "wgmma reads shared memory without fence.proxy.async after it was written");
  if (fibers.size() % 128)
    fail(Fault::launch, place,
        "wgmma in a block of %zu threads: a warpgroup has 128", fibers.size());
  if (!fibers[current].fenced) fail(Fault::launch, place, "wgmma before the first wgmma.fence");
  for (Word descriptor : {product.registers ? product.b : product.a, product.b})
    if (descriptor >> 62 != 1)
      fail(Fault::launch, place, "wgmma: only the 128-byte swizzle is emulated");
  check_fenced(product.d, (unsigned)product.columns / 2, place);
  if (product.registers) check_fenced(product.registers, 4, place);
  touch_operands(product);
  fibers[current].products.open.push_back(product);
}

void wgmma(const WgmmaOperands& operands, float* d, int columns, Numbers numbers) {
  begin({operands, d, columns, numbers, CALLER});
}
void wgmma(
    float* d, Word a, Word b, int columns, Numbers numbers, bool rows_of_left,
    bool rows_of_right) {
  begin({{a, b, nullptr, true, rows_of_left, rows_of_right}, d, columns, numbers, CALLER});
}

// The products of one instruction, by lane; fragments of registers are those of mma.m16n8k16.
static void multiply(const Product* const* of) {
  const Product& first = *of[0];
  const int warp = current / LANES % 4;
  float a[ROWS][DEPTH];
  std::vector<float> b((size_t)first.columns * DEPTH);
  for (int row = 0; row < ROWS; row++)
    for (int k = 0; k < DEPTH; k++) {
      if (!first.registers) {
        const int r = warp * ROWS + row;
        a[row][k] = first.rows_of_left ? number_at(first.a, k, r, first)
                                       : number_at(first.a, r, k, first);
        continue;
      }
      const unsigned both = of[row % 8 * 4 + k % 8 / 2]->registers[row / 8 + k / 8 * 2];
      a[row][k] = half_number(k % 2 ? both >> 16 : both & 0xffff, first.numbers);
    }
  for (int column = 0; column < first.columns; column++)
    for (int k = 0; k < DEPTH; k++)
      b[(size_t)(column * DEPTH + k)] = first.rows_of_right ? number_at(first.b, k, column, first)
                                                         : number_at(first.b, column, k, first);
  for (int lane = 0; lane < LANES; lane++)
    for (int e = 0; e < first.columns / 2; e++) {
      const int row = lane / 4 + e % 4 / 2 * 8, column = e / 4 * 8 + lane % 4 * 2 + e % 2;
      double sum = first.accumulate ? of[lane]->d[e] : 0;
      for (int k = 0; k < DEPTH; k++)
        sum += (double)a[row][k] * b[(size_t)(column * DEPTH + k)];
      of[lane]->d[e] = (float)sum;
    }
}

static bool alike(const Product& one, const Product& other) {
  return one.a == other.a && one.b == other.b && one.columns == other.columns &&
      one.accumulate == other.accumulate && one.rows_of_left == other.rows_of_left &&
      one.rows_of_right == other.rows_of_right &&
      !one.registers == !other.registers;
}

// Groups that have to be over, of all lanes at once: lanes have parts of each other's fragments.
// words[0]: whether the lanes' products are the same ones.
static void run_products(Lanes lanes, unsigned) {
  const size_t left = (size_t)lanes[0]->detail;
  bool same = true;
  while (same && lanes[0]->products.committed.size() > left) {
    const size_t count = lanes[0]->products.committed.front().size();
    for (int lane = 0; lane < LANES; lane++) {
      auto& committed = lanes[lane]->products.committed;
      same = same && !committed.empty() && committed.front().size() == count;
    }
    for (size_t number = 0; same && number < count; number++) {
      const Product* of[LANES];
      for (int lane = 0; lane < LANES; lane++) {
        of[lane] = &lanes[lane]->products.committed.front()[number];
        same = same && alike(*of[0], *of[lane]);
      }
      if (same) multiply(of);
    }
    for (int lane = 0; same && lane < LANES; lane++) {
      auto& committed = lanes[lane]->products.committed;
      auto& over = lanes[lane]->over;
      over.insert(over.end(), committed.front().begin(), committed.front().end());
      committed.erase(committed.begin());
    }
  }
  for (int lane = 0; lane < LANES; lane++) lanes[lane]->words[0] = same;
}
static const Collective PRODUCTS = {"wgmma", run_products};

static void finish(int groups_left, const void* place) {
  const int thread = current;
  join(PRODUCTS, ~0u, groups_left, place);
  if (!fibers[thread].words[0])
    fail(Fault::launch, place, "wgmma: the lanes of a warp have different products");
  for (const Product& product : fibers[thread].over) {
    touch_operands(product);
    Registers& known = known_at(product.d, (unsigned)product.columns / 2);
    memcpy(known.seen.data(), product.d, known.seen.size() * 4);
  }
  fibers[thread].over.clear();
}

void wgmma_commit() {
  Groups<Product>& products = fibers[current].products;
  products.committed.push_back(std::move(products.open));
  products.open.clear();
  if (schedule.early) finish(0, CALLER);
}

void wgmma_wait(int groups_left) { finish(groups_left, CALLER); }
}  // namespace emulated
