// Every operation of the core, called on an arena that may have one wrong byte: see flips_test.cc.
#pragma once

#include "damage/flips_scene.h"

namespace shmreplay::test {

// What a child is doing, in memory that its parent shares.
struct Progress {
  char operation[64];
  char said[160];
  uint64_t raised;  // operations that ended with an exception
};
Progress& progress();

class Attack {
 public:
  Attack(Scene& scene, Arena& arena);

  // Performs all of them, in an order that the seed gives.
  void run(uint64_t seed);

 private:
  template <class Body>
  void attempt(const char* name, Body body);
  void perform(int operation, uint32_t table);

  void append(StreamWriter& writer, int steps);
  void insert(uint32_t table);
  void create(uint32_t table);
  void insert_what_is_due();
  void sample(uint32_t table, uint32_t n, bool count);
  void sample_otherwise(uint32_t table);
  void get(uint32_t table);
  void update(uint32_t table);
  void update_cells(uint32_t table);
  void remove(uint32_t table);
  void take_heap_blocks();
  void read_own_steps();
  void wait_for_the_limiter(uint32_t table);
  void sessions();
  void read_without_the_lock(uint32_t table);
  void walk_everything();
  void save_and_restore();

  Scene& scene_;
  Arena& arena_;
  StreamWriter early_;
  SampleCall reader_;
  Random random_{7};
  uint64_t serial_ = 5000;
};

}  // namespace shmreplay::test
