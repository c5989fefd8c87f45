// Runs a grid on one thread of the host: a thread of a block is a fiber, and goes on until it waits
// for its block or its warp. Which goes first is the schedule; code that is right gives the same bits
// under each.
#include "device.h"

#include <algorithm>
#include <csetjmp>
#include <csignal>
#include <cstdarg>
#include <cstdio>
#include <random>
#include <sys/mman.h>
#include <ucontext.h>
#include <vector>

// of this module; absent where nothing is shared
extern unsigned char __start_emulated_shared[] __attribute__((weak));
extern unsigned char __stop_emulated_shared[] __attribute__((weak));

namespace emulator {

Index thread_index, block_index, block_size, grid_size;

enum State { READY, AT_BARRIER, AT_MEETING, ENDED };
// In step: all threads go on to their next wait, by number, backwards or shuffled. Ahead: the first
// warp, or the last, goes as far as it can before any other does.
enum Schedule { FORWARDS, BACKWARDS, SHUFFLED, FIRST_AHEAD, LAST_AHEAD };
enum Verdict { RIGHT, STUCK, BAD_ADDRESS };

struct Config {
  unsigned grid[3], block[3];
  int schedule;
  unsigned seed;
};
struct Report {
  int64_t switches;
  char text[512];
};

// A context begins a fiber; from then on it is left and resumed by _setjmp and _longjmp, which ask
// the kernel nothing (swapcontext does, twice).
struct Fiber {
  ucontext_t context;
  jmp_buf left;
  bool begun;
  State state;
  int line;  // where it waits
  unsigned mask;
  uint64_t value;
};

static constexpr size_t STACK = 128 << 10, GUARD = 4096;
static std::vector<Fiber> fibers;
static std::vector<uint64_t> traded;  // per lane, what it gave at its warp's last meeting
static std::vector<char*> stacks;
static jmp_buf scheduler;
static unsigned running;
static int64_t switches;
static void (*kernel)(const unsigned char*);
static const unsigned char* arguments;
static sigjmp_buf escape;
static volatile sig_atomic_t inside;

static void wait(State state, int line) {
  Fiber& fiber = fibers[running];
  fiber.state = state;
  fiber.line = line;
  if (!_setjmp(fiber.left)) _longjmp(scheduler, 1);
}

void barrier(int line) { wait(AT_BARRIER, line); }

void meet(unsigned mask, uint64_t value, int line) {
  fibers[running].mask = mask;
  fibers[running].value = value;
  wait(AT_MEETING, line);
}

unsigned lane() { return running % 32; }
uint64_t given(unsigned lane) { return traded[running / 32 * 32 + lane]; }

static void body() {
  kernel(arguments);
  fibers[running].state = ENDED;
  _longjmp(scheduler, 1);
}

static Index index_of(unsigned number) {
  return {number % block_size.x, number / block_size.x % block_size.y,
          number / (block_size.x * block_size.y)};
}

static char* stack_of(unsigned number) {
  while (stacks.size() <= number) {
    void* made = mmap(nullptr, STACK + GUARD, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    mprotect(made, GUARD, PROT_NONE);  // stacks grow downwards
    stacks.push_back((char*)made + GUARD);
  }
  return stacks[number];
}

static void start(unsigned threads) {
  fibers.resize(threads);
  traded.assign((threads + 31) / 32 * 32, 0);
  if (__start_emulated_shared)
    std::memset(__start_emulated_shared, 0xff, __stop_emulated_shared - __start_emulated_shared);
  for (unsigned number = 0; number < threads; number++) {
    Fiber& fiber = fibers[number];
    fiber.state = READY;
    fiber.begun = false;
    getcontext(&fiber.context);
    fiber.context.uc_stack.ss_sp = stack_of(number);
    fiber.context.uc_stack.ss_size = STACK;
    fiber.context.uc_link = nullptr;
    makecontext(&fiber.context, body, 0);
  }
}

// One thread to its next wait.
static bool step(unsigned number) {
  Fiber& fiber = fibers[number];
  if (fiber.state != READY) return false;
  running = number;
  thread_index = index_of(number);
  switches++;
  if (_setjmp(scheduler)) return true;
  if (fiber.begun) _longjmp(fiber.left, 1);
  fiber.begun = true;
  setcontext(&fiber.context);
  return true;
}

// Lets the lanes of a warp go that have all come to one meeting.
static bool meeting(unsigned first, unsigned end) {
  bool any = false;
  for (unsigned number = first; number < end; number++) {
    const Fiber& fiber = fibers[number];
    if (fiber.state != AT_MEETING) continue;
    bool all = true;
    for (unsigned other = first; other < first + 32; other++) {
      if (!(fiber.mask >> (other - first) & 1) || (other >= end && fiber.mask == ~0u)) continue;
      all &= other < end && fibers[other].state == AT_MEETING &&
             fibers[other].line == fiber.line && fibers[other].mask == fiber.mask;
    }
    if (!all) continue;
    any = true;
    const unsigned mask = fiber.mask;
    for (unsigned other = first; other < end; other++) {
      if (!(mask >> (other - first) & 1)) continue;
      traded[other] = fibers[other].value;
      fibers[other].state = READY;
    }
  }
  return any;
}

// Some threads one step on; false if none could.
static bool advance(const Config& config, const std::vector<unsigned>& turns) {
  const unsigned threads = fibers.size(), warps = (threads + 31) / 32;
  bool any = false;
  if (config.schedule < FIRST_AHEAD) {
    for (unsigned number : turns) any |= step(number);
    for (unsigned warp = 0; warp < warps; warp++)
      any |= meeting(warp * 32, std::min(warp * 32 + 32, threads));
    return any;
  }
  for (unsigned turn = 0; turn < warps; turn++) {
    const unsigned warp = config.schedule == FIRST_AHEAD ? turn : warps - 1 - turn;
    const unsigned first = warp * 32, end = std::min(first + 32, threads);
    for (bool again = true; again; any |= again) {
      again = false;
      for (unsigned number = first; number < end; number++) again |= step(number);
      again |= meeting(first, end);
    }
  }
  return any;
}

static int describe(Report* report, const char* format, ...) {
  va_list given;
  va_start(given, format);
  vsnprintf(report->text, sizeof report->text, format, given);
  va_end(given);
  return STUCK;
}

static int block(const Config& config, const std::vector<unsigned>& turns, Report* report) {
  start(fibers.size());
  for (;;) {
    if (advance(config, turns)) continue;
    // all wait: at one barrier, or for ever
    const Fiber& first = fibers[0];
    unsigned odd = 0;
    while (odd < fibers.size() && fibers[odd].state == first.state &&
           (first.state == ENDED || fibers[odd].line == first.line)) odd++;
    if (odd == fibers.size() && first.state == ENDED) return RIGHT;
    if (odd == fibers.size() && first.state == AT_BARRIER) {
      for (Fiber& fiber : fibers) fiber.state = READY;
      continue;
    }
    static const char* const doing[] = {"", "waits for the block", "waits for its warp", "has ended"};
    const unsigned other = odd == fibers.size() ? 0 : odd;
    const Index a = index_of(0), b = index_of(other);
    return describe(
        report, "block %u,%u,%u: thread %u,%u,%u %s (line %d), thread %u,%u,%u %s (line %d)",
        block_index.x, block_index.y, block_index.z, a.x, a.y, a.z, doing[first.state],
        first.state == ENDED ? 0 : first.line, b.x, b.y, b.z, doing[fibers[other].state],
        fibers[other].state == ENDED ? 0 : fibers[other].line);
  }
}

static int grid(const Config& config, Report* report) {
  const unsigned threads = block_size.x * block_size.y * block_size.z;
  fibers.resize(threads);
  std::vector<unsigned> turns(threads);
  for (unsigned turn = 0; turn < threads; turn++)
    turns[turn] = config.schedule == BACKWARDS ? threads - 1 - turn : turn;
  std::mt19937 random(config.seed);
  if (config.schedule == SHUFFLED) std::shuffle(turns.begin(), turns.end(), random);
  const bool backwards = config.schedule == BACKWARDS || config.schedule == LAST_AHEAD;
  const uint64_t blocks = (uint64_t)grid_size.x * grid_size.y * grid_size.z;
  for (uint64_t turn = 0; turn < blocks; turn++) {
    const uint64_t number = backwards ? blocks - 1 - turn : turn;
    block_index = {(unsigned)(number % grid_size.x), (unsigned)(number / grid_size.x % grid_size.y),
                   (unsigned)(number / grid_size.x / grid_size.y)};
    const int verdict = block(config, turns, report);
    if (verdict != RIGHT) return verdict;
  }
  return RIGHT;
}

static Report* open_report;

static void fault(int, siginfo_t* info, void*) {
  if (!inside) _exit(139);
  const Index at = index_of(running);
  describe(open_report, "block %u,%u,%u: thread %u,%u,%u: address %p", block_index.x, block_index.y,
           block_index.z, at.x, at.y, at.z, info->si_addr);
  siglongjmp(escape, 1);
}

// A launch; the arguments are packed. Returns a Verdict.
extern "C" int emulate(void (*entry)(const unsigned char*), const unsigned char* packed,
                       const Config* config, Report* report) {
  kernel = entry;
  arguments = packed;
  grid_size = {config->grid[0], config->grid[1], config->grid[2]};
  block_size = {config->block[0], config->block[1], config->block[2]};
  switches = 0;
  open_report = report;
  struct sigaction action = {}, segv, bus;
  action.sa_sigaction = fault;
  action.sa_flags = SA_SIGINFO;
  sigaction(SIGSEGV, &action, &segv);
  sigaction(SIGBUS, &action, &bus);
  inside = 1;
  const int verdict = sigsetjmp(escape, 1) ? BAD_ADDRESS : grid(*config, report);
  inside = 0;
  sigaction(SIGSEGV, &segv, nullptr);
  sigaction(SIGBUS, &bus, nullptr);
  report->switches = switches;
  return verdict;
}

}  // namespace emulator
