#include "arena/formatter.h"

#include <sys/mman.h>
#include <unistd.h>

#include "support/fixtures.h"

namespace shmreplay::test {
namespace {

// Descriptors of two segments with the given sizes.
class Fresh {
 public:
  Fresh(uint64_t index_bytes, uint64_t data_bytes)
      : index_(memfd_create("index", MFD_CLOEXEC)), data_(memfd_create("data", MFD_CLOEXEC)) {
    CHECK_EQ(ftruncate(index_, static_cast<off_t>(index_bytes)), 0);
    CHECK_EQ(ftruncate(data_, static_cast<off_t>(data_bytes)), 0);
  }
  ~Fresh() {
    close(index_);
    close(data_);
  }
  void format(const ArenaSpec& spec, const std::string& instance = "i", const std::string& name = "n") const {
    Formatter(index_, data_, spec).run(instance, name);
  }
  int index() const { return index_; }

 private:
  int index_, data_;
};

}  // namespace

TEST(a_fresh_arena_of_any_selectors_is_healthy_and_empty) {
  for (uint32_t sampler = kFifo; sampler <= kMaxHeap; ++sampler) {
    for (uint32_t remover = kFifo; remover <= kMaxHeap; ++remover) {
      ArenaSpec spec = arena_of({open_table("a", 1, sampler, remover), open_table("b", 70, sampler, remover)});
      spec.num_blocks = 5;
      spec.block_bytes = 128;
      World w(spec);
      check_healthy(w.arena);
      CHECK_EQ(live_items(w.table(0)), 0u);
      CHECK_EQ(w.arena.state().num_free.get(), 64u);
    }
  }
}

TEST(the_tables_constants_and_limiter_are_those_of_the_spec) {
  TableSpec t = open_table("a", 100, kPrioritized, kPrioritized);
  t.sampler_exponent = 0.6;
  t.remover_exponent = 2;
  t.samples_per_insert = 1.5;
  t.min_diff = -3;
  t.max_diff = 5;
  t.min_size_to_sample = 7;
  t.count_deletes = true;
  t.on_full = kOnFullError;
  t.item_steps = 9;
  World w(arena_of({t}));
  const TableRecord& r = *w.table().record;
  CHECK_EQ(w.table().slot_bits, 7u);
  CHECK_EQ(w.table().on_full, kOnFullError);
  CHECK_EQ(w.table().item_steps, 9u);
  CHECK_EQ(r.exponents[kSampler].get(), 0.6);
  CHECK_EQ(r.exponents[kRemover].get(), 2.0);
  CHECK_EQ(r.limiter.samples_per_insert.get(), 1.5);
  CHECK_EQ(r.limiter.min_diff.get(), -3.0);
  CHECK_EQ(r.limiter.max_diff.get(), 5.0);
  CHECK_EQ(r.limiter.min_size_to_sample.get(), 7);
  CHECK_EQ(r.limiter.count_deletes.get(), 1u);
}

TEST(two_arenas_begin_their_insertion_numbers_at_random) {
  World a(arena_of({open_table("a", 1)})), b(arena_of({open_table("a", 1)})), c(arena_of({open_table("a", 1)}));
  const uint64_t x = a.arena.state().next_seq.get(), y = b.arena.state().next_seq.get(),
                 z = c.arena.state().next_seq.get();
  CHECK(x > 0 && y > 0 && z > 0);
  CHECK(!(x == y && y == z));
}

TEST(segments_of_another_size_than_the_plans_are_refused) {
  const ArenaSpec spec = arena_of({open_table("a", 1)});
  const Plan plan = plan_arena(spec);
  CHECK_THROWS(std::invalid_argument, "index segment has 4096 bytes", Fresh(4096, plan.data_bytes).format(spec));
  CHECK_THROWS(std::invalid_argument, "data segment has 1 bytes", Fresh(plan.index_bytes, 1).format(spec));
}

TEST(a_segment_whose_formatting_failed_is_not_ready) {
  ArenaSpec spec = arena_of({open_table("a", 1)});
  const Plan plan = plan_arena(spec);
  const Fresh fresh(plan.index_bytes, plan.data_bytes);
  CHECK_THROWS(std::invalid_argument, "instance name '' must have 1 to 71 bytes", fresh.format(spec, ""));
  CHECK(!inspect_header(fresh.index()).ready);
  CHECK_THROWS(std::invalid_argument, "must have 1 to 71 bytes", fresh.format(spec, "i", std::string(72, 'n')));
  CHECK(!inspect_header(fresh.index()).ready);
}

}  // namespace shmreplay::test
