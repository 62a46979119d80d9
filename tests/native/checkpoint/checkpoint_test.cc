// Checkpoints: what is restored is what was there at the instant, bit for bit where it matters. Nobody waits for a
// saver, alive or dead. Records that do not fit together are refused.
#include <algorithm>
#include <map>
#include <set>
#include <thread>

#include "arena/admission.h"
#include "arena/span.h"
#include "checkpoint/checkpoint_fixture.h"
#include "chunks/chunk_pool.h"
#include "chunks/save_lease.h"
#include "deaths/crash.h"
#include "trees/selectors.h"

namespace shmreplay::test {
namespace {

struct Shown {
  uint64_t seq, episode, insert_no;
  double priority;
  uint32_t times_sampled, num_steps;
  int64_t step;
  bool operator==(const Shown&) const = default;
};

// Every live item by its key. Looks at every byte of its rows.
std::map<int64_t, Shown> shown(const Arena& a, const TableFacts& t) {
  std::map<int64_t, Shown> items;
  for (uint32_t slot = 0; slot < t.capacity; ++slot) {
    const auto g = static_cast<uint32_t>(t.item_base + slot);
    const ItemRecord& r = a.item(g);
    if (r.seq.get() == 0) continue;
    uint64_t serial = 0;
    each_run(a, r.place.get(), r.extent.get().num_steps, [&](uint32_t chunk, uint32_t row, uint32_t n) {
      for (uint32_t i = row; i < row + n; ++i) {
        uint64_t here;
        std::memcpy(&here, a.row(chunk, 0, i), 8);
        CHECK(serial == 0 || here == serial + 1);
        serial = here;
        for (uint32_t c = 0; c < a.columns().size(); ++c) {
          if (a.columns()[c].flags == 0) CHECK(cell_shows(a.row(chunk, c, i), a.columns()[c].row_bytes, serial));
        }
      }
    });
    items[key_of(t, g, r.seq.get())] = {r.seq.get(),
                                        r.episode.get(),
                                        r.insert_no.get(),
                                        a.priority(g).get(),
                                        r.counted.get().times_sampled,
                                        r.extent.get().num_steps,
                                        r.step.get()};
  }
  return items;
}

std::vector<uint32_t> draws(Arena& a, const TableFacts& t) {
  std::vector<uint32_t> slots;
  Random random(7);
  if (t.record->size.get() == 0) return slots;
  Hold hold(a);
  CHECK_EQ(hold.begin(kNow), Status::kOk);
  for (int i = 0; i < 40; ++i)
    slots.push_back(Selector(a, t, kSampler).pick(hold, random.uniform()) - static_cast<uint32_t>(t.item_base));
  return slots;
}

ArenaSpec mixed_spec() {
  TableSpec waits = queue_table("queue", 20);
  return arena_of({open_table("prioritized", 40, kPrioritized), open_table("uniform", 30, kUniform, kUniform),
                   open_table("heap", 25, kMaxHeap, kMinHeap), waits},
                  4, 200);
}

// Some minutes of a table's life: several writers, items over several chunks, updates, samples, deletes.
void live(World& w, uint64_t seed_) {
  Random random(seed_);
  std::vector<std::unique_ptr<Actor>> actors;
  for (int i = 0; i < 3; ++i) actors.push_back(std::make_unique<Actor>(w.arena, w.table(0), 12, 1000 * (i + 1)));
  Learner learner(w.arena, seed_);
  std::vector<int64_t> keys;
  for (int step = 0; step < 400; ++step) {
    Actor& actor = *actors[random.below(3)];
    actor.append();
    const auto length =
        static_cast<uint32_t>(1 + random.below(std::min<uint64_t>(actor.writer.history().num_steps(), 9)));
    const auto table = static_cast<uint32_t>(random.below(3));
    keys.push_back(actor.create_in(w.table(table), length, random.chance(0.1) ? 0.0 : random.uniform()));
    if (w.table(3).record->size.get() < 20 && random.chance(0.2)) actor.create_in(w.table(3), length);
    if (random.chance(0.3)) {
      const double priority = random.uniform() * 9;
      uint32_t updated = 0;
      const int64_t key = keys[random.below(keys.size())];
      CHECK_EQ(update_priorities(w.arena, w.table(table), &key, &priority, 1, kNow, updated), Status::kOk);
    }
    if (random.chance(0.3)) {
      const auto sampled = static_cast<uint32_t>(random.below(4));
      if (w.table(sampled).record->size.get() > 0) learner.draw(w.table(sampled));
    }
    if (random.chance(0.05)) actor.writer.end_episode(random.chance(0.5));
    if (random.chance(0.05)) {
      uint32_t deleted = 0;
      CHECK_EQ(delete_items(w.arena, w.table(table), &keys[random.below(keys.size())], 1, kNow, deleted), Status::kOk);
    }
  }
}

void expect_same(World& w, RestoredWorld& r) {
  for (uint32_t i = 0; i < w.arena.num_tables(); ++i) {
    CHECK(shown(w.arena, w.table(i)) == shown(*r.own, r.table(i)));
    CHECK_EQ(draws(w.arena, w.table(i)), draws(*r.own, r.table(i)));
    CHECK_EQ(live_keys(w.arena, w.table(i)), live_keys(*r.own, r.table(i)));
    const TableRecord &a = *w.table(i).record, &b = *r.table(i).record;
    SavedTable before = saved_table(a), after = saved_table(b);
    each_field(before, [&](const char* name, auto& value) {
      each_field(after, [&](const char* other, auto& restored) {
        if constexpr (std::is_same_v<decltype(value), decltype(restored)>) {
          if (std::string(name) == other && !(value == restored))
            fail(__FILE__, __LINE__, std::string(name) + " differs");
        }
      });
    });
    CHECK_EQ(a.limiter.deletes.get(), b.limiter.deletes.get());
    CHECK_EQ(a.num_episodes.get(), b.num_episodes.get());
    CHECK_EQ(a.remaining_samples.get(), b.remaining_samples.get());
    CHECK_EQ(a.structure_hash.get(), b.structure_hash.get());
    for (uint64_t n = 1; n < 30; ++n) {
      CHECK_EQ(can_sample(a, n), can_sample(b, n));
      CHECK_EQ(can_insert(a, n), can_insert(b, n));
    }
  }
}

// A retired chunk that one checkpoint withholds: the arena's only item was saved and then deleted.
struct Withheld {
  explicit Withheld(uint32_t num_chunks = 3)
      : world(arena_of({open_table("a", 10)}, 1, num_chunks)), save(*world.daemon) {
    const int64_t key = Actor(world.arena, world.table()).insert();
    session = open_own_session(*world.daemon);
    bool busy = false;
    CHECK_EQ(save.take(session.index, session.generation, kWhatever, busy), Status::kOk);
    uint32_t deleted = 0;
    CHECK_EQ(delete_items(world.arena, world.table(), &key, 1, kNow, deleted), Status::kOk);
    CHECK_EQ(deleted, 1u);
  }

  uint32_t reclaimed() {
    uint32_t freed = 0;
    CHECK_EQ(reclaim(world.arena, kNow, freed), Status::kOk);
    return freed;
  }

  World world;
  CheckpointSave save;
  SessionInfo session{};
};

}  // namespace

TEST(a_restored_arena_has_the_same_items_order_draws_and_verdicts) {
  const uint64_t first = seed();
  for (uint64_t i = 0; i < (kSanitized ? 3 : 20); ++i) {
    World w(mixed_spec());
    live(w, first + i);
    const SavedArena saved = save_arena(*w.daemon, i % 2 == 0 ? CheckpointSave::kMinRoom : 1 << 16);
    RestoredWorld r(mixed_spec(), saved);
    check_healthy(*r.daemon);
    expect_same(w, r);
    // The same holds for an arena that is saved again.
    RestoredWorld again(mixed_spec(), save_arena(*r.daemon));
    expect_same(w, again);
  }
}

// Checks every live item of a table as a reader gets it: rows, values in the heap, mutable cells, what items brought.
void check_delivered(Arena& a, const TableFacts& t) {
  const std::vector<int64_t> keys = live_keys(a, t);
  if (keys.empty()) return;
  Batch batch(a, static_cast<int64_t>(keys.size()));
  SampleCall call(a);
  std::vector<uint32_t> found(keys.size());
  CHECK_EQ(call.get(t, keys.data(), static_cast<uint32_t>(keys.size()), kNow, batch, found.data()).done, keys.size());
  batch.check_rows();
}

TEST(values_in_the_heap_mutable_cells_and_what_items_bring_are_restored) {
  const ArenaSpec spec = with_values(mixed_spec(), 8000);
  const uint64_t first = seed();
  for (uint64_t i = 0; i < (kSanitized ? 2 : 10); ++i) {
    World w(spec);
    live(w, first + i);
    const SavedArena saved = save_arena(*w.daemon, i % 2 == 0 ? CheckpointSave::kMinRoom : 1 << 16);
    RestoredWorld r(spec, saved);
    check_healthy(*r.daemon);
    expect_same(w, r);
    for (uint32_t t = 0; t < w.arena.num_tables(); ++t) {
      check_delivered(w.arena, w.table(t));
      check_delivered(*r.own, r.table(t));
    }
    // Its chunks and blocks can be used on.
    Actor actor(*r.own, r.table(), 12, 1 << 20);
    for (int n = 0; n < 100; ++n) {
      actor.append();
      actor.create(1 + static_cast<uint32_t>(n % 3 < static_cast<int>(actor.writer.history().num_steps()) ? n % 3 : 0));
    }
    check_delivered(*r.own, r.table());
    check_healthy(*r.daemon);
  }
}

TEST(an_empty_arena_is_restored_empty) {
  World w(mixed_spec());
  RestoredWorld r(mixed_spec(), save_arena(*w.daemon));
  CHECK_EQ(live_items(r.table()), 0u);
  Actor actor(*r.own, r.table());
  actor.insert();
  check_healthy(*r.daemon);
}

TEST(keys_given_out_after_the_checkpoint_hit_nothing_after_a_restore) {
  const ArenaSpec spec = arena_of({open_table("a", 6)}, 1, 40);
  World w(spec);
  Actor actor(w.arena, w.table());
  for (int i = 0; i < 5; ++i) actor.insert();
  const SavedArena saved = save_arena(*w.daemon);
  std::set<int64_t> lost;
  for (int i = 0; i < 50; ++i) lost.insert(actor.insert());
  for (int life = 0; life < 20; ++life) {
    RestoredWorld r(spec, saved);
    const uint64_t jump = r.daemon->state().next_seq.get() - saved.next_seq;
    CHECK(jump >= uint64_t{1} << 40 && jump <= uint64_t{1} << 41);
    Actor next(*r.own, r.table());
    for (int i = 0; i < 50; ++i) CHECK(!lost.contains(next.insert()));
    std::vector<int64_t> keys = live_keys(*r.own, r.table());
    CHECK(std::is_sorted(keys.begin(), keys.end()));
  }
}

TEST(a_large_table_keeps_its_sorted_keys_in_insertion_order_over_a_restore) {
  const ArenaSpec spec = arena_of({open_table("a", 1 << 17)}, 1, 40);
  World w(spec);
  Actor(w.arena, w.table()).insert();
  const SavedArena saved = save_arena(*w.daemon);
  for (int life = 0; life < 6; ++life) {
    RestoredWorld r(spec, saved);
    Actor(*r.own, r.table()).insert();
    const std::vector<int64_t> keys = live_keys(*r.own, r.table());
    CHECK_EQ(keys.size(), 2u);
    CHECK(keys[0] < keys[1]);
  }
}

TEST(a_chunk_that_awaits_its_copy_is_not_freed_and_is_once_copied) {
  Withheld w;
  CHECK_EQ(w.reclaimed(), 0u);
  SavedArena saved;
  CHECK(save_rest(w.save, 1 << 16, kWhatever, saved));
  CHECK_EQ(w.reclaimed(), 1u);
  RestoredWorld r(arena_of({open_table("a", 10)}, 1, 3), saved);
  CHECK_EQ(shown(*r.own, r.table()).size(), 1u);
}

TEST(a_writer_that_finds_nothing_else_takes_what_a_checkpoint_withholds) {
  Withheld w;
  Actor second(w.world.arena, w.world.table(), 8);  // its window keeps every chunk it takes
  second.append();
  second.append();  // takes the last chunks but the withheld one
  CHECK_EQ(w.world.daemon->state().num_free.get(), 0u);
  second.append();
  CHECK(!is_being_saved(*w.world.daemon));
  SavedArena saved;
  CHECK(!save_rest(w.save, 1 << 16, kWhatever, saved));
  check_healthy(*w.world.daemon);
}

TEST(two_savers_of_one_arena_do_not_meet) {
  Withheld w;
  const SessionInfo other = open_own_session(*w.world.daemon);
  CheckpointSave second(*w.world.daemon);
  bool busy = false;
  CHECK_EQ(second.take(other.index, other.generation, kWhatever, busy), Status::kOk);
  CHECK(busy);
  CHECK(is_saving(*w.world.daemon, w.session.index, w.session.generation));
}

TEST(a_session_that_ends_withholds_nothing_for_a_checkpoint) {
  Withheld w;
  bool reaped = false;
  CHECK_EQ(close_session(*w.world.daemon, w.session.index, w.session.generation, kWhatever, reaped), Status::kOk);
  CHECK_EQ(w.reclaimed(), 1u);
  SavedArena saved;
  CHECK(!save_rest(w.save, 1 << 16, kWhatever, saved));
}

TEST(a_reset_under_way_is_finished_before_the_instant) {
  World w(arena_of({open_table("a", 100)}, 4, 64));
  Actor actor(w.arena, w.table());
  for (int i = 0; i < 60; ++i) actor.insert();
  {
    Hold hold(w.arena);
    CHECK_EQ(hold.begin(kNow), Status::kOk);
    set_flags(hold, w.table(), kResetting, 0);
    CHECK(!reset_slice(hold, w.table()));
  }
  RestoredWorld r(arena_of({open_table("a", 100)}, 4, 64), save_arena(*w.daemon));
  CHECK_EQ(live_items(r.table()), 0u);
  CHECK_EQ(r.table().record->limiter.inserts.get(), 0u);
}

TEST(a_saver_killed_at_any_point_leaves_the_index_as_it_is_and_its_lease_goes) {
  CrashLab lab(arena_of({open_table("a", 20), queue_table("b", 10)}, 2, 40));
  Actor actor(lab.world.arena, lab.world.table(), 4);
  for (int i = 0; i < 30; ++i) {
    actor.append();
    actor.create(i == 0 ? 1 : 1 + static_cast<uint32_t>(i) % 2);
  }
  lab.run("checkpoint", CrashLab::Holds::kOne, [](Arena& arena) -> std::function<void()> {
    auto* save = new CheckpointSave(arena);
    auto* saved = new SavedArena;
    return [&arena, save, saved] {
      bool busy = false;
      CHECK_EQ(save->take(arena.session_index(), arena.session_generation(), kWhatever, busy), Status::kOk);
      CHECK(save_rest(*save, CheckpointSave::kMinRoom, kWhatever, *saved));
    };
  });
  CrashLab::print_totals();
}

TEST(concurrent_writers_and_a_checkpoint_at_one_instant) {
  // One writer feeds two tables in turn, and another overwrites a third; each item's rows show its serial.
  const auto spec = [] {
    return arena_of(
        {open_table("first", 60), open_table("second", 60), open_table("third", 50, kPrioritized, kUniform)}, 4, 400);
  };
  World w(spec());
  std::unique_ptr<Arena> other = w.client();
  std::atomic<bool> stop{false};
  std::atomic<uint64_t> rounds{0};
  const int wanted = kSanitized ? 4 : 40;
  run_threads({
      [&] {
        Actor actor(w.arena, w.table(0), 8);
        while (!stop.load()) {
          actor.append();
          actor.create_in(w.table(0), 1);
          actor.create_in(w.table(1), static_cast<uint32_t>(std::min<uint64_t>(actor.writer.history().num_steps(), 6)));
          rounds.fetch_add(1);
        }
      },
      [&] {
        Actor actor(*other, other->table(2), 0, 1u << 20);
        Random random(3);
        while (!stop.load()) actor.insert(random.uniform());
      },
      [&] {
        try {
          for (int i = 0; i < wanted; ++i) {
            const uint64_t before = rounds.load();
            until([&] { return rounds.load() > before + 20; });
            const SessionInfo session = open_own_session(*w.daemon);
            SavedArena saved;
            CheckpointSave save(*w.daemon);
            bool busy = false;
            CHECK_EQ(save.take(session.index, session.generation, kWhatever, busy), Status::kOk);
            if (save_rest(save, CheckpointSave::kMinRoom, kWhatever, saved)) {
              RestoredWorld r(spec(), saved);
              const int64_t first = r.table(0).record->limiter.inserts.get(),
                            second = r.table(1).record->limiter.inserts.get();
              CHECK(first == second || first == second + 1);
              const auto items = shown(*r.own, r.table(0));
              CHECK_EQ(items.size(), std::min<uint64_t>(static_cast<uint64_t>(first), 60));
              uint64_t oldest = UINT64_MAX, newest = 0;
              for (const auto& [key, item] : items) {
                oldest = std::min(oldest, item.insert_no);
                newest = std::max(newest, item.insert_no);
              }
              CHECK_EQ(newest, static_cast<uint64_t>(first));
              CHECK_EQ(newest - oldest + 1, items.size());
              shown(*r.own, r.table(1));
              shown(*r.own, r.table(2));
            }
            bool reaped = false;
            CHECK_EQ(close_session(*w.daemon, session.index, session.generation, kWhatever, reaped), Status::kOk);
          }
        } catch (...) {
          stop.store(true);
          throw;
        }
        stop.store(true);
      },
  });
  check_healthy(*w.daemon);
}

TEST(records_that_do_not_fit_together_are_refused) {
  const ArenaSpec spec = with_values(mixed_spec(), 8000);
  World w(spec);
  live(w, 5);
  const SavedArena whole = save_arena(*w.daemon, 1 << 20);
  Random random(seed());
  uint32_t refused = 0;
  for (int i = 0; i < (kSanitized ? 60 : 600); ++i) {
    SavedArena changed = whole;
    auto& [slice, bytes] = changed.slices[random.below(changed.slices.size())];
    if (bytes.empty()) continue;
    if (random.chance(0.2)) bytes.resize(random.below(bytes.size()));
    else bytes[random.below(bytes.size())] ^= static_cast<char>(1u << random.below(8));
    try {
      RestoredWorld r(spec, changed);
      check_healthy(*r.daemon);  // a changed byte that no other byte contradicts: of a row, of a counter
    } catch (const RestoreError&) {
      ++refused;
    }
  }
  CHECK(refused > 0);
}

}  // namespace shmreplay::test
