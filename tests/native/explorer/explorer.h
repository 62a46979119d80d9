// A model checker for the core: it runs the real code of several simulated processes, one step at a time, in every
// order.
//
// A process is a fiber. The core is compiled with -fsanitize=thread and linked without ThreadSanitizer's library, so
// the compiler puts a call before every access to memory and turns every atomic operation into a call. hooks.cc answers
// these calls; kernel.cc answers the calls for mutexes, futexes, clocks and pidfds. No source of the core changes, and
// no other build knows of this.
//
// A step is an access to watched shared memory, or a call of the simulated kernel. Before a step that another process
// could notice, the explorer tries every process that can run. Where the budget allows it, it also lets a process die,
// stops one, or lets the earliest timeout of a sleep end early. The search goes depth first: the whole state (watched
// memory, stacks, what each process waits for) is saved, restored, and remembered by a hash of 64 bits. So a state that
// is reached by two ways is explored once, and nothing is replayed.
//
// Steps run one after another and see each other's stores at once: sequential consistency. Orders that only weaker
// memory shows are not explored.
//
// What is left out without loss: a word that is only touched by holders of the lock, or never written, is no reason to
// let another process go first, since nobody else can notice when it is touched. The explorer finds out which words
// these are, and begins anew when it was wrong about one. A holder may still die before every write.
#pragma once

#include <csetjmp>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include <pthread.h>

namespace shmreplay::explorer {

// kShared: processes meet there. kPrivate: belongs to one process or to the checks, so it is part of the state, and no
// access is a step. kReport: written for reports alone; not even a part of what tells states apart.
enum class Memory : uint8_t { kShared, kPrivate, kReport };

struct Budget {
  static constexpr int kAny = -1;
  int deaths = 0;          // processes that may die, at any step
  int stops = 0;           // processes that may be stopped at any step; they go on when time has passed, or at the end
  int early_timeouts = 0;  // timeouts that may end although somebody could still run
  int preemptions = kAny;  // how often another process may run although the last one could go on
  int slices = 12;         // timeouts, one after another, after which everybody must have ended
  bool slices_are_enough = true;  // false: calls may sleep for as long as somebody is stopped
  uint64_t max_states = 50'000'000;
};

struct Result {
  uint64_t states = 0;     // different ones
  uint64_t schedules = 0;  // ways that ended, or that came to a known state
  uint64_t ends = 0;       // states in which everybody had ended
  uint64_t steps = 0;
  uint64_t deaths = 0;                // branches in which a process died
  uint64_t starts = 0;                // searches: one, and one for each time that it was wrong about a word
  size_t depth = 0;                   // decisions on the longest way
  std::string fault;                  // empty: none was found
  std::vector<std::string> schedule;  // the steps that lead to the fault
};

enum class Life : uint8_t { kNew, kReady, kBlocked, kDone, kDead };

class Explorer {
 public:
  Explorer();
  ~Explorer();
  Explorer(const Explorer&) = delete;
  Explorer& operator=(const Explorer&) = delete;

  // Memory that processes write: every write into a segment must be to a part of it that is watched. A later, smaller
  // watch inside an earlier one takes precedence.
  void segment(void* at, size_t bytes);
  // Another mapping of a segment.
  void mapping(void* at, void* segment);
  void watch(const std::string& name, void* at, size_t bytes, Memory kind = Memory::kShared);

  // The one robust mutex.
  void mutex(pthread_mutex_t* at);

  // What lies at `at` means nothing once `word` becomes 0.
  void scrub(const void* word, void* at, size_t bytes);

  // `immortal`: it neither dies nor stops.
  uint32_t process(const std::string& name, std::function<void()> body, bool immortal = false);

  // Called when everybody has ended, died or is stopped for good. Answers what is wrong, or nothing.
  std::function<std::string()> at_end;
  // Called when a process dies, before anybody else runs.
  std::function<void(uint32_t process)> at_death;

  // Whether a process may sleep until its timeout although nobody died or was stopped: whether what it waits for has
  // not happened. Asked when nobody can run; without it, no process may.
  std::function<bool(uint32_t process)> may_sleep;

  Result explore(const Budget& budget);

  // For bodies and checks.
  Life life(uint32_t process) const;
  bool somebody_died() const;      // on this way
  bool time_passed_early() const;  // the same of timeouts

 private:
  friend struct Machine;
  struct Machine* machine_;
};

// What getpid() answers outside of processes from now on; 0: the truth.
void act_as(uint32_t pid);

// ---- for the bodies of processes ---------------------------------------------------------------------------------

// Ends the search with a fault unless the condition holds. `text` must outlive the search.
void require(bool condition, const char* text);

uint32_t self();                    // the number of the process that runs
uint32_t pid_of(uint32_t process);  // what getpid() answers it
int64_t clock_ns();                 // what the clock shows it

}  // namespace shmreplay::explorer
