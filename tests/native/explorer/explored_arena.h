// A small arena with one table, a session and a mapping for each simulated process, and all that they write watched.
#pragma once

#include <memory>
#include <vector>

#include "arena/hold.h"
#include "explorer/explorer.h"

namespace shmreplay::explorer {

class ExploredArena {
 public:
  static constexpr uint32_t kSlots = 4;  // of each kind that processes may take: sleep slots, call slots, chunks,
                                         // streams
  static constexpr uint32_t call_slot(uint32_t i) { return 7 * i; }  // where session i looks first: see Lease::take
  static constexpr uint32_t kNames = 2;                              // chunks that a lease may name

  ExploredArena(const std::vector<std::string>& names, const TableSpec& table, uint32_t num_chunks = 2);
  ~ExploredArena();
  ExploredArena(const ExploredArena&) = delete;
  ExploredArena& operator=(const ExploredArena&) = delete;

  // The mapping of a process.
  Arena& arena(uint32_t process) { return *arenas_[process]; }
  const TableFacts& table(uint32_t process) { return arenas_[process]->table(0); }
  // For the checks.
  Arena& checker() { return *daemon_; }
  TableRecord& record() { return *daemon_->table(0).record; }

  Explorer explorer;

 private:
  void watch_all();

  int index_fd_, data_fd_;
  std::unique_ptr<Arena> daemon_;
  std::vector<std::unique_ptr<Arena>> arenas_;
};

// A table whose limiter admits `most` inserts ahead of the samples, and one sample for each insert.
TableSpec queue_of(uint32_t most);

// Explores and prints how much. If there is a fault, prints the schedule that leads to it, and the test fails.
void explore(Explorer& explorer, const Budget& budget);

// For three processes: all orders in `make test-long`, else those with few preemptions.
Budget of_three();

// By how much a search is to go further if SHMREPLAY_LONG is set: `many`, else `few`.
int depth(int few, int many);
bool is_long();

}  // namespace shmreplay::explorer
