// Every access of a kernel: inside of a buffer, aligned, ordered with other threads' accesses, and
// without bank conflicts. The compiler puts a call in front of each (-fsanitize=thread); this file
// takes the place of the library that these calls are for.
#include <link.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <unordered_map>

#include "state.h"

namespace emulated {
bool is_own_stack(const void* pointer);
bool is_any_stack(const void* pointer);

alignas(1024) static unsigned char memory[SHARED_MOST];
unsigned char* const shared = memory;
unsigned shared_bytes;
unsigned char *static_begin, *static_end;
static long long accesses_left;

// Who has touched a byte last. `block` 0: nobody in this launch.
struct Trace { unsigned block, epoch, warp_epoch; unsigned short thread; bool in_flight; };
constexpr unsigned short MANY = 0xffff, WARP = 0x8000;  // several threads; several of one warp
struct Traces { Trace write, read; };

struct Buffer {
  const unsigned char* begin;
  Word bytes;
  Traces* traces;
};
struct Image { const unsigned char *begin, *end; };
static std::vector<Buffer> buffers;  // by address
static std::vector<Image> images;    // of libraries of kernels: their constants
static Traces* shared_traces;
static size_t latest;

// Bank conflicts: the accesses that one instruction makes for a warp, in the order of its lanes
struct Access { unsigned address, bytes; };
struct Site { std::vector<std::vector<Access>> times; unsigned count[LANES]; };
static std::unordered_map<Word, Site> sites;  // by place and warp

void start_memory() {
  accesses_left = schedule.accesses;
  for (Buffer& buffer : buffers) {
    free(buffer.traces);
    buffer.traces = nullptr;
  }
  const size_t all = (STATIC_WINDOW + STATIC_MOST) * sizeof(Traces);
  if (schedule.watch && !shared_traces) shared_traces = (Traces*)malloc(all);
}

void start_block_memory() {
  memset(memory, 0xff, shared_bytes);  // NaN, for every float
  if (static_begin) memset(static_begin, 0xff, (size_t)(static_end - static_begin));
  sites.clear();
  if (!schedule.watch) return;
  const size_t fixed = (size_t)(static_end - static_begin);
  memset((void*)(shared_traces + STATIC_WINDOW), 0, fixed * sizeof(Traces));
  memset((void*)shared_traces, 0, shared_bytes * sizeof(Traces));
}

// 32-bit addresses

static bool in_dynamic(const void* pointer) {
  return (size_t)((const unsigned char*)pointer - memory) < SHARED_MOST;
}
static bool in_static(const void* pointer) { return pointer >= static_begin && pointer < static_end; }

static unsigned address_in_shared(const void* pointer) {
  const auto at = (const unsigned char*)pointer;
  return in_static(pointer) ? STATIC_WINDOW + (unsigned)(at - static_begin) : (unsigned)(at - memory);
}

unsigned shared_address(const void* pointer) {
  if (!in_dynamic(pointer) && !in_static(pointer))
    fail(Fault::address, CALLER, "the address %p is not one of shared memory", pointer);
  return address_in_shared(pointer);
}

unsigned char* dynamic_shared() { return memory; }

unsigned char* at_shared(unsigned address, int bytes, int alignment, const void* place) {
  const bool dynamic = address < STATIC_WINDOW;
  const unsigned start = dynamic ? address : address - STATIC_WINDOW;
  const unsigned most = dynamic ? shared_bytes : (unsigned)(static_end - static_begin);
  if (start + (unsigned)bytes > most)
    fail(Fault::address, place,
        "%d bytes of shared memory at %u end behind its %u bytes", bytes, start, most);
  if (address % (unsigned)alignment)
    fail(Fault::alignment, place,
        "shared memory at %u is not aligned to %d bytes", address, alignment);
  return dynamic ? memory + start : static_begin + start;
}

// Order

static int warp_of(const Trace& trace) {
  if (trace.thread == MANY) return -1;
  return trace.thread & WARP ? trace.thread & 31 : trace.thread / LANES;
}

static bool ordered(const Trace& before, bool global) {
  if (!before.block) return true;
  if (before.block != block_number) return !global;
  if (before.in_flight) return false;
  if (before.thread == current || before.epoch < epoch) return true;
  if (before.thread == MANY) return false;
  const int warp = warp_of(before);
  return warp == current / LANES && before.warp_epoch < warp_epochs[warp];
}

static Trace trace_now(bool in_flight) {
  return {block_number, epoch, warp_epochs[current / LANES], (unsigned short)current, in_flight};
}

static void note_read(Trace& read, bool global) {
  if (global && read.block && read.block != block_number) return;  // a write would meet it
  Trace now = trace_now(false);
  const bool fresh = read.block == block_number && read.epoch == epoch && read.thread != current;
  if (fresh) {
    const int warp = warp_of(read);
    now.thread = warp == current / LANES ? (unsigned short)(WARP | warp) : MANY;
  }
  read = now;
}

static void report_race(
    const Trace& before, bool write, bool wrote, const void* what, const void* place) {
  const char* now = write ? "writes" : "reads";
  const char* then = wrote ? "has written" : "has read";
  if (before.in_flight)
    fail(Fault::launch, place,
        "race: it %s memory (%p) into which a cp.async may still be writing", now, what);
  if (before.block != block_number)
    fail(Fault::launch, place,
        "race: it %s memory (%p) that another block %s in this launch", now, what, then);
  if (before.thread == MANY || before.thread & WARP)
    fail(Fault::launch, place,
        "race: it %s memory (%p) that other threads may still read", now, what);
  fail(Fault::launch, place,
      "race: it %s memory (%p) that thread %d %s, with no barrier in between",
      now, what, before.thread, then);
}

static void check_order(
    Traces* traces, unsigned bytes, bool write, bool global, const void* what, const void* place) {
  for (unsigned i = 0; i < bytes; i++) {
    Traces& each = traces[i];
    const bool own = each.write.block == block_number && each.write.thread == current;
    const bool landing = own && each.write.in_flight && write;
    if (!landing && !ordered(each.write, global)) report_race(each.write, write, true, what, place);
    if (write && !ordered(each.read, global)) report_race(each.read, write, false, what, place);
    if (write) each.write = trace_now(false);
    else note_read(each.read, global);
  }
}

void begin_flight(const void* pointer, unsigned bytes, const void*) {
  Traces* traces = shared_traces + address_in_shared(pointer);
  for (unsigned i = 0; i < bytes; i++) traces[i].write = trace_now(true);
}

// Banks: 32 of 4 bytes; a warp's access of 8 or 16 bytes a lane takes 2 or 4 phases

static void note_site(const void* pointer, unsigned bytes, const void* place) {
  Site& site = sites[(Word)place * 32 + (Word)(current / LANES)];
  const unsigned time = site.count[current % LANES]++;
  if (time >= site.times.size()) site.times.resize(time + 1);
  site.times[time].push_back({address_in_shared(pointer), bytes});
}

static unsigned wavefronts(const Access* accesses, size_t count) {
  std::vector<unsigned> words[LANES];
  size_t most = 0;
  for (size_t i = 0; i < count; i++) {
    const unsigned last = (accesses[i].address + accesses[i].bytes - 1) / 4;
    for (unsigned word = accesses[i].address / 4; word <= last; word++) {
      std::vector<unsigned>& bank = words[word % LANES];
      if (std::find(bank.begin(), bank.end(), word) == bank.end()) bank.push_back(word);
      most = std::max(most, bank.size());
    }
  }
  return (unsigned)most;
}

void end_block_memory() {
  for (const auto& [key, site] : sites) {
    for (const auto& time : site.times) {
      const size_t lanes = time.empty() ? 1 : std::max<size_t>(1, LANES * 4 / std::max(4u, time[0].bytes));
      for (size_t first = 0; first < time.size(); first += lanes) {
        const unsigned taken = wavefronts(&time[first], std::min(lanes, time.size() - first));
        counts.phases++;
        counts.wavefronts += taken;
        if (taken > counts.worst) counts.worst = taken, counts.worst_place = key / 32;
      }
    }
  }
}

void touch_row(unsigned address, int, const void* place) {
  touch(at_shared(address, 16, 16, place), 16, false, place);
}

// One access

static void touch_shared(const void* pointer, unsigned bytes, bool write, const void* place) {
  const auto at = (const unsigned char*)pointer;
  const unsigned char* end = in_static(pointer) ? static_end : memory + shared_bytes;
  if (at + bytes > end) fail(Fault::address, place,
      "%u bytes of shared memory at %lld end behind its %u bytes", bytes,
                             (long long)(at - memory), shared_bytes);
  if (write) fibers[current].unfenced = true;
  if (!schedule.watch) return;
  counts.accesses++;
  note_site(pointer, bytes, place);
  check_order(shared_traces + address_in_shared(pointer), bytes, write, false, pointer, place);
}

void touch_unnoted(const void* pointer, unsigned bytes, const void* place) {
  check_order(
      shared_traces + address_in_shared(pointer), bytes, false, false, pointer, place);
}

static std::vector<Buffer>::iterator first_behind(const unsigned char* at) {
  const auto before = [](const unsigned char* p, const Buffer& buffer) { return p < buffer.begin; };
  return std::upper_bound(buffers.begin(), buffers.end(), at, before);
}

static Buffer* buffer_of(const unsigned char* at) {
  if (latest < buffers.size() && (Word)(at - buffers[latest].begin) < buffers[latest].bytes)
    return &buffers[latest];
  const auto behind = first_behind(at);
  if (behind == buffers.begin()) return nullptr;
  latest = (size_t)(behind - buffers.begin()) - 1;
  return &buffers[latest];
}

static bool is_known(const unsigned char* at) {
  if ((Word)(at - (const unsigned char*)&emulated_registers) < sizeof emulated_registers) return true;
  for (const Image& image : images)
    if (at >= image.begin && at < image.end) return true;
  return false;
}

static void touch_global(const unsigned char* at, unsigned bytes, bool write, const void* place) {
  Buffer* buffer = buffer_of(at);
  const bool inside = buffer && (Word)(at - buffer->begin) < buffer->bytes;
  if (!inside && is_known(at)) return;
  const char* verb = write ? "writes" : "reads";
  if (!buffer)
    fail(Fault::address, place,
        "it %s %u bytes at %p, outside of every buffer", verb, bytes, (const void*)at);
  const long long start = at - buffer->begin;
  if (start + bytes > (long long)buffer->bytes) {
    fail(Fault::address, place,
        "it %s %u bytes at byte %lld of a buffer of %llu bytes", verb, bytes, start, buffer->bytes);
  }
  if (!schedule.watch) return;
  if (!buffer->traces) buffer->traces = (Traces*)calloc(buffer->bytes, sizeof(Traces));
  check_order(buffer->traces + start, bytes, write, true, at, place);
}

void touch(const void* pointer, unsigned bytes, bool write, const void* place) {
  if (current < 0 || is_own_stack(pointer)) return;
  if (--accesses_left < 0) fail(Fault::hang, place, "the launch does not come to an end");
  if (is_any_stack(pointer)) fail(Fault::address, place, "it uses another thread's local memory");
  if (in_dynamic(pointer) || in_static(pointer)) touch_shared(pointer, bytes, write, place);
  else touch_global((const unsigned char*)pointer, bytes, write, place);
}

// (the compiler says so of copies of structs, too, and these lie on the stack as they like)
static void touch_aligned(const void* pointer, unsigned bytes, bool write, const void* place) {
  if (current >= 0 && (Word)pointer % bytes && !is_own_stack(pointer))
    fail(Fault::alignment, place, "%u bytes at %p, which is not aligned to them", bytes, pointer);
  touch(pointer, bytes, write, place);
}

void aligned(const void* pointer, int bytes) {
  if ((Word)pointer % (Word)bytes)
    fail(Fault::alignment, CALLER, "%p is not aligned to %d bytes", pointer, bytes);
}

// Inside of a buffer; in no order with other threads' atomics.
static void touch_atomically(void* pointer, unsigned bytes, const void* place) {
  const int watch = schedule.watch;
  schedule.watch = 0;
  if ((Word)pointer % bytes)
    fail(Fault::alignment, place, "an atomic of %u bytes at %p", bytes, pointer);
  touch(pointer, bytes, true, place);
  schedule.watch = watch;
}

Word compare_and_swap(Word* place, Word expected, Word value) {
  touch_atomically(place, 8, CALLER);
  const Word before = *place;
  if (before == expected) *place = value;
  return before;
}

Word add_atomically(void* place, Word value, int bytes) {
  touch_atomically(place, (unsigned)bytes, CALLER);
  Word before = 0;
  memcpy(&before, place, (size_t)bytes);
  const Word after = before + value;
  memcpy(place, &after, (size_t)bytes);
  return before;
}
}  // namespace emulated

using namespace emulated;

// Memory of a size, with pages around it that nobody may touch: what lies far behind a buffer is no
// other buffer. Returns null where there is none left.
constexpr Word GUARD = 1 << 20;
extern "C" unsigned char* emulated_allocate(Word bytes) {
  const Word inside = (bytes + 4095) / 4096 * 4096 + 4096;
  const int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
  void* all = mmap(nullptr, inside + 2 * GUARD, PROT_NONE, flags, -1, 0);
  if (all == MAP_FAILED) return nullptr;
  unsigned char* begin = (unsigned char*)all + GUARD;
  mprotect(begin, inside, PROT_READ | PROT_WRITE);
  buffers.insert(first_behind(begin), {begin, bytes, nullptr});
  return begin;
}

// Returns 0, or 1 where no buffer begins there.
extern "C" int emulated_free(unsigned char* begin) {
  const auto is_it = [&](const Buffer& buffer) { return buffer.begin == begin; };
  const auto found = std::find_if(buffers.begin(), buffers.end(), is_it);
  if (found == buffers.end()) return 1;
  munmap(begin - GUARD, (found->bytes + 4095) / 4096 * 4096 + 4096 + 2 * GUARD);
  free(found->traces);
  buffers.erase(found);
  return 0;
}

// A library of kernels, by an address in it; returns where it begins. Its constants may be read.
extern "C" const unsigned char* emulated_add_image(const unsigned char* inside) {
  Image image{inside, nullptr};
  dl_iterate_phdr([](dl_phdr_info* info, size_t, void* data) {
    Image& wanted = *(Image*)data;
    const auto base = (const unsigned char*)info->dlpi_addr;
    const unsigned char* end = base;
    for (int i = 0; i < info->dlpi_phnum; i++) {
      const auto& part = info->dlpi_phdr[i];
      if (part.p_type == PT_LOAD) end = std::max(end, base + part.p_vaddr + part.p_memsz);
    }
    if (wanted.begin < base || wanted.begin >= end) return 0;
    wanted = {base, end};
    return 1;
  }, &image);
  images.push_back(image);
  return image.begin;
}

// The calls that the compiler puts in

#define ACCESS(size)                                                                               \
  extern "C" void __tsan_read##size(void* p) { touch_aligned(p, size, false, CALLER); }            \
  extern "C" void __tsan_write##size(void* p) { touch_aligned(p, size, true, CALLER); }
ACCESS(1) ACCESS(2) ACCESS(4) ACCESS(8) ACCESS(16)
#define UNALIGNED(size)                                                                            \
  extern "C" void __tsan_unaligned_read##size(void* p) { touch(p, size, false, CALLER); }          \
  extern "C" void __tsan_unaligned_write##size(void* p) { touch(p, size, true, CALLER); }
UNALIGNED(2) UNALIGNED(4) UNALIGNED(8) UNALIGNED(16)
extern "C" void __tsan_read_range(void* p, size_t size) { touch(p, (unsigned)size, false, CALLER); }
extern "C" void __tsan_write_range(void* p, size_t size) { touch(p, (unsigned)size, true, CALLER); }
extern "C" void __tsan_init() {}
extern "C" void __tsan_func_entry(void*) {}
extern "C" void __tsan_func_exit() {}

// and those of -fsanitize=shift-exponent,integer-divide-by-zero,signed-integer-overflow,bounds
extern "C" void __ubsan_handle_divrem_overflow(void*, Word, Word by) {
  if (!by) fail(Fault::launch, CALLER, "integer division by zero");
  fail(Fault::launch, CALLER, "a quotient overflows: no device's compiler expects it");
}
// (a device wraps; but its compiler takes for granted that this does not happen)
#define OVERFLOW(name, what, ...) \
  extern "C" void __ubsan_handle_##name##_overflow(void*, __VA_ARGS__) { \
    fail(Fault::launch, CALLER, what " overflows: no device's compiler expects it"); \
  }
OVERFLOW(add, "a sum", Word, Word)
OVERFLOW(sub, "a difference", Word, Word)
OVERFLOW(mul, "a product", Word, Word)
OVERFLOW(negate, "a negation", Word)
extern "C" void __ubsan_handle_shift_out_of_bounds(void*, Word, Word by) {
  fail(Fault::launch, CALLER, "a shift by %lld, more than the number's width", (long long)by);
}
extern "C" void __ubsan_handle_out_of_bounds(void*, Word index) {
  fail(Fault::launch, CALLER, "index %lld is outside of its array", (long long)index);
}
