#include "write/room.h"

#include <csignal>
#include <sys/wait.h>

#include "chunks/leases.h"
#include "support/fixtures.h"

namespace shmreplay::test {
namespace {

const Wait kTry{kForever, nullptr, true};

uint64_t evicted_for_room(World& w, uint32_t table = 0) { return w.table(table).record->evicted_for_room.get(); }

ArenaSpec one_table(TableSpec table, uint32_t chunk_steps, uint32_t num_chunks) {
  return arena_of({std::move(table)}, chunk_steps, num_chunks);
}

}  // namespace

TEST(when_chunks_run_out_the_oldest_chunk_goes_with_its_items) {
  World w(one_table(open_table("a", 1000), 4, 6));
  Actor actor(w.arena, w.table());
  std::vector<int64_t> keys;
  for (int i = 0; i < 24; ++i) keys.push_back(actor.insert());
  CHECK_EQ(evicted_for_room(w), 0u);
  keys.push_back(actor.insert());
  CHECK_EQ(evicted_for_room(w), 4u);
  for (size_t i = 0; i < keys.size(); ++i) CHECK_EQ(find_item(w.arena, w.table(), keys[i]) == kNone, i < 4);
  for (int i = 0; i < 1000; ++i) actor.insert();
  CHECK_EQ(live_items(w.table()) + evicted_for_room(w), 1025u);
  check_healthy(w.arena);
}

TEST(items_of_a_consuming_table_are_never_evicted_for_room) {
  World w(arena_of({open_table("a", 1000), queue_table("q", 1000)}, 4, 6));
  Actor a(w.arena, w.table(0)), q(w.arena, w.table(1));
  for (int i = 0; i < 12; ++i) q.insert();
  for (int i = 0; i < 200; ++i) a.insert();
  CHECK_EQ(live_items(w.table(1)), 12u);
  CHECK_EQ(evicted_for_room(w, 1), 0u);
  CHECK(evicted_for_room(w, 0) > 0);
  // The queue's writer may take the room of the other table's items. After that it must wait.
  int64_t key = 0;
  Status s = Status::kOk;
  for (int i = 0; i < 50 && s == Status::kOk; ++i) s = q.try_insert(1, kNow, key);
  CHECK_EQ(s, Status::kTimeout);
  check_healthy(w.arena);
}

TEST(a_table_that_does_not_evict_says_that_the_arena_is_full) {
  TableSpec keeping = open_table("a", 1000);
  keeping.on_full = kOnFullError;
  World w(one_table(keeping, 4, 3));
  Actor actor(w.arena, w.table());
  for (int i = 0; i < 12; ++i) actor.insert();
  int64_t key = 0;
  CHECK_EQ(actor.try_insert(1, kWhatever, key), Status::kArenaFull);
  CHECK_EQ(live_items(w.table()), 12u);
  CHECK_EQ(reset_table(w.arena, w.table(), kNow), Status::kOk);
  actor.insert();
  check_healthy(w.arena);
}

TEST(a_writer_that_waits_for_a_chunk_gets_the_one_that_a_consumer_empties) {
  World w(one_table(queue_table("q", 1000), 4, 4));
  consume_what_a_full_queue_holds_up(w, 300);
}

TEST(a_writer_that_waits_for_a_chunk_reaps_the_dead_that_hold_them) {
  World w(one_table(queue_table("q", 1000), 4, 4));
  Child child([&] {
    const SessionInfo info = open_own_session(*w.segments.attach());
    const auto arena = w.segments.attach(info.index, info.generation);
    Actor actor(*arena, arena->table(0), 12);
    for (int i = 0; i < 16; ++i) actor.append();
    raise(SIGKILL);
  });
  CHECK(child.killed());
  CHECK_EQ(w.arena.state().num_free.get(), 0u);
  Actor actor(w.arena, w.table());
  int64_t key = 0;
  CHECK_EQ(actor.try_insert(1, kWhatever, key), Status::kOk);
  check_healthy(w.arena);
}

TEST(a_writer_that_waits_for_a_chunk_is_woken_when_a_stream_closes_over_items_that_can_go) {
  World w(one_table(open_table("a", 1000), 4, 3));
  Actor closing(w.arena, w.table(), 12);
  for (int i = 0; i < 12; ++i) closing.append();
  closing.create(12);  // an item over all chunks there are: closing retires none
  const auto writer = [&] {
    StreamWriter waiting(w.arena, w.table(), 0);
    CHECK_EQ(waiting.open(kWhatever), Status::kOk);
    CHECK_EQ(waiting.ensure_row(kWhatever), Status::kOk);
  };
  const auto closer = [&] {
    until([&] { return w.arena.state().chunk_waiters.load() != 0; });
    CHECK_EQ(closing.writer.close(kWhatever), Status::kOk);
    CHECK_EQ(w.arena.state().chunk_waiters.load(), 0u);
  };
  run_threads({writer, closer});
  check_healthy(w.arena);
}

// The queue's items of the chunk are deleted. Those of the table that evicts stay, and may be evicted for the waiting
// writer.
TEST(a_writer_that_waits_for_a_chunk_is_woken_when_the_last_item_that_must_stay_is_deleted) {
  World w(arena_of({open_table("a", 1000), queue_table("q", 1000)}, 4, 3));
  Actor actor(w.arena, w.table(), 1);  // its window keeps the second and the third chunk
  for (int i = 0; i < 12; ++i) {
    actor.append();
    actor.create(1);
    if (i < 4) actor.create_in(w.table(1), 1);
  }
  const auto writer = [&] {
    StreamWriter waiting(w.arena, w.table(), 0);
    CHECK_EQ(waiting.open(kWhatever), Status::kOk);
    CHECK_EQ(waiting.ensure_row(kWhatever), Status::kOk);
  };
  const auto deleter = [&] {
    const std::vector<int64_t> keys = live_keys(w.arena, w.table(1));
    until([&] { return w.arena.state().chunk_waiters.load() != 0; });
    uint32_t deleted = 0;
    CHECK_EQ(delete_items(w.arena, w.table(1), keys.data(), 4, kWhatever, deleted), Status::kOk);
    CHECK_EQ(deleted, 4u);
    CHECK_EQ(w.arena.state().chunk_waiters.load(), 0u);
  };
  run_threads({writer, deleter});
  check_healthy(w.arena);
}

TEST(a_writer_that_waits_for_a_chunk_is_told_that_the_table_was_dropped) {
  World w(one_table(queue_table("q", 1000), 4, 2));
  const auto writer = [&] {
    Actor actor(w.arena, w.table());
    int64_t key = 0;
    for (int i = 0; i < 8; ++i) actor.insert();
    CHECK_EQ(actor.try_insert(1, kWhatever, key), Status::kClosed);
  };
  const auto dropper = [&] {
    until([&] { return w.arena.state().chunk_waiters.load() != 0; });
    CHECK_EQ(drop_tables(*w.daemon, kWhatever), Status::kOk);
  };
  run_threads({writer, dropper});
}

TEST(without_patience_a_full_arena_is_a_timeout_and_the_call_may_be_repeated) {
  World w(one_table(queue_table("q", 1000), 4, 2));
  Actor actor(w.arena, w.table());
  int64_t key = 0;
  for (int i = 0; i < 8; ++i) actor.insert();
  CHECK_EQ(actor.try_insert(1, kTry, key), Status::kTimeout);
  CHECK_EQ(actor.try_insert(1, kNow, key), Status::kTimeout);
  Learner learner(w.arena);
  for (int i = 0; i < 4; ++i) learner.draw(w.table());
  actor.insert();
  CHECK_EQ(actor.next_serial(), 10u);
}

TEST(a_stopped_reader_withholds_its_own_chunks_and_no_others) {
  World w(one_table(open_table("a", 12), 4, 6));
  Actor actor(w.arena, w.table());
  for (int i = 0; i < 12; ++i) actor.insert();
  Lease lease(w.arena);
  uint32_t named;
  {
    Hold hold(w.arena);
    CHECK_EQ(hold.begin(kNow), Status::kOk);
    CHECK_EQ(lease.take(hold), Status::kOk);
    named = w.arena.state().used_chunks.get().head;
    lease.name(hold, named);
  }
  const uint32_t generation = w.arena.chunk(named).life.get().generation;
  for (int i = 0; i < 1000; ++i) actor.insert();
  CHECK_EQ(w.arena.chunk(named).life.get().generation, generation);
  CHECK_EQ(evicted_for_room(w), 0u);
  uint64_t first;
  std::memcpy(&first, w.arena.row(named, 0, 0), 8);
  CHECK_EQ(first, 1u);  // the reader still sees what it named
  lease.drop();
  for (int i = 0; i < 100; ++i) actor.insert();
  CHECK(w.arena.chunk(named).life.get().generation > generation);
  check_healthy(w.arena);
}

// Nobody has noticed the death: no daemon runs. Five chunks are enough for the items and a lease, four are not.
TEST(before_items_are_evicted_for_room_the_leases_of_dead_readers_are_taken_back) {
  for (const bool dies : {true, false}) {
    World w(one_table(open_table("a", 12), 4, 4));
    Actor actor(w.arena, w.table());
    for (int i = 0; i < 12; ++i) actor.insert();
    Child reader([&] {
      const SessionInfo info = open_own_session(*w.segments.attach());
      const auto arena = w.segments.attach(info.index, info.generation);
      Lease lease(*arena);
      {
        Hold hold(*arena);
        CHECK_EQ(hold.begin(kNow), Status::kOk);
        CHECK_EQ(lease.take(hold), Status::kOk);
        lease.name(hold, arena->state().used_chunks.get().head);
      }
      raise(SIGSTOP);
    });
    CHECK_EQ(waitpid(reader.pid(), nullptr, WUNTRACED), reader.pid());
    if (dies) {
      reader.send(SIGKILL);
      CHECK(reader.killed());
    }
    for (int i = 0; i < 200; ++i) actor.insert();
    CHECK_EQ(evicted_for_room(w) == 0, dies);
    CHECK_EQ(live_sessions(w.arena).size(), dies ? 1u : 2u);
    check_healthy(w.arena);
  }
}

TEST(a_writer_that_evicts_for_room_tells_its_caller) {
  World w(one_table(open_table("a", 1000), 4, 6));
  class Told final : public Patience {
   public:
    bool interrupted() noexcept override { return false; }
    void lock_stuck(uint32_t, int64_t) noexcept override {}
    void still_blocked(int64_t) noexcept override {}
    void evicted_for_room() noexcept override { ++times; }
    int times = 0;
  } told;
  Actor actor(w.arena, w.table());
  int64_t key = 0;
  for (int i = 0; i < 24; ++i) CHECK_EQ(actor.try_insert(1, {kForever, &told}, key), Status::kOk);
  CHECK_EQ(told.times, 0);
  CHECK_EQ(actor.try_insert(1, {kForever, &told}, key), Status::kOk);
  CHECK_EQ(told.times, 1);
}

}  // namespace shmreplay::test
