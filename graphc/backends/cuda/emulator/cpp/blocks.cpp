// The scheduler: which thread runs next, when a warp or a block goes on, and what is a hang.
#include <sys/mman.h>

#include <algorithm>
#include <cstdarg>
#include <cstdio>
#include <cstring>
#include <numeric>
#include <random>

#include "fiber.h"
#include "state.h"

EmulatedRegisters emulated_registers;

namespace emulated {
std::vector<Fiber> fibers;
int current = -1;
Schedule schedule;
Report report;
Counts counts;
unsigned block_number, epoch, warp_epochs[32];
bool unfenced;

static char* stacks;
static void* scheduler;
static void (*kernel)(const unsigned char*);
static const unsigned char* arguments;
static std::vector<int> turn;  // the threads of a block, in the order of the schedule

static void enter() {
  kernel(arguments);
  fibers[current].state = State::done;
  switch_stack(&fibers[current].stack_pointer, scheduler);
}

static void place_registers(int thread) {
  const uint3 size = emulated_registers.threads;
  const unsigned t = (unsigned)thread;
  emulated_registers.thread = {t % size.x, t / size.x % size.y, t / size.x / size.y};
}

static void resume(int thread) {
  current = thread;
  place_registers(thread);
  counts.switches++;
  switch_stack(&scheduler, fibers[thread].stack_pointer);
  current = -1;
}

void wait(State state, const char* what, const void* place) {
  Fiber& fiber = fibers[current];
  fiber.state = state;
  fiber.waits_for = what;
  fiber.place = place;
  switch_stack(&fiber.stack_pointer, scheduler);
}

// Of a thread that is named, or of the running one.
static void write_report(
    Fault fault, int thread, const void* place, const void* other, const char* text) {
  if (report.failed) return;
  report.failed = (int)fault;
  place_registers(thread);
  const uint3 block = emulated_registers.block, at = emulated_registers.thread;
  const unsigned blocks[3] = {block.x, block.y, block.z}, threads[3] = {at.x, at.y, at.z};
  memcpy(report.block, blocks, sizeof blocks);
  memcpy(report.thread, threads, sizeof threads);
  report.place = (Word)place;
  report.other_place = (Word)other;
  snprintf(report.text, sizeof report.text, "%s", text);
}

void fail(Fault fault, const void* place, const char* format, ...) {
  char text[sizeof report.text];
  va_list list;
  va_start(list, format);
  vsnprintf(text, sizeof text, format, list);
  va_end(list);
  write_report(fault, current, place, nullptr, text);
  void* abandoned;
  switch_stack(&abandoned, scheduler);
  __builtin_unreachable();
}

// Warps

void join(const Collective& collective, unsigned mask, int detail, const void* place) {
  Fiber& fiber = fibers[current];
  const unsigned bit = 1u << current % LANES;
  if (!(mask & bit))
    fail(Fault::launch, place,
        "%s: the mask %08x leaves out the lane that calls it", collective.name, mask);
  fiber.collective = &collective;
  fiber.mask = mask;
  fiber.detail = detail;
  wait(State::warp, collective.name, place);
}

// Whether the lanes of a mask are all at the same collective, with the same operand.
static bool gathered(Lanes lanes, unsigned mask, const Fiber& first) {
  for (int lane = 0; lane < LANES; lane++) {
    if (!(mask >> lane & 1) || !lanes[lane]) continue;
    const Fiber& other = *lanes[lane];
    if (other.state != State::warp || other.collective != first.collective) return false;
    if (other.mask != first.mask || other.detail != first.detail) return false;
  }
  return true;
}

static bool release_warp(int warp) {
  Fiber* lanes[LANES];
  for (int lane = 0; lane < LANES; lane++) {
    const size_t thread = (size_t)(warp * LANES + lane);
    lanes[lane] = thread < fibers.size() ? &fibers[thread] : nullptr;
  }
  bool released = false;
  for (int lane = 0; lane < LANES; lane++) {
    if (!lanes[lane] || lanes[lane]->state != State::warp) continue;
    const Fiber& first = *lanes[lane];
    if (!gathered(lanes, first.mask, first)) continue;
    current = warp * LANES + lane;
    const unsigned mask = first.mask;
    first.collective->run(lanes, mask);
    current = -1;
    for (int other = 0; other < LANES; other++)
      if (lanes[other] && mask >> other & 1) lanes[other]->state = State::ready;
    released = true;
  }
  return released;
}

// Blocks

void barrier(int line) {
  Fiber& fiber = fibers[current];
  fiber.line = line;
  fiber.barrier = 0;
  fiber.barrier_threads = (int)fibers.size();
  wait(State::barrier, "__syncthreads()", CALLER);
}

void named_barrier(int number, int threads) {
  Fiber& fiber = fibers[current];
  fiber.line = 0;
  fiber.barrier = number;
  fiber.barrier_threads = threads;
  wait(State::barrier, "a named barrier", CALLER);
}

static bool release_named_barriers() {
  int waiting[16] = {};
  for (const Fiber& fiber : fibers)
    if (fiber.state == State::barrier) waiting[fiber.barrier & 15]++;
  bool released = false;
  for (Fiber& fiber : fibers) {
    if (fiber.state != State::barrier || fiber.barrier == 0) continue;
    if (waiting[fiber.barrier & 15] < fiber.barrier_threads) continue;
    fiber.state = State::ready;
    released = true;
  }
  if (released) epoch++;
  return released;
}

static bool release_barrier() {
  if (release_named_barriers()) return true;
  const Fiber* first = nullptr;
  for (const Fiber& fiber : fibers) {
    if (fiber.state != State::barrier || fiber.barrier != 0) return false;
    if (!first) first = &fiber;
    if (fiber.line == first->line) continue;
    char text[160];
    snprintf(text, sizeof text,
             "threads wait at different barriers: others at line %d, this one at line %d",
             first->line, fiber.line);
    write_report(Fault::hang, (int)(&fiber - fibers.data()), fiber.place, first->place, text);
    return false;
  }
  unfenced = false;
  for (Fiber& fiber : fibers) {
    fiber.state = State::ready;
    unfenced |= fiber.unfenced;
  }
  epoch++;
  return true;
}

// Nothing can go on: says who waits for whom.
static void report_hang() {
  const Fiber* waiting = nullptr;
  const Fiber* other = nullptr;
  for (const Fiber& fiber : fibers)
    if (fiber.state != State::done && !waiting) waiting = &fiber;
  for (const Fiber& fiber : fibers) {
    const bool same = fiber.state == waiting->state && fiber.place == waiting->place;
    if (!same && !other) other = &fiber;
  }
  char text[300];
  if (!other) {
    snprintf(text, sizeof text, "hang: all threads wait in %s", waiting->waits_for);
  } else {
    const int number = (int)(other - fibers.data());
    const bool left = other->state == State::done;
    snprintf(text, sizeof text, "hang: this thread waits in %s, while thread %d %s%s",
             waiting->waits_for, number, left ? "has left the kernel" : "waits in ", left ? "" : other->waits_for);
  }
  const void* other_place = other ? other->place : nullptr;
  write_report(Fault::hang, (int)(waiting - fibers.data()), waiting->place, other_place, text);
}

static bool may_run(Fiber& fiber) {
  if (fiber.state == State::poll && fiber.poll(fiber)) fiber.state = State::ready;
  return fiber.state == State::ready;
}

// Every thread of the block runs until it waits, and the warps that have gathered go on.
static bool in_step(int warps) {
  bool ran = false;
  for (const int thread : turn) {
    if (!may_run(fibers[(size_t)thread])) continue;
    resume(thread);
    if (report.failed) return false;
    ran = true;
  }
  for (int warp = 0; warp < warps && !report.failed; warp++) ran |= release_warp(warp);
  return ran;
}

// One warp after the other runs as far as it comes without the rest of the block.
static bool ahead(int warps) {
  bool ran = false;
  for (int i = 0; i < warps; i++) {
    const int warp = schedule.direction == 1 ? warps - 1 - i : i;
    bool again = true;
    while (again) {
      again = false;
      for (const int thread : turn) {
        if (thread / LANES != warp || !may_run(fibers[(size_t)thread])) continue;
        resume(thread);
        if (report.failed) return false;
        ran = true;
      }
      again = release_warp(warp);
      if (report.failed) return false;
    }
  }
  return ran;
}

static void start_block(int threads) {
  epoch = 0;
  unfenced = false;
  std::fill(warp_epochs, warp_epochs + 32, 0);
  fibers.resize((size_t)threads);
  for (int t = 0; t < threads; t++) {
    Fiber& fiber = fibers[(size_t)t];
    fiber.state = State::ready;
    fiber.unfenced = false;
    fiber.copies = {};
    fiber.products = {};
    fiber.over.clear();
    fiber.registers.clear();
    fiber.fenced = false;
    fiber.stack_pointer = fresh_stack(stacks + (size_t)t * STACK, STACK, enter);
  }
  start_block_memory();
  start_block_copies();
}

static void run_block(int threads) {
  start_block(threads);
  const int warps = (threads + LANES - 1) / LANES;
  while (!report.failed) {
    if (schedule.ahead ? ahead(warps) : in_step(warps)) continue;
    if (report.failed) return;
    const auto has_left = [](const Fiber& fiber) { return fiber.state == State::done; };
    const bool done = std::all_of(fibers.begin(), fibers.end(), has_left);
    if (done) break;
    if (!release_barrier() && !report.failed && !land_late()) report_hang();
  }
  end_block_memory();
}

static void order(std::vector<int>& numbers) {
  std::iota(numbers.begin(), numbers.end(), 0);
  if (schedule.direction == 1) std::reverse(numbers.begin(), numbers.end());
  std::mt19937 generator((unsigned)schedule.seed);
  if (schedule.direction == 2) std::shuffle(numbers.begin(), numbers.end(), generator);
}

static const void* stacks_begin() { return stacks; }
bool is_own_stack(const void* pointer) {
  const size_t offset = (size_t)((const char*)pointer - (const char*)stacks_begin());
  return offset / STACK == (size_t)current;
}
bool is_any_stack(const void* pointer) {
  return (size_t)((const char*)pointer - (const char*)stacks_begin()) < 1024u * STACK;
}
}  // namespace emulated

using namespace emulated;

// Returns 0, or 1 with a report. `static_shared`: where the source's static shared memory begins and
// ends.
extern "C" int emulated_launch(
    void (*function)(const unsigned char*), const unsigned char* packed, const unsigned* grid,
    const unsigned* block, unsigned dynamic_bytes, unsigned char** static_shared,
    const Schedule* how, Report* found, Counts* counted) {
  if (!stacks) {
    const int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
    stacks = (char*)mmap(nullptr, 1024u * STACK, PROT_READ | PROT_WRITE, flags, -1, 0);
  }
  kernel = function;
  arguments = packed;
  schedule = *how;
  report = {};
  counts = {};
  shared_bytes = dynamic_bytes;
  static_begin = static_shared[0];
  static_end = static_shared[1];
  emulated_registers.threads = {block[0], block[1], block[2]};
  emulated_registers.blocks = {grid[0], grid[1], grid[2]};
  const int threads = (int)(block[0] * block[1] * block[2]);
  turn.resize((size_t)threads);
  order(turn);
  std::vector<int> blocks(schedule.block < 0 ? (size_t)grid[0] * grid[1] * grid[2] : 1);
  if (schedule.block < 0) order(blocks); else blocks[0] = (int)schedule.block;
  block_number = 0;
  start_memory();
  for (const int number : blocks) {
    const unsigned n = (unsigned)number;
    block_number++;
    emulated_registers.block = {n % grid[0], n / grid[0] % grid[1], n / grid[0] / grid[1]};
    run_block(threads);
    if (report.failed) break;
  }
  current = -1;
  *found = report;
  *counted = counts;
  return report.failed != 0;
}
