// Reports of the sessions attached to an arena: what each has done, which calls sleep, which chunks are named. They are
// read without the lock (rule 4), so their parts may be a few holds apart. Damage in the index can only make a report
// wrong.
#pragma once

#include <vector>

#include "arena/arena.h"

namespace shmreplay {

struct SessionReport {
  uint32_t session, generation, pid;
  uint64_t start_time;
  uint64_t inserts, samples, updates;  // items, since it attached
  uint64_t writes, reads;              // bits of the tables it has inserted into and sampled from
  uint32_t open_streams;
  uint32_t pinned_chunks;  // named by its reads in flight and its views; each chunk counts once
};

// A call that its table's limiter does not admit, or an insert that finds no room. For each session, only one insert
// without room is shown.
struct SleeperReport {
  uint32_t table, side;  // Side
  bool wants_room;
  uint32_t session, pid;
  uint64_t began_ns;  // CLOCK_MONOTONIC
  double since_s;     // seconds it has waited
};

struct UsesReport {
  uint64_t writes, reads;  // bits of tables
};

struct LeasesReport {
  uint32_t pinned_chunks;  // named by reads in flight and views, of all sessions and the daemon; each chunk counts once
  double oldest_s;         // seconds since the oldest of these leases was taken; negative: there is none
};

std::vector<SessionReport> session_reports(const Arena& arena);
std::vector<SleeperReport> sleeper_reports(const Arena& arena);
LeasesReport leases_report(const Arena& arena);

// The tables that a session has inserted into and sampled from; none if its record now belongs to another generation.
// uses_of_all(): the same for all live sessions together.
UsesReport uses_of(const Arena& arena, uint32_t session, uint32_t generation);
UsesReport uses_of_all(const Arena& arena);

}  // namespace shmreplay
