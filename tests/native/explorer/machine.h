// The inside of the explorer, for explorer.cc, hooks.cc and kernel.cc.
#pragma once

#include "explorer/explorer.h"

namespace shmreplay::explorer {

inline constexpr int64_t kNever = INT64_MAX;

// The part of a process that is saved and restored as it is.
struct Now {
  Life life;
  bool stopped;
  bool was_stopped;
  bool after_shared;   // its last step was one that others could notice
  bool leaving_mutex;  // between the mutex's release and the wake-up: the kernel would see to it at a death
  uint8_t pad[3];
  int32_t result;       // of the call that it was blocked in
  uint32_t heap_count;  // live allocations
  uint64_t heap_used;   // bytes
  const void* word;     // that it sleeps on
  uint64_t since;       // its turn among the sleepers, from 1 on
  int64_t until;        // by its own clock; kNever
  int64_t clock;        // how far its clock is ahead of the common one
  uint64_t stack_bytes;
};

struct Common {
  int64_t base_ns;
  int32_t deaths, stops, early_timeouts, slices;  // left
  int32_t preemptions;                            // left; unlimited: kAny
  uint32_t last;                                  // that ran, if preemptions are counted
  int32_t num_died, num_stopped, num_early;       // so far
};

struct Process {
  std::string name;
  std::function<void()> body;
  bool immortal = false;
  Now now{};
  jmp_buf context{};
  char* stack = nullptr;
  char* heap = nullptr;
  char* low = nullptr;          // of the live part of the stack
  const char* does = "begins";  // the step that comes next
  const void* where = nullptr;
};

enum class Point : uint8_t { kAll, kDeathOnly };

Process* running() noexcept;  // nullptr outside of processes

// Called by a process before a step. It comes back when the explorer has chosen this process to do the step.
void step(const void* at, size_t bytes, bool writes, const char* does);
void always_step(const void* at, const char* does);
// Called after an atomic store.
void stored(const void* at, uint64_t value) noexcept;

// The process has got the mutex, so its waiting is over and its clock may go back to the common one: what it saw before
// is of no more use, and would only tell states apart.
void begin_hold();

// Ends the search with a fault of the process that runs.
[[noreturn]] void accuse(const char* text, const void* at);

// Sleeps; answers 0 or ETIMEDOUT.
int block(const void* word, int64_t until);
// Wakes up to `count` sleepers; answers how many.
int wake(const void* word, int count);
bool is_dead(uint32_t pid);
// The memory of a process's own heap.
void* allocate(size_t bytes);
bool release(void* at) noexcept;  // false: not from there

// kernel.cc: what the kernel does for a dead process.
void bury(Process& process, uint32_t tid, pthread_mutex_t* mutex);

}  // namespace shmreplay::explorer
