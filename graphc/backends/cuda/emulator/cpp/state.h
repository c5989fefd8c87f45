// What the parts of the runtime share: one block at a time, on one thread of the machine. Each CUDA
// thread is a fiber that runs until it waits for others.
#pragma once
#include <cstdint>
#include <vector>

#include "device.h"

namespace emulated {
constexpr int LANES = 32;
constexpr unsigned STACK = 1 << 16;           // bytes of a thread's stack
constexpr unsigned SHARED_MOST = 227 << 10;
constexpr unsigned STATIC_WINDOW = 256 << 10;  // 32-bit addresses of static shared memory come last:
constexpr unsigned STATIC_MOST = 48 << 10;     // descriptors have 18 bits for those of dynamic

enum class State : unsigned char { ready, barrier, warp, poll, done };

struct Fiber;
using Lanes = Fiber* const*;  // the 32 lanes of a warp; null where the block has no such thread
struct Collective {
  const char* name;
  void (*run)(Lanes lanes, unsigned mask);  // once, when all lanes of the mask have come
};

struct Copy { unsigned to; const void* from; int size, bytes; const void* place; };
struct Product : WgmmaOperands { float* d; int columns; Numbers numbers; const void* place; };
struct Registers { const void* place; std::vector<unsigned> seen; };
template <class T> struct Groups {  // committed, oldest first; and what has no group yet
  std::vector<std::vector<T>> committed;
  std::vector<T> open;
};

struct Fiber {
  void* stack_pointer;
  State state;
  const char* waits_for;
  const void* place;  // where the wait was called
  int line;           // of the barrier
  int barrier;        // its number
  int barrier_threads;
  const Collective* collective;
  unsigned mask;
  int detail;  // an operand that all lanes have to agree about
  Word words[8];
  bool (*poll)(Fiber&);
  bool unfenced;  // it has written to shared memory since its last fence.proxy.async
  Groups<Copy> copies;
  Groups<Product> products;
  std::vector<Product> over;         // just now
  bool fenced;                       // by a wgmma.fence
  std::vector<Registers> registers;  // of wgmma, as they were then
};

struct Schedule {  // as schedule.py's
  int ahead, direction, seed, early, watch;
  long long accesses, block;
};
enum class Fault { none, launch, address, alignment, hang };  // as launch.py's
struct Report {  // as launch.py's
  int failed;
  unsigned block[3], thread[3];
  unsigned long long place, other_place;
  char text[480];
};
struct Counts {  // of a watched launch, shared memory
  unsigned long long accesses, phases, wavefronts, worst, worst_place, switches;
};

extern std::vector<Fiber> fibers;
extern int current;  // the running thread; -1 outside of one
extern Schedule schedule;
extern Report report;
extern Counts counts;
extern unsigned char* const shared;  // dynamic
extern unsigned shared_bytes;
extern unsigned char *static_begin, *static_end;
extern unsigned block_number;     // of the launch, from 1
extern unsigned epoch;            // barriers that the block has passed
extern unsigned warp_epochs[32];  // the same of each warp
extern bool unfenced;             // at the last barrier some thread had such writes: wgmma may miss them

// Ends the launch with a report of the running thread; does not return to the kernel.
[[noreturn]] void fail(Fault fault, const void* place, const char* format, ...)
    __attribute__((format(printf, 3, 4)));
void wait(State state, const char* what, const void* place);
void join(const Collective& collective, unsigned mask, int detail, const void* place);

void start_memory();  // of a launch
void start_block_memory();
void end_block_memory();
unsigned char* at_shared(unsigned address, int bytes, int alignment, const void* place);
void touch(const void* pointer, unsigned bytes, bool write, const void* place);
void touch_row(unsigned address, int phase_lane, const void* place);  // one lane's row of ldmatrix
void touch_unnoted(const void* pointer, unsigned bytes, const void* place);  // a read; not by a warp
void begin_flight(const void* pointer, unsigned bytes, const void* place);
void start_block_copies();
bool land_late();  // a copy that nothing but the hardware waits for; false where there is none
}  // namespace emulated

#define CALLER __builtin_return_address(0)
