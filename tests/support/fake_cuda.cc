// A libcuda without a GPU: the functions of the driver that shmreplay calls, over memory of the host, and `fake_*`
// functions by which a test says what the driver refuses and when its work is done. See fake_cuda.py.
//
// Work of streams (copies, records of events, waits) lies in one queue, in the order it was given, and is done when it
// is due: at once, some time later, or when the test says so. So a copy reads its source as late as a real one may.
// Like a real driver it wants a current context, refuses what overlaps a registration, and serves no forked child. What
// a client must never do is a *fault*, counted and told to the test. One file, since it is compiled by itself.
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cinttypes>
#include <cstdarg>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace {

enum Result : int {
  kSuccess = 0,
  kInvalidValue = 1,
  kOutOfMemory = 2,
  kNotInitialized = 3,
  kNoDevice = 100,
  kInvalidDevice = 101,
  kInvalidContext = 201,
  kInvalidHandle = 400,
  kNotReady = 600,
  kAlreadyRegistered = 712,
  kNotRegistered = 713,
  kNotSupported = 801,
};

const std::map<int, const char*> kNames = {
    {kSuccess, "CUDA_SUCCESS"},
    {kInvalidValue, "CUDA_ERROR_INVALID_VALUE"},
    {kOutOfMemory, "CUDA_ERROR_OUT_OF_MEMORY"},
    {kNotInitialized, "CUDA_ERROR_NOT_INITIALIZED"},
    {kNoDevice, "CUDA_ERROR_NO_DEVICE"},
    {kInvalidDevice, "CUDA_ERROR_INVALID_DEVICE"},
    {kInvalidContext, "CUDA_ERROR_INVALID_CONTEXT"},
    {kInvalidHandle, "CUDA_ERROR_INVALID_HANDLE"},
    {kNotReady, "CUDA_ERROR_NOT_READY"},
    {kAlreadyRegistered, "CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED"},
    {kNotRegistered, "CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED"},
    {kNotSupported, "CUDA_ERROR_NOT_SUPPORTED"},
};

constexpr uint64_t kPage = 4096;
constexpr int64_t kNever = INT64_MAX, kOnCommand = -1;

struct Event {
  int pending = 0;  // records that are in the queue
};

// One piece of a stream's work: a copy, or the record of an event.
struct Work {
  int64_t due_ns;
  void* to;
  const void* from;
  size_t bytes;
  Event* event;
  std::shared_ptr<std::vector<char>> taken;  // the bytes of a source that is not page-locked
};

// The n-th call from now of a function answers `code`; 0: every one.
struct Refusal {
  std::string call;
  int64_t nth;
  int code;
};

std::vector<Refusal> refused_from_the_start() {
  const char* call = std::getenv("FAKE_CUDA_REFUSES");
  return call == nullptr ? std::vector<Refusal>() : std::vector<Refusal>{{call, 0, kNotSupported}};
}

struct State {
  bool is_there = std::getenv("FAKE_CUDA_IS_THERE") != nullptr;  // whether cuInit finds a GPU
  int init_result = kSuccess, devices = 1;
  pid_t pid = 0;  // that called cuInit since the last reset
  std::map<int, int> attributes = {{91, 1}, {99, 1}};
  uint64_t register_limit = UINT64_MAX;   // bytes a call
  uint64_t register_budget = UINT64_MAX;  // bytes in all
  int64_t delay_ns = 0;                   // of the work of streams; kOnCommand: until fake_run
  std::vector<Refusal> refusals = refused_from_the_start();
  std::map<int, int> retained;              // device -> how often its primary context is
  std::map<uint64_t, uint64_t> registered;  // address -> bytes
  std::map<uint64_t, uint64_t> pinned, device_memory;
  std::set<void*> streams;
  std::set<Event*> events;
  std::deque<Work> queue;
  std::map<std::string, uint64_t> calls, bytes;
  uint64_t faults = 0;
  std::string last_fault, log;
};

std::recursive_mutex guard;
State state;
thread_local std::vector<void*> contexts;  // those current on this thread, the last one on top
thread_local std::string shown;            // the text that this thread was given last

int64_t now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

void fault(const char* format, ...) {
  char text[256];
  va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  ++state.faults;
  state.last_fault = text;
}

uint64_t address_of(const void* p) { return reinterpret_cast<uint64_t>(p); }

// Whether [address, address + bytes) lies in one of the ranges.
bool lies_in(const std::map<uint64_t, uint64_t>& ranges, uint64_t address, uint64_t bytes) {
  auto next = ranges.upper_bound(address);
  if (next == ranges.begin()) return false;
  const auto& [begin, size] = *std::prev(next);
  return address + bytes <= begin + size;
}

bool touches(const std::map<uint64_t, uint64_t>& ranges, uint64_t address, uint64_t bytes) {
  return std::any_of(ranges.begin(), ranges.end(), [&](const auto& range) {
    return address < range.first + range.second && range.first < address + bytes;
  });
}

// Whether every page is mapped, and may be written if so asked.
bool is_mapped(uint64_t address, uint64_t bytes, bool to_write) {
  std::FILE* maps = std::fopen("/proc/self/maps", "re");
  uint64_t at = address;
  char line[512];
  while (at < address + bytes && std::fgets(line, sizeof line, maps) != nullptr) {
    uint64_t begin, end;
    char rights[8];
    if (std::sscanf(line, "%" SCNx64 "-%" SCNx64 " %7s", &begin, &end, rights) != 3 || end <= at) continue;
    if (begin > at || (to_write && rights[1] != 'w')) break;
    at = end;
  }
  std::fclose(maps);
  return at >= address + bytes;
}

void finish(const Work& work) {
  if (work.event != nullptr) {
    --work.event->pending;
  } else if (work.bytes > 0) {
    std::memmove(work.to, work.from, work.bytes);
  }
}

// Does the work that is due; nothing overtakes what was given before it.
void pump() {
  const int64_t now = now_ns();
  while (!state.queue.empty() && state.queue.front().due_ns <= now) {
    finish(state.queue.front());
    state.queue.pop_front();
  }
}

void enqueue(Work work) {
  work.due_ns = state.delay_ns == kOnCommand ? kNever : now_ns() + state.delay_ns;
  state.queue.push_back(std::move(work));
  pump();
}

// Does the first n pieces, due or not.
void run(uint64_t n) {
  for (; n > 0 && !state.queue.empty(); --n) {
    finish(state.queue.front());
    state.queue.pop_front();
  }
}

bool is_refused(const std::string& call, int& code) {
  for (auto refusal = state.refusals.begin(); refusal != state.refusals.end(); ++refusal) {
    if (refusal->call != call) continue;
    if (refusal->nth > 1) {
      --refusal->nth;
      continue;
    }
    code = refusal->code;
    if (refusal->nth == 1) state.refusals.erase(refusal);
    return true;
  }
  return false;
}

// Runs the body of a call under the lock, between what every call has: a count, the refusals asked for, a line of the
// log.
template <class Body>
int called(const char* call, bool wants_context, Body body) {
  const std::lock_guard lock(guard);
  ++state.calls[call];
  int code = kSuccess;
  if (state.pid != getpid()) {
    code = kNotInitialized;
  } else if (!is_refused(call, code)) {
    pump();
    code = wants_context && contexts.empty() ? kInvalidContext : body();
    if (code == kInvalidContext) fault("%s without a current context", call);
  }
  state.log += std::string(call) + " " + std::to_string(code) + "\n";
  return code;
}

void* const kContext = &state;  // there is one; nobody looks into it

}  // namespace

// --- the driver
// ---------------------------------------------------------------------------------------------------------

extern "C" {

int cuInit(unsigned) {
  const std::lock_guard lock(guard);
  ++state.calls["cuInit"];
  if (!state.is_there) return kNoDevice;
  if (state.init_result != kSuccess) return state.init_result;
  if (state.pid != 0 && state.pid != getpid()) return kNotInitialized;
  state.pid = getpid();
  return kSuccess;
}

int cuGetErrorName(int code, const char** name) {
  const auto found = kNames.find(code);
  *name = found == kNames.end() ? nullptr : found->second;
  return found == kNames.end() ? kInvalidValue : kSuccess;
}

int cuDriverGetVersion(int* version) {
  *version = 13020;
  return kSuccess;
}

int cuDeviceGetCount(int* count) {
  return called("cuDeviceGetCount", false, [&] { return *count = state.devices, kSuccess; });
}

int cuDeviceGet(int* device, int ordinal) {
  return called("cuDeviceGet", false, [&] {
    *device = ordinal;
    return ordinal < state.devices ? kSuccess : kInvalidDevice;
  });
}

int cuDeviceGetName(char* name, int bytes, int device) {
  return called("cuDeviceGetName", false, [&] {
    std::snprintf(name, static_cast<size_t>(bytes), "fake GPU %d", device);
    return kSuccess;
  });
}

int cuDeviceGetAttribute(int* value, int attribute, int) {
  return called("cuDeviceGetAttribute", false, [&] {
    const auto found = state.attributes.find(attribute);
    *value = found == state.attributes.end() ? 0 : found->second;
    return kSuccess;
  });
}

int cuDevicePrimaryCtxRetain(void** context, int device) {
  return called("cuDevicePrimaryCtxRetain", false, [&] {
    ++state.retained[device];
    *context = kContext;
    return kSuccess;
  });
}

int cuDevicePrimaryCtxRelease_v2(int device) {
  return called("cuDevicePrimaryCtxRelease_v2", false, [&]() -> int {
    if (state.retained[device] == 0)
      return fault("the context of GPU %d is released too often", device), kInvalidContext;
    const bool is_last = --state.retained[device] == 0;
    if (is_last &&
        !(state.registered.empty() && state.pinned.empty() && state.streams.empty() && state.events.empty())) {
      fault("the context of GPU %d goes with things left in it", device);
    }
    return kSuccess;
  });
}

int cuCtxPushCurrent_v2(void* context) {
  return called("cuCtxPushCurrent_v2", false, [&] { return contexts.push_back(context), kSuccess; });
}

int cuCtxPopCurrent_v2(void** context) {
  return called("cuCtxPopCurrent_v2", true, [&] {
    *context = contexts.back();
    contexts.pop_back();
    return kSuccess;
  });
}

int cuMemHostRegister_v2(void* p, size_t bytes, unsigned) {
  return called("cuMemHostRegister_v2", true, [&]() -> int {
    const uint64_t address = address_of(p);
    if (address % kPage != 0 || bytes % kPage != 0) fault("a registration of %zu bytes is not of whole pages", bytes);
    if (bytes == 0 || !is_mapped(address, bytes, true)) return kInvalidValue;
    if (touches(state.registered, address, bytes) || touches(state.pinned, address, bytes)) {
      fault("two registrations overlap");
      return kAlreadyRegistered;
    }
    uint64_t sum = bytes;
    for (const auto& range : state.registered) sum += range.second;
    if (bytes > state.register_limit || sum > state.register_budget) return kOutOfMemory;
    state.registered[address] = bytes;
    return kSuccess;
  });
}

int cuMemHostUnregister(void* p) {
  return called("cuMemHostUnregister", true, [&]() -> int {
    const auto found = state.registered.find(address_of(p));
    if (found == state.registered.end()) return fault("unregistered what is not registered"), kNotRegistered;
    if (!is_mapped(found->first, found->second, false)) fault("unmapped while it was registered");
    state.registered.erase(found);
    return kSuccess;
  });
}

int cuMemHostAlloc(void** p, size_t bytes, unsigned) {
  return called("cuMemHostAlloc", true, [&]() -> int {
    if (bytes == 0) return kInvalidValue;
    *p = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (*p == MAP_FAILED) return kOutOfMemory;
    state.pinned[address_of(*p)] = bytes;
    return kSuccess;
  });
}

int cuMemFreeHost(void* p) {
  return called("cuMemFreeHost", true, [&]() -> int {
    const auto found = state.pinned.find(address_of(p));
    if (found == state.pinned.end()) return fault("freed host memory that is none"), kInvalidValue;
    const auto [address, bytes] = *found;
    for (const Work& work : state.queue) {
      if (work.event == nullptr && touches({{address, bytes}}, address_of(work.from), work.bytes))
        fault("freed under a copy");
    }
    munmap(p, bytes);
    state.pinned.erase(found);
    return kSuccess;
  });
}

int cuMemAlloc_v2(uint64_t* device_address, size_t bytes) {
  return called("cuMemAlloc_v2", true, [&]() -> int {
    if (bytes == 0) return kInvalidValue;
    *device_address = reinterpret_cast<uint64_t>(std::malloc(bytes));
    state.device_memory[*device_address] = bytes;
    return kSuccess;
  });
}

int cuMemFree_v2(uint64_t device_address) {
  return called("cuMemFree_v2", true, [&]() -> int {
    if (state.device_memory.erase(device_address) == 0) return fault("freed device memory that is none"), kInvalidValue;
    std::free(reinterpret_cast<void*>(device_address));
    return kSuccess;
  });
}

// Where the host's end is not page-locked, a real driver takes the bytes before it returns, or waits until they are
// there.
int copy(const char* call, void* to, const void* from, const void* host, size_t bytes) {
  return called(call, true, [&]() -> int {
    const uint64_t address = address_of(host);
    Work work{0, to, from, bytes, nullptr, nullptr};
    if (lies_in(state.registered, address, bytes)) {
      state.bytes["registered"] += bytes;
    } else if (lies_in(state.pinned, address, bytes)) {
      state.bytes["pinned"] += bytes;
    } else if (touches(state.registered, address, bytes) || touches(state.pinned, address, bytes)) {
      return fault("a copy reaches out of what is page-locked"), kInvalidValue;
    } else {
      state.bytes["pageable"] += bytes;
      const char* source = static_cast<const char*>(from);
      if (host == from) {
        work.taken = std::make_shared<std::vector<char>>(source, source + bytes);
        work.from = work.taken->data();
      } else {
        run(UINT64_MAX);
        finish(work);
        return kSuccess;
      }
    }
    enqueue(std::move(work));
    return kSuccess;
  });
}

int cuMemcpyHtoDAsync_v2(uint64_t device_address, const void* p, size_t bytes, void*) {
  return copy("cuMemcpyHtoDAsync_v2", reinterpret_cast<void*>(device_address), p, p, bytes);
}

int cuStreamCreate(void** stream, unsigned) {
  return called("cuStreamCreate", true, [&] {
    *stream = std::malloc(1);
    state.streams.insert(*stream);
    return kSuccess;
  });
}

int cuStreamDestroy_v2(void* stream) {
  return called("cuStreamDestroy_v2", true, [&]() -> int {
    if (state.streams.erase(stream) == 0) return fault("destroyed a stream that is none"), kInvalidHandle;
    std::free(stream);
    return kSuccess;
  });
}

// One queue keeps the order that the caller asks for here: the event was recorded before.
int cuStreamWaitEvent(void*, void* event, unsigned) {
  return called("cuStreamWaitEvent", true, [&]() -> int {
    if (state.events.contains(static_cast<Event*>(event))) return kSuccess;
    return fault("waited for an event that is none"), kInvalidHandle;
  });
}

int cuEventCreate(void** event, unsigned) {
  return called("cuEventCreate", true, [&] {
    *event = new Event;
    state.events.insert(static_cast<Event*>(*event));
    return kSuccess;
  });
}

int cuEventRecord(void* event, void*) {
  return called("cuEventRecord", true, [&]() -> int {
    auto* const e = static_cast<Event*>(event);
    if (!state.events.contains(e)) return fault("recorded an event that is none"), kInvalidHandle;
    ++e->pending;
    enqueue({0, nullptr, nullptr, 0, e, nullptr});
    return kSuccess;
  });
}

int cuEventQuery(void* event) {
  return called("cuEventQuery", true, [&]() -> int {
    auto* const e = static_cast<Event*>(event);
    if (!state.events.contains(e)) return fault("asked an event that is none"), kInvalidHandle;
    return e->pending == 0 ? kSuccess : kNotReady;
  });
}

int cuEventDestroy_v2(void* event) {
  return called("cuEventDestroy_v2", true, [&]() -> int {
    auto* const e = static_cast<Event*>(event);
    if (state.events.erase(e) == 0) return fault("destroyed an event that is none"), kInvalidHandle;
    for (Work& work : state.queue) {
      if (work.event == e) work = {work.due_ns, nullptr, nullptr, 0, nullptr, nullptr};
    }
    delete e;
    return kSuccess;
  });
}

// --- what a test says and asks
// -------------------------------------------------------------------------------------------

// One GPU that can do everything, with nothing in it; or none, as on any machine without one, and as it is at first.
// Who loads it with FAKE_CUDA_IS_THERE in the environment has the GPU at once, and with FAKE_CUDA_REFUSES one that
// refuses a call.
void fake_reset(int is_there) {
  const std::lock_guard lock(guard);
  for (Event* event : state.events) delete event;
  state = State();
  state.is_there = is_there != 0;
}

void fake_set_devices(int count) { state.devices = count; }
void fake_set_init_result(int code) { state.init_result = code; }
void fake_set_attribute(int attribute, int value) { state.attributes[attribute] = value; }
void fake_set_register_limit(uint64_t bytes) { state.register_limit = bytes; }
void fake_set_register_budget(uint64_t bytes) { state.register_budget = bytes; }

// nth 1: the next call; 0: every one from now on.
void fake_refuse(const char* call, int64_t nth, int code) {
  const std::lock_guard lock(guard);
  state.refusals.push_back({call, nth, code});
}

// Work is done so long after it was given, as far as anybody asks by then; -1: by fake_run alone.
void fake_set_delay_us(int64_t us) {
  const std::lock_guard lock(guard);
  state.delay_ns = us < 0 ? kOnCommand : us * 1000;
}

// Does the first n pieces of the work that waits; negative: all.
void fake_run(int64_t n) {
  const std::lock_guard lock(guard);
  run(n < 0 ? UINT64_MAX : static_cast<uint64_t>(n));
}

uint64_t fake_pending() {
  const std::lock_guard lock(guard);
  pump();
  return state.queue.size();
}

uint64_t fake_calls(const char* call) {
  const std::lock_guard lock(guard);
  return state.calls[call];
}

// Copied from or into memory that is "registered", "pinned" or "pageable".
uint64_t fake_copied(const char* kind) {
  const std::lock_guard lock(guard);
  return state.bytes[kind];
}

// What there is of a kind: "registered" and "pinned" in pieces, "device_memory", "streams", "events", "contexts".
uint64_t fake_num(const char* kind) {
  const std::lock_guard lock(guard);
  const std::string k = kind;
  if (k == "registered") return state.registered.size();
  if (k == "pinned") return state.pinned.size();
  if (k == "device_memory") return state.device_memory.size();
  if (k == "streams") return state.streams.size();
  if (k == "events") return state.events.size();
  uint64_t retained = 0;
  for (const auto& [device, count] : state.retained) retained += static_cast<uint64_t>(count);
  return retained;
}

uint64_t fake_faults() { return state.faults; }

const char* fake_last_fault() {
  const std::lock_guard lock(guard);
  shown = state.last_fault;
  return shown.c_str();
}

// Addresses and bytes of what is registered, a line each, in the order of the addresses.
const char* fake_registered() {
  const std::lock_guard lock(guard);
  shown.clear();
  for (const auto& [address, bytes] : state.registered) {
    shown += std::to_string(address) + " " + std::to_string(bytes) + "\n";
  }
  return shown.c_str();
}

// The calls since the last time it was asked: name and answer, a line each.
const char* fake_log() {
  const std::lock_guard lock(guard);
  shown.swap(state.log);
  state.log.clear();
  return shown.c_str();
}

}  // extern "C"
