// What is copied behind a thread's back: cp.async, bulk copies and mbarriers. It happens as late as
// the waits allow, or at once, as the schedule says.
#include <algorithm>
#include <cstring>
#include <unordered_map>

#include "state.h"

namespace emulated {
// cp.async

static void land(Copy& copy) {
  unsigned char* to = at_shared(copy.to, copy.size, copy.size, copy.place);
  if (copy.bytes) touch(copy.from, (unsigned)copy.bytes, false, copy.place);
  memset(to, 0, (size_t)copy.size);
  memcpy(to, copy.from, (size_t)copy.bytes);
  touch(to, (unsigned)copy.size, true, copy.place);
}

void copy_async(unsigned to, const void* from, int size, int bytes) {
  Copy copy{to, from, size, bytes, CALLER};
  if (size != 4 && size != 8 && size != 16)
    fail(Fault::launch, CALLER, "cp.async of %d bytes", size);
  if (bytes < 0 || bytes > size)
    fail(Fault::launch, CALLER, "cp.async of %d bytes reads %d", size, bytes);
  if ((Word)from % (Word)size)
    fail(Fault::alignment, CALLER,
        "cp.async of %d bytes from %p, which is not aligned to them", size, from);
  unsigned char* place = at_shared(to, size, size, CALLER);
  if (schedule.early) {
    land(copy);
    if (schedule.watch) begin_flight(place, (unsigned)size, CALLER);
    fibers[current].copies.open.push_back(copy);
    return;
  }
  if (schedule.watch) {
    touch(place, (unsigned)size, true, CALLER);
    begin_flight(place, (unsigned)size, CALLER);
  }
  fibers[current].copies.open.push_back(copy);
}

void copy_commit() {
  Groups<Copy>& copies = fibers[current].copies;
  copies.committed.push_back(std::move(copies.open));
  copies.open.clear();
}

void copy_wait(int groups_left) {
  auto& groups = fibers[current].copies.committed;
  while ((int)groups.size() > groups_left) {
    for (Copy& copy : groups.front()) {
      if (!schedule.early) {
        land(copy);
        continue;
      }
      const void* place = at_shared(copy.to, copy.size, copy.size, copy.place);
      touch(place, (unsigned)copy.size, true, copy.place);
    }
    groups.erase(groups.begin());
  }
}

// mbarriers: in shared memory a place that a thread may only name; its state is kept here

struct Mbarrier { int arrivals, pending; long long bytes; int phase; };
static std::unordered_map<unsigned, Mbarrier> mbarriers;
struct Bulk {
  unsigned to;
  const void* from;
  unsigned bytes, mbarrier;
  const void* place;
  int thread;
};

static Mbarrier& mbarrier_at(unsigned address, const void* place) {
  at_shared(address, 8, 8, place);
  const auto found = mbarriers.find(address);
  if (found == mbarriers.end())
    fail(Fault::launch, place, "an mbarrier at %u that has not been initialised", address);
  return found->second;
}

static void complete(Mbarrier& barrier) {
  if (barrier.pending || barrier.bytes) return;
  barrier.phase ^= 1;
  barrier.pending = barrier.arrivals;
  epoch++;  // what came before it is seen by those who wait for it
}

void mbarrier_init(unsigned address, int arrivals) {
  at_shared(address, 8, 8, CALLER);
  mbarriers[address] = {arrivals, arrivals, 0, 0};
}

void mbarrier_arrive(unsigned address, unsigned transaction_bytes) {
  Mbarrier& barrier = mbarrier_at(address, CALLER);
  if (!barrier.pending)
    fail(Fault::launch, CALLER, "an mbarrier gets more arrivals than its %d", barrier.arrivals);
  barrier.bytes += transaction_bytes;
  barrier.pending--;
  complete(barrier);
}

static bool phase_is_over(Fiber& fiber) {
  return mbarriers[(unsigned)fiber.words[0]].phase != (int)fiber.words[1];
}

void mbarrier_wait(unsigned address, int parity) {
  mbarrier_at(address, CALLER);
  Fiber& fiber = fibers[current];
  fiber.words[0] = address;
  fiber.words[1] = (Word)parity;
  fiber.poll = phase_is_over;
  if (!phase_is_over(fiber)) wait(State::poll, "an mbarrier", CALLER);
}

static std::vector<Bulk> bulks;  // under way

static void land(const Bulk& bulk) {
  unsigned char* place = at_shared(bulk.to, (int)bulk.bytes, 16, bulk.place);
  memcpy(place, bulk.from, bulk.bytes);
  touch(place, bulk.bytes, true, bulk.place);
  Mbarrier& barrier = mbarriers[bulk.mbarrier];
  barrier.bytes -= bulk.bytes;
  complete(barrier);
}

void copy_bulk(unsigned to, const void* from, unsigned bytes, unsigned address) {
  mbarrier_at(address, CALLER);
  if (bytes % 16 || (Word)from % 16)
    fail(Fault::alignment, CALLER,
        "a bulk copy of %u bytes from %p: not in units of 16", bytes, from);
  at_shared(to, (int)bytes, 16, CALLER);
  touch(from, bytes, false, CALLER);
  const Bulk bulk{to, from, bytes, address, CALLER, current};
  if (schedule.early) land(bulk);
  else bulks.push_back(bulk);
}

bool land_late() {
  if (bulks.empty()) return false;
  const Bulk bulk = bulks.front();
  bulks.erase(bulks.begin());
  current = bulk.thread;
  land(bulk);
  current = -1;
  return true;
}

void start_block_copies() {
  mbarriers.clear();
  bulks.clear();
}
}  // namespace emulated
