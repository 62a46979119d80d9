// Leases, room and call slots in every order: what a reader has named stays, and who waits for it is woken.
#include "chunks/chunk_pool.h"
#include "chunks/leases.h"
#include "explorer/explored_arena.h"
#include "sessions/call_slot_wait.h"
#include "support/harness.h"
#include "write/room.h"

using namespace shmreplay;
using namespace shmreplay::explorer;

namespace {

// One chunk, which an item refers to.
class Pool {
 public:
  explicit Pool(const std::vector<std::string>& names) : world(names, queue_of(1), 1) {
    Hold hold(world.checker());
    CHECK_EQ(hold.begin({}), Status::kOk);
    const uint32_t chunk = take_chunk(hold, kNone, 1, kNone);
    CHECK_EQ(chunk, 0u);
    add_item_refs(hold, chunk, 1, true);
    drop_window_ref(hold, chunk);
  }

  // Names the chunk while an item refers to it, reads it, and drops the lease.
  void read() {
    Arena& a = world.arena(self());
    Lease lease(a);
    uint32_t generation;
    {
      Hold hold(a);
      require(hold.begin({}) == Status::kOk, "a hold could not begin");
      if (a.chunk(0).refs.get().items == 0) return;
      require(lease.take(hold) == Status::kOk, "no call slot is free");
      lease.name(hold, 0);
      generation = a.chunk(0).life.get().generation;
    }
    for (int i = 0; i < 2; ++i) {
      const ChunkLife life = a.chunk(0).life.get();
      require(life.state != kChunkFree && life.generation == generation, "a chunk was reused under its reader");
    }
    lease.drop();
  }

  // The item goes.
  void evict() {
    Arena& a = world.arena(self());
    Hold hold(a);
    require(hold.begin({}) == Status::kOk, "a hold could not begin");
    if (a.chunk(0).refs.get().items > 0) drop_item_refs(hold, 0, 1, true);
  }

  // Takes the chunk as a writer does, and waits for it without a timeout; then gives it back.
  void write() {
    Arena& a = world.arena(self());
    uint32_t chunk = kNone;
    const auto try_take = [&](Take take, bool& done) {
      Hold hold(a);
      if (const Status s = hold.begin({}); s != Status::kOk) return s;
      chunk = (take == Take::kOwn ? take_chunk : steal_chunk)(hold, a.session_index(), 2, kNone);
      done = chunk != kNone;
      return Status::kOk;
    };
    const Wait wait;
    const Status s = take_room(
        a, world.table(self()), wait, try_take, [] { return false; }, [&a] { return a.state().num_free.get() > 0; });
    require(s == Status::kOk, "a writer got no chunk");
    Hold hold(a);
    require(hold.begin({}) == Status::kOk, "a hold could not begin");
    drop_window_ref(hold, chunk);
  }

  // Drops nothing that a living process still has, and keeps nothing of anybody who has left.
  std::string verdict(uint32_t taker) {
    Arena& a = world.checker();
    if (a.failed()) return "the segment is marked failed";
    for (uint32_t i = 0; i < ExploredArena::kSlots; ++i) {
      const CallOwner owner = a.call(ExploredArena::call_slot(i)).owner.load();
      if (owner.session_plus_1 == 0) continue;
      if (world.explorer.life(owner.session_plus_1 - 1) != Life::kDead) return "a call has ended and kept its slot";
      if (world.explorer.life(taker) == Life::kDone && a.call(ExploredArena::call_slot(i)).count.load() != 0)
        return "a writer got a chunk, and the lease on it still stands";
    }
    return {};
  }

  // Each writer drops the item and takes its chunk, while a reader reads it. `are_immortal`: as of Explorer::process.
  void explore_writers(const std::vector<const char*>& writers, bool are_immortal, const Budget& budget) {
    for (const char* name : writers) {
      world.explorer.process(
          name,
          [this] {
            evict();
            write();
          },
          are_immortal);
    }
    world.explorer.process("reader", [this] { read(); });
    world.explorer.at_end = [this] { return verdict(0); };
    explore(world.explorer, budget);
  }

  ExploredArena world;
};

}  // namespace

TEST(a_writer_that_waits_for_a_chunk_is_woken_by_the_reader_that_drops_it) {
  Pool pool({"writer", "reader"});
  pool.explore_writers({"writer"}, false, {});
}

TEST(two_writers_wait_for_the_chunk_of_a_reader_and_both_get_it) {
  if (!is_long()) return;
  Pool pool({"writer 1", "writer 2", "reader"});
  Budget b;
  b.preemptions = 2;
  pool.explore_writers({"writer 1", "writer 2"}, false, b);
}

TEST(a_reader_dies_at_any_step_and_the_writer_gets_its_chunk) {
  Pool pool({"writer", "reader"});
  Budget b;
  b.deaths = 1;
  pool.explore_writers({"writer"}, true, b);
}

TEST(a_reader_that_is_stopped_at_any_step_withholds_its_chunk_until_it_goes_on) {
  Pool pool({"writer", "reader"});
  Budget b;
  b.stops = 1;
  b.slices = 4;
  b.slices_are_enough = false;  // the writer has no timeout: it waits until the reader goes on
  pool.explore_writers({"writer"}, true, b);
}

TEST(two_readers_and_one_call_slot_each_is_woken_when_it_is_free) {
  Pool pool({"reader 1", "reader 2"});
  Arena& checker = pool.world.checker();
  // All slots but one are taken for good, by the daemon.
  for (uint32_t i = 1; i < checker.geometry().num_call_slots; ++i) checker.call(i).owner.store({kNone, 0});
  for (const char* name : {"reader 1", "reader 2"}) {
    pool.world.explorer.process(name, [&pool] {
      Arena& a = pool.world.arena(self());
      Lease lease(a);
      for (;;) {
        {
          Hold hold(a);
          require(hold.begin({}) == Status::kOk, "a hold could not begin");
          if (lease.take(hold) == Status::kOk) break;
        }
        require(wait_for_call_slot(a, {}) == Status::kOk, "no call slot came free");
      }
      lease.drop();
    });
  }
  explore(pool.world.explorer, {});
}
