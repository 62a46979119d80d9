// The arena that flips_test.cc damages: items of every kind of table and column, everything that can be in flight, and
// a dead holder.
#pragma once

#include "chunks/leases.h"
#include "support/fixtures.h"

namespace shmreplay::test {

ArenaSpec scene_spec();

// All columns over the padded span: some rows twice, some backwards, the first step repeated before it, the last left
// out.
Pattern uneven_pattern(const Arena& arena);

// Items of every table, episodes, patterns, chunks in every state, values, a sleeper, a lease, sessions that are gone.
class Scene {
 public:
  Scene();

  // Restores the index and data as they were; `dead`: with a holder that died half-way through an insert.
  void restore(bool dead);

  World world;
  std::unique_ptr<Arena> client;  // whose session the children use
  std::vector<int64_t> keys[6];   // by table; tables 1 and 4 have one-step items, squeezed

 private:
  void fill();
  void give_back_some();
  void die_in_a_hold_and_keep();

  Lease lease_;
  Blocked blocked_;
  std::string alive_, dead_, data_;
};

// A part of one of the segments.
struct Region {
  const char* name;
  uint64_t begin, end;
  bool in_data = false;
};

// The regions of the index; and the chunks' rows that lead to values, and that say which cells a row has.
std::vector<Region> regions_of(const Arena& arena);

}  // namespace shmreplay::test
