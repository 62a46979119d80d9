// SIGKILL at every named point of what takes, writes and frees blocks: see crash.h. Whichever process died, the index
// is as it was before or after a hold, and no block is lost: when the last items and streams are gone, all blocks are
// free.
#include <unistd.h>

#include "chunks/block_pool.h"
#include "chunks/chunk_pool.h"
#include "deaths/crash.h"
#include "items/data_update.h"

namespace shmreplay::test {
namespace {

using Holds = CrashLab::Holds;

constexpr uint32_t kBlocks = 90;

ArenaSpec lab_spec(uint32_t num_blocks = kBlocks) {
  ArenaSpec s = arena_of({open_table("trees", 8, kPrioritized, kMinHeap), queue_table("queue", 4)}, 2, 24);
  s.max_streams = 6;
  s.max_sessions = 4;
  return with_values(s, num_blocks);
}

// A table with items of a stream of the parent that is closed; their values fill part of the heap.
class Lab : public CrashLab {
 public:
  explicit Lab(int items, uint32_t num_blocks = kBlocks) : CrashLab(lab_spec(num_blocks)) {
    Actor actor(world.arena, world.table(0), 3, 100);
    for (int i = 0; i < items; ++i) {
      actor.append();
      keys.push_back(actor.create(std::min(actor.writer.history().num_steps(), 2u), 1.0 + i % 3));
    }
  }
  std::vector<int64_t> keys;
};

Actor& writer_of(Arena& arena, uint32_t table, uint32_t steps) {
  auto* actor = new Actor(arena, arena.table(table), 6, 1000);
  for (uint32_t i = 0; i < steps; ++i) actor->append();
  return *actor;
}

Operation creates(uint32_t steps, uint32_t length) {
  return [=](Arena& arena) -> std::function<void()> {
    Actor& actor = writer_of(arena, 0, steps);
    return [=, &actor] { actor.create(length, 1.5); };
  };
}

// After a death at some of an operation's points: removes everything, and checks that every block is free again.
void check_no_block_is_lost(CrashLab& lab, const Operation& operation) {
  lab.save();
  const int64_t stride = kSanitized ? 31 : 7;
  for (int64_t k = 1; lab.perform(operation, k); k += stride) {
    World& w = lab.world;
    uint32_t freed = 0;
    lab.recover();
    lab.reap_child();
    for (uint32_t t = 0; t < 2; ++t) CHECK_EQ(reset_table(*w.daemon, w.daemon->table(t), kWhatever), Status::kOk);
    CHECK_EQ(reclaim(*w.daemon, kWhatever, freed), Status::kOk);
    check_healthy(*w.daemon);
    CHECK_EQ(w.daemon->state().num_used.get(), 0u);
    CHECK_EQ(w.daemon->state().num_free_blocks.get(), w.daemon->geometry().num_blocks);
    lab.restore();
  }
}

void run(CrashLab& lab, const char* name, Holds holds, const Operation& operation) {
  lab.run(name, holds, operation);
  check_no_block_is_lost(lab, operation);
}

}  // namespace

TEST(a_row_takes_its_blocks_whole_or_not_at_all) {
  Lab lab(3);
  run(lab, "append with values", Holds::kOne, [](Arena& arena) -> std::function<void()> {
    Actor& actor = writer_of(arena, 0, 1);
    return [&actor] { actor.append(); };
  });
  run(lab, "append with values to a new chunk", Holds::kMany, [](Arena& arena) -> std::function<void()> {
    Actor& actor = writer_of(arena, 0, 2);
    return [&actor] { actor.append(); };
  });
}

TEST(an_item_goes_in_with_what_it_brings_or_not_at_all) {
  Lab lab(3);
  run(lab, "item of this chunk", Holds::kMany, creates(1, 1));
  run(lab, "item of a chunk before", Holds::kMany, creates(4, 4));
  Lab full(8);
  run(full, "item with eviction", Holds::kMany, creates(1, 1));
  run(full, "one-step item", Holds::kMany, [](Arena& arena) -> std::function<void()> {
    Actor& actor = writer_of(arena, 1, 0);
    CHECK_EQ(actor.writer.ensure_row(kNow), Status::kOk);
    return [&actor] { actor.insert(1.5); };
  });
}

TEST(a_draw_that_consumes_what_items_brought_happens_whole_or_not_at_all) {
  Lab lab(2);
  {
    Actor gone(lab.world.arena, lab.world.table(1), 0, 500);
    for (int i = 0; i < 3; ++i) gone.insert();
  }
  run(lab, "consume", Holds::kMany, [](Arena& arena) -> std::function<void()> {
    auto* learner = new Learner(arena, 5);
    auto* batch = new Batch(arena, 3);
    return [=, &arena] {
      CHECK_EQ(learner->sample(arena.table(1), 3, *batch, kNow).status, Status::kOk);
      batch->check_rows();
    };
  });
}

TEST(room_for_values_is_made_hold_by_hold_and_each_is_whole) {
  Lab lab(8, 64);
  run(lab, "append that evicts for blocks", Holds::kMany, [](Arena& arena) -> std::function<void()> {
    Actor& actor = writer_of(arena, 0, 0);
    CHECK_EQ(actor.writer.ensure_row(kNow), Status::kOk);
    return [&actor, &arena] {
      const uint64_t before = arena.table(0).record->evicted_for_room.get();
      CHECK_EQ(actor.writer.secure_blocks(40, kNow), Status::kOk);
      CHECK(arena.table(0).record->evicted_for_room.get() > before);
    };
  });
}

TEST(blocks_that_two_holds_take_are_reserved_in_the_first_and_die_with_their_taker) {
  Lab lab(2, 340);
  run(lab, "blocks of two holds", Holds::kMany, [](Arena& arena) -> std::function<void()> {
    Actor& actor = writer_of(arena, 0, 0);
    CHECK_EQ(actor.writer.ensure_row(kNow), Status::kOk);
    return [&actor, &arena] {
      CHECK_EQ(actor.writer.secure_blocks(kTakeBlocks + 9, kNow), Status::kOk);
      CHECK_EQ(arena.state().num_reserved_blocks.get(), 0u);
    };
  });
}

TEST(blocks_that_are_given_back_before_a_wait_are_free_hold_by_hold) {
  Lab lab(2, 64);
  run(lab, "blocks given back", Holds::kMany, [](Arena& arena) -> std::function<void()> {
    Actor& actor = writer_of(arena, 1, 0);
    CHECK_EQ(actor.writer.ensure_row(kNow), Status::kOk);
    CHECK_EQ(actor.writer.secure_blocks(10, kNow), Status::kOk);
    return [&actor] { CHECK_EQ(actor.writer.secure_blocks(64, kTryOnly), Status::kTimeout); };
  });
}

TEST(chunks_and_their_values_are_reclaimed_slice_by_slice_and_each_is_whole) {
  Lab lab(8);
  CHECK_EQ(reset_table(lab.world.arena, lab.world.table(0), kNow), Status::kOk);
  run(lab, "reclaim", Holds::kMany, [](Arena& arena) -> std::function<void()> {
    return [&arena] {
      uint32_t freed = 0;
      CHECK_EQ(reclaim(arena, kNow, freed), Status::kOk);
      CHECK(freed >= 4);
    };
  });
}

// The index does not change at all: only cells change.
TEST(an_update_of_cells_leaves_the_index_as_it_was) {
  Lab lab(6);
  lab.rows_are_serials = false;
  run(lab, "update_data", Holds::kOne, [keys = lab.keys](Arena& arena) -> std::function<void()> {
    return [&arena, keys] {
      const std::vector<char> cells(keys.size() * 2 * 13, '\x7');
      uint32_t updated = 0;
      CHECK_EQ(update_data(arena, arena.table(0), keys.data(), static_cast<uint32_t>(keys.size()), {{4, cells.data()}},
                           0, 2, kNow, updated),
               Status::kOk);
      CHECK_EQ(updated, keys.size());
    };
  });
  CrashLab::print_totals();
}

}  // namespace shmreplay::test
