// A table with a rate limiter, and counters as if calls had been counted.
#pragma once

#include "support/fixtures.h"

namespace shmreplay::test {

inline ArenaSpec limited(double samples_per_insert, int64_t min_size, double min_diff, double max_diff) {
  TableSpec t = open_table("a", 1000);
  t.samples_per_insert = samples_per_insert;
  t.min_size_to_sample = min_size;
  t.min_diff = min_diff;
  t.max_diff = max_diff;
  return arena_of({t}, 4, 300);
}

inline void count(World& w, uint64_t inserts, uint64_t samples, uint64_t deletes = 0) {
  Limiter& l = w.table().record->limiter;
  poke(l.inserts, inserts);
  poke(l.samples, samples);
  poke(l.deletes, deletes);
  poke(w.table().record->size, inserts - deletes);
}

}  // namespace shmreplay::test
