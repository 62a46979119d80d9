// SIGKILL at every named point of every operation: see crash.h.
#include <csignal>

#include "chunks/block_pool.h"
#include "chunks/chunk_pool.h"
#include "chunks/streams.h"
#include "deaths/crash.h"
#include "items/item_table.h"
#include "items/rebuild.h"

namespace shmreplay::test {
namespace {

using Holds = CrashLab::Holds;

// A table of trees and a heap, a queue, and a table of dense arrays; chunks of two steps, so that most items span
// several.
ArenaSpec lab_spec() {
  TableSpec heaps = open_table("heaps", 8, kMaxHeap, kLifo);
  heaps.max_times_sampled = 2;
  ArenaSpec s = arena_of({open_table("trees", 8, kPrioritized, kMinHeap), queue_table("queue", 8),
                          open_table("dense", 5, kUniform, kUniform), heaps},
                         2, 24);
  s.max_streams = 6;
  s.max_sessions = 4;
  s.num_blocks = 6;
  s.block_bytes = 128;
  return s;
}

// A lab in which every table has items and a stream of the parent is open.
class Lab : public CrashLab {
 public:
  explicit Lab(int items = 4) : CrashLab(lab_spec()), actor_(world.arena, world.table(0), 6, 100) {
    for (int i = 0; i < items; ++i) {
      actor_.append();
      keys.push_back(actor_.create(std::min(actor_.writer.history().num_steps(), 3u), 1.0 + i % 3));
      for (uint32_t t = 1; t < 4; ++t) actor_.create_in(world.table(t), 1, i);
    }
  }
  std::vector<int64_t> keys;  // of the first table

 private:
  Actor actor_;
};

// The child's own writer, which has written `steps` steps. It lives until the child ends.
Actor& writer_of(Arena& arena, uint32_t table, uint32_t steps) {
  auto* actor = new Actor(arena, arena.table(table), 8, 1000);
  for (uint32_t i = 0; i < steps; ++i) actor->append();
  return *actor;
}

Operation creates(uint32_t table, uint32_t length, double priority) {
  return [=](Arena& arena) -> std::function<void()> {
    Actor& actor = writer_of(arena, table, length);
    return [=, &actor] { actor.create(length, priority); };
  };
}

Operation inserts_step(uint32_t table) {
  return [=](Arena& arena) -> std::function<void()> {
    Actor& actor = writer_of(arena, table, 0);
    CHECK_EQ(actor.writer.ensure_row(kNow), Status::kOk);
    write_row(actor.writer, arena, 1000);
    return [=, &actor] {
      int64_t key = 0;
      CHECK_EQ(actor.try_insert(0.5, kNow, key), Status::kOk);
    };
  };
}

// A view that is held and then given back.
Operation views(uint32_t table, uint32_t n) {
  class Ignores final : public ViewSink {
   public:
    bool take(const DrawnItems&, bool) noexcept override { return true; }
  };
  return [=](Arena& arena) -> std::function<void()> {
    auto* call = new SampleCall(arena);
    auto* uniforms = new std::vector<double>(n, 0.4);
    auto* sink = new Ignores;
    return [=, &arena] {
      CHECK_EQ(call->view(arena.table(table), {n, n, true, uniforms->data()}, kNow, *sink).status, Status::kOk);
      call->drop();
    };
  };
}

Operation samples(uint32_t table, uint32_t n, bool count = true) {
  return [=](Arena& arena) -> std::function<void()> {
    auto* learner = new Learner(arena, 5);
    auto* batch = new Batch(arena, n);
    return [=, &arena] { CHECK_EQ(learner->sample(arena.table(table), n, *batch, kNow, count).status, Status::kOk); };
  };
}

// One call in one hold of the arena.
template <class Act>
Operation in_a_hold(Act act) {
  return [=](Arena& arena) -> std::function<void()> {
    return [=, &arena] {
      Hold hold(arena);
      CHECK_EQ(hold.begin(kNow), Status::kOk);
      act(hold, arena);
    };
  };
}

template <class Act>
Operation call(Act act) {
  return [=](Arena& arena) -> std::function<void()> { return [=, &arena] { act(arena); }; };
}

}  // namespace

TEST(an_insert_happens_whole_or_not_at_all) {
  for (const uint32_t table : {0u, 2u, 3u}) Lab().run("insert", Holds::kOne, creates(table, 1, 1.5));
  Lab(0).run("first insert, which fixes the structure", Holds::kOne, creates(0, 1, 1.5));
  Lab(0).run("one-step insert", Holds::kOne, inserts_step(0));
  Lab().run("insert at the default priority", Holds::kOne, creates(0, 2, -1));
}

TEST(an_insert_of_an_item_of_several_chunks_happens_whole_or_not_at_all) {
  Lab().run("insert of seven steps", Holds::kOne, creates(0, 7, 1.5));
}

TEST(an_insert_with_its_eviction_happens_whole_or_not_at_all) {
  for (const uint32_t table : {0u, 2u}) Lab(8).run("insert with eviction", Holds::kOne, creates(table, 3, 1.5));
  Lab(8).run("insert whose newcomer is evicted", Holds::kOne, creates(0, 3, 0.1));
  Lab lab;  // what is evicted retires its chunks
  {
    Actor gone(lab.world.arena, lab.world.table(0), 2, 500);
    for (int i = 0; i < 8; ++i) gone.append(), gone.create(1, 0.5);
  }
  lab.run("insert that retires a chunk", Holds::kOne, creates(0, 3, 1.5));
}

TEST(a_run_of_newcomers_in_the_slots_of_the_oldest_happens_whole_or_not_at_all) {
  for (const uint32_t sampler : {kUniform, kPrioritized}) {
    CrashLab lab(arena_of({open_table("a", 6, sampler, kFifo), open_table("b", 6)}, 4, 24));
    Actor before(lab.world.arena, lab.world.table(0));
    for (int i = 0; i < 7; ++i) before.insert(1.0 + i % 3);
    lab.run("insert of a run of rows", CrashLab::Holds::kOne, [](Arena& arena) -> std::function<void()> {
      Actor& actor = writer_of(arena, 0, 0);
      CHECK_EQ(actor.writer.ensure_row(kNow), Status::kOk);
      for (uint32_t i = 0; i < 4; ++i) {
        for (uint32_t c = 0; c < 3; ++c) {
          const uint32_t bytes = arena.columns()[c].row_bytes;
          fill_cell(actor.writer.row().cell(c) + i * bytes, bytes, 1000 + i);
        }
      }
      return [&arena, &actor] {
        const double priorities[4] = {2, 0, -1, 0.5};
        int64_t keys[4];
        uint32_t done = 0;
        CHECK_EQ(actor.writer.items().insert_rows(arena.table(0), actor.step, priorities, 4, kNow, keys, done),
                 Status::kOk);
      };
    });
  }
}

TEST(items_that_are_due_together_happen_together_or_not_at_all) {
  for (const int items : {2, 8}) {
    Lab(items).run("insert of what is due", items < 8 ? Holds::kOne : Holds::kMany,
                   [=](Arena& arena) -> std::function<void()> {
                     Actor& actor = writer_of(arena, 0, 5);
                     return [=, &actor] {
                       DueItem due[] = {{0, &actor.span, 1, 4, {0, 0}, 2},
                                        {2, &actor.span, 3, 2, {0, 0}, 1},
                                        {0, &actor.span, 4, 1, {0, 0}, -1},
                                        {1, &actor.span, 2, 3, {0, 0}, 1}};
                       int64_t keys[4];
                       uint32_t done = 0;
                       const Status s = insert_due(actor.writer, due, 4, kNow, keys, done);
                       CHECK_EQ(s, items < 8 ? Status::kOk : Status::kTimeout);  // the queue is full: joined and left,
                                                                                 // nothing else
                     };
                   });
  }
}

TEST(a_new_pattern_is_interned_whole_or_not_at_all) {
  Lab().run("insert of a new pattern", Holds::kOne, [](Arena& arena) -> std::function<void()> {
    Actor& actor = writer_of(arena, 0, 3);
    Pattern p = whole_pattern(arena);
    for (Slice& s : p.slices) s = {0, 0, 2, kEndAtEnd};
    auto* prepared = new PreparedPattern(p);
    return [=, &actor, &arena] {
      int64_t key = 0;
      CHECK_EQ(create_item(actor.writer, arena.table(0), *prepared, 3, 1, kNow, key), Status::kOk);
    };
  });
}

TEST(a_group_of_draws_happens_whole_or_not_at_all) {
  Lab().run("sample", Holds::kOne, samples(0, 5));
  Lab().run("sample of dense arrays", Holds::kOne, samples(2, 5));
  Lab().run("look", Holds::kOne, samples(0, 5, false));
  Lab().run("sample of two groups", Holds::kMany, samples(0, 20));
  Lab().run("view", Holds::kOne, views(0, 5));
}

TEST(draws_of_each_item_once_happen_whole_or_not_at_all) {
  for (const uint32_t table : {0u, 3u}) {
    Lab(8).run("sample each once", Holds::kOne, [=](Arena& arena) -> std::function<void()> {
      auto* call = new SampleCall(arena);
      auto* batch = new Batch(arena, 4);
      auto* uniforms = new std::vector<double>{0.1, 0.9, 0.5, 0.3};
      return [=, &arena] {
        SampleOptions options{4, 4, true, uniforms->data()};
        options.distinct = true;
        CHECK_EQ(call->sample(arena.table(table), options, kNow, *batch).status, Status::kOk);
      };
    });
  }
}

TEST(a_change_of_exponent_that_somebody_began_is_gone_on_with_whole_by_an_insert_that_meets_it) {
  Lab lab(8);
  poke(lab.world.table(0).record->exponents[kSampler], 0.3);
  poke(lab.world.table(0).record->reweigh_left, lab.world.table(0).capacity);
  lab.run("insert that meets a change of exponent", Holds::kMany, creates(0, 2, 1.5));
}

TEST(a_consuming_draw_and_its_deletions_happen_whole_or_not_at_all) {
  Lab().run("consume", Holds::kOne, samples(1, 2));
  Lab().run("view and consume", Holds::kOne, views(1, 2));
  Lab().run("sample twice and consume", Holds::kOne, samples(3, 5));
  Lab lab(0);
  {
    Actor gone(lab.world.arena, lab.world.table(1), 0, 500);
    for (int i = 0; i < 6; ++i) gone.insert();
  }
  lab.run("consume all, and their chunks retire", Holds::kOne, samples(1, 6));
}

TEST(getting_by_keys_changes_nothing) {
  Lab lab;
  lab.run("get", Holds::kOne, [keys = lab.keys](Arena& arena) -> std::function<void()> {
    auto* batch = new Batch(arena, 4);
    auto* reader = new SampleCall(arena);
    return [=, &arena] {
      uint32_t found[4];
      CHECK_EQ(reader->get(arena.table(0), keys.data(), 4, kNow, *batch, found).done, 4u);
    };
  });
}

TEST(a_group_of_updates_happens_whole_or_not_at_all) {
  Lab lab(8);
  lab.run("update", Holds::kOne, call([keys = lab.keys](Arena& arena) {
            const double priorities[] = {5, 0, 3, 0.1};
            uint32_t n = 0;
            CHECK_EQ(update_priorities(arena, arena.table(0), keys.data() + 3, priorities, 4, kNow, n), Status::kOk);
          }));
}

TEST(a_group_of_deletions_happens_whole_or_not_at_all) {
  Lab lab(8);
  lab.run("delete", Holds::kOne, call([keys = lab.keys](Arena& arena) {
            uint32_t n = 0;
            CHECK_EQ(delete_items(arena, arena.table(0), keys.data() + 2, 5, kNow, n), Status::kOk);
            CHECK_EQ(n, 5u);
          }));
}

TEST(a_reset_goes_slice_by_slice_and_each_is_whole) {
  Lab(8).run("reset", Holds::kMany,
             call([](Arena& arena) { CHECK_EQ(reset_table(arena, arena.table(0), kNow), Status::kOk); }));
  Lab(6).run("reset of a queue", Holds::kMany,
             call([](Arena& arena) { CHECK_EQ(reset_table(arena, arena.table(1), kNow), Status::kOk); }));
}

TEST(a_reset_that_somebody_began_is_finished_whole_by_an_insert_that_meets_it) {
  Lab lab(8);
  poke(lab.world.table(0).record->flags, uint32_t{kResetting});
  lab.run("insert that meets a reset", Holds::kMany, creates(0, 2, 1.5));
  Lab other(8);
  poke(other.world.table(2).record->flags, uint32_t{kResetting});
  other.run("update that meets a reset", Holds::kMany, call([](Arena& arena) {
              const int64_t key = 1;
              const double priority = 1;
              uint32_t n = 0;
              CHECK_EQ(update_priorities(arena, arena.table(2), &key, &priority, 1, kNow, n), Status::kOk);
            }));
}

TEST(unsampled_items_of_a_queue_are_deleted_whole_and_give_their_room_back) {
  Lab lab(8);
  lab.run("delete from a queue", Holds::kOne, call([](Arena& arena) {
            const std::vector<int64_t> keys = live_keys(arena, arena.table(1));
            uint32_t n = 0;
            CHECK_EQ(delete_items(arena, arena.table(1), keys.data(), 4, kNow, n), Status::kOk);
            CHECK_EQ(n, 4u);
          }));
}

TEST(a_chunk_is_closed_early_whole_or_not_at_all) {
  Lab().run("close a chunk early", Holds::kOne, [](Arena& arena) -> std::function<void()> {
    writer_of(arena, 0, 1);
    return [&arena] {
      Hold hold(arena);
      CHECK_EQ(hold.begin(kNow), Status::kOk);
      close_chunk(hold, arena.state().used_chunks.get().tail, 1);
    };
  });
}

TEST(a_stream_opens_grows_and_closes_whole_or_not_at_all) {
  Lab().run("open", Holds::kOne, [](Arena& arena) -> std::function<void()> {
    auto* writer = new StreamWriter(arena, arena.table(0), 5);
    return [=] { CHECK_EQ(writer->open(kNow), Status::kOk); };
  });
  for (const uint32_t steps : {0u, 4u, 12u}) {  // an empty window, a growing one, one that lets its oldest chunk go
    Lab().run("take a chunk", Holds::kOne, [=](Arena& arena) -> std::function<void()> {
      Actor& actor = writer_of(arena, 0, steps);
      return [&] { CHECK_EQ(actor.writer.ensure_row(kNow), Status::kOk); };
    });
  }
  Lab().run("close", Holds::kMany, [](Arena& arena) -> std::function<void()> {
    Actor& actor = writer_of(arena, 0, 8);
    return [&] { CHECK_EQ(actor.writer.close(kNow), Status::kOk); };
  });
}

TEST(chunks_are_reclaimed_slice_by_slice_and_each_is_whole) {
  Lab lab;
  {
    Actor gone(lab.world.arena, lab.world.table(0), 8, 500);
    for (int i = 0; i < 8; ++i) gone.append();
    Hold hold(lab.world.arena);
    CHECK_EQ(hold.begin(kNow), Status::kOk);
    uint32_t blocks[3];
    CHECK(take_blocks(hold, lab.world.arena.state().used_chunks.get().tail, 3, blocks));
  }
  lab.run("reclaim", Holds::kMany, call([](Arena& arena) {
            uint32_t freed = 0;
            CHECK_EQ(reclaim(arena, kNow, freed), Status::kOk);
            CHECK(freed >= 4);
          }));
}

// There are more blocks than one hold frees. A process that dies in between leaves a chunk with fewer blocks, at the
// head of the retired list.
TEST(blocks_are_freed_slice_by_slice_and_each_is_whole) {
  ArenaSpec spec = lab_spec();
  spec.num_blocks = 270;
  CrashLab lab(spec);
  {
    Actor gone(lab.world.arena, lab.world.table(0), 2, 500);
    gone.append();
    for (const uint32_t n : {kTakeBlocks, 5u}) {
      Hold hold(lab.world.arena);
      CHECK_EQ(hold.begin(kNow), Status::kOk);
      uint32_t blocks[kTakeBlocks];
      CHECK(take_blocks(hold, lab.world.arena.state().used_chunks.get().tail, n, blocks));
    }
  }
  lab.run("reclaim a chunk of many blocks", CrashLab::Holds::kMany, call([](Arena& arena) {
            uint32_t freed = 0;
            CHECK_EQ(reclaim(arena, kNow, freed), Status::kOk);
            CHECK_EQ(freed, 1u);
            CHECK_EQ(arena.state().num_free_blocks.get(), 270u);
          }));
}

TEST(blocks_are_taken_whole_or_not_at_all) {
  Lab().run("take blocks", Holds::kOne, in_a_hold([](Hold& hold, Arena& arena) {
              uint32_t blocks[4];
              CHECK(take_blocks(hold, arena.state().used_chunks.get().head, 4, blocks));
            }));
}

TEST(eviction_for_room_goes_hold_by_hold_and_each_is_whole) {
  Lab lab(8);
  Actor hoarder(lab.world.arena, lab.world.table(0), 40, 500);
  while (lab.world.arena.state().num_free.get() > 0) hoarder.append();
  lab.run("evict for room", Holds::kMany, [](Arena& arena) -> std::function<void()> {
    Actor& actor = writer_of(arena, 0, 0);
    return [&arena, &actor] {
      uint32_t n = 0;
      const int64_t key = live_keys(arena, arena.table(1))[0];
      CHECK_EQ(delete_items(arena, arena.table(1), &key, 1, kNow, n), Status::kOk);
      const Status s = actor.writer.ensure_row(kNow);
      CHECK(s == Status::kOk || s == Status::kTimeout);
    };
  });
  Lab roomy(0);
  {
    Actor gone(roomy.world.arena, roomy.world.table(2), 2, 500);
    for (int i = 0; i < 5; ++i) gone.append(), gone.append(), gone.create(2);
  }
  Actor rest(roomy.world.arena, roomy.world.table(0), 60, 900);
  while (roomy.world.arena.state().num_free.get() > 0) rest.append();
  roomy.run("evict the oldest chunk", Holds::kMany, [](Arena& arena) -> std::function<void()> {
    Actor& actor = writer_of(arena, 2, 0);
    return [&actor] { CHECK_EQ(actor.writer.ensure_row(kNow), Status::kOk); };
  });
}

TEST(a_session_opens_and_is_reaped_slice_by_slice_and_each_is_whole) {
  Lab().run("open a session", Holds::kOne, call([](Arena& arena) {
              SessionInfo info{};
              CHECK_EQ(open_session(arena, 77, 88, 0, kNow, info), Status::kOk);
            }));
  Lab lab;
  const auto other = lab.world.client();
  Child gone([&] {
    const auto arena = lab.world.segments.attach(other->session_index(), other->session_generation());
    Actor actor(*arena, arena->table(0), 8, 500);
    for (int i = 0; i < 8; ++i) actor.append();
    Lease lease(*arena);
    Blocked blocked(*arena, arena->table(1), kSamples, kNow);
    Hold hold(*arena);
    CHECK_EQ(hold.begin(kNow), Status::kOk);
    CHECK_EQ(lease.take(hold), Status::kOk);
    lease.name(hold, 3);
    blocked.join(hold);
    hold.end();
    raise(SIGKILL);
  });
  CHECK(gone.killed());
  lab.run("reap", Holds::kMany,
          call([index = other->session_index(), generation = other->session_generation()](Arena& arena) {
            bool reaped = false;
            CHECK_EQ(close_session(arena, index, generation, kNow, reaped), Status::kOk);
            CHECK(reaped);
          }));
}

TEST(the_free_chunks_of_a_session_that_is_gone_come_back_slice_by_slice) {
  Lab lab;
  const auto other = lab.world.client();
  {
    Actor gone(*other, other->table(0), 40, 500);
    for (int i = 0; i < 20; ++i) gone.append();
  }
  uint32_t freed = 0;
  CHECK_EQ(reclaim(lab.world.arena, kNow, freed), Status::kOk);
  CHECK(other->session(other->session_index()).free_chunks.get().count >= 8);
  lab.run("reap free chunks", Holds::kMany,
          call([index = other->session_index(), generation = other->session_generation()](Arena& arena) {
            bool reaped = false;
            CHECK_EQ(close_session(arena, index, generation, kNow, reaped), Status::kOk);
          }));
  Lab poor;  // all its free chunks belong to another session
  const auto rich = poor.world.client();
  {
    Actor gone(*rich, rich->table(0), 60, 500);
    while (poor.world.arena.state().num_free.get() > 0) gone.append();
  }
  CHECK_EQ(reclaim(poor.world.arena, kNow, freed), Status::kOk);
  poor.run("steal a chunk", Holds::kMany, [](Arena& arena) -> std::function<void()> {
    auto* writer = new StreamWriter(arena, arena.table(0), 5);
    CHECK_EQ(writer->open(kNow), Status::kOk);
    return [=] { CHECK_EQ(writer->ensure_row(kNow), Status::kOk); };
  });
}

TEST(a_sleeper_joins_and_leaves_whole_or_not_at_all) {
  Lab lab;
  lab.run("join and leave", Holds::kMany, call([](Arena& arena) {
            Blocked blocked(arena, arena.table(1), kSamples, kNow);
            Hold hold(arena);
            CHECK_EQ(hold.begin(kNow), Status::kOk);
            blocked.join(hold);
            hold.end();
            CHECK_EQ(blocked.sleep(), Status::kTimeout);
          }));
  Lab(8).run("a full queue's insert times out", Holds::kMany, [](Arena& arena) -> std::function<void()> {
    Actor& actor = writer_of(arena, 1, 1);
    return [&] {
      int64_t key = 0;
      CHECK_EQ(create_item(actor.writer, arena.table(1), actor.span, 1, 1, kNow, key), Status::kTimeout);
    };
  });
}

TEST(a_lease_is_taken_and_dropped_without_a_trace_in_the_words) {
  Lab().run("lease", Holds::kOne, call([](Arena& arena) {
              Lease lease(arena);
              Hold hold(arena);
              CHECK_EQ(hold.begin(kNow), Status::kOk);
              CHECK_EQ(lease.take(hold), Status::kOk);
              for (uint32_t c = 0; c < 3; ++c) lease.name(hold, c);
              hold.end();
              lease.drop();
            }));
}

TEST(limiters_and_flags_change_whole_or_not_at_all) {
  Lab().run("limiter", Holds::kOne, call([](Arena& arena) {
              CHECK_EQ(change_limiter(arena, arena.table(0), {2.5, -1, 30, 3, true}, true, kNow), Status::kOk);
            }));
  Lab().run("pause", Holds::kOne, call([](Arena& arena) {
              CHECK_EQ(change_flags(arena, arena.table(0), kPausedInserts | kPausedSamples, 0, kNow), Status::kOk);
            }));
  Lab().run("drop", Holds::kOne, call([](Arena& arena) { CHECK_EQ(drop_tables(arena, kNow), Status::kOk); }));
}

TEST(a_rebuild_that_dies_is_begun_anew_by_the_next_locker) {
  const Operation rebuilds = call([](Arena& arena) { CHECK_EQ(rebuild(arena, kNow), Status::kOk); });
  Lab(6).run("rebuild", Holds::kUnlogged, rebuilds);
  Lab(6).run_with_deaths_in_rebuild("rebuild", rebuilds);
}

TEST(a_roll_back_that_dies_is_repeated_by_the_next_locker) {
  Lab(8).run_with_deaths_in_recovery("insert with eviction", creates(0, 3, 1.5));
  Lab lab;
  lab.run_with_deaths_in_recovery("consume", samples(1, 2));
  CrashLab::print_totals();
}

}  // namespace shmreplay::test
