// What the death of one process means to the others: they are woken, they lose no room, they see no torn row.
#include <csignal>
#include <unistd.h>

#include "arena/admission.h"
#include "chunks/leases.h"
#include "items/news.h"
#include "support/fixtures.h"

namespace shmreplay::test {
namespace {

constexpr uint32_t kSize = 3;

ArenaSpec small_queue() {
  ArenaSpec s = arena_of({queue_table("q", kSize)}, 2, 24);
  s.max_sessions = 16;
  return s;
}

// Runs `act` in a child with a session of its own that dies at the k-th point. Answers whether it died.
bool die_at(World& w, int64_t k, const std::function<void(Arena&)>& act) {
  Child child([&] {
    const SessionInfo info = open_own_session(*w.segments.attach());
    const auto arena = w.segments.attach(info.index, info.generation);
    fault::arm(k);
    act(*arena);
    fault::arm(0);
    _exit(0);
  });
  return child.killed();
}

void reap_the_dead(World& w) {
  uint32_t reaped = 0;
  CHECK_EQ(reap_dead_sessions(*w.daemon, kWhatever, reaped), Status::kOk);
}

void insert_one(Arena& arena) {
  Actor actor(arena, arena.table(0));
  int64_t key = 0;
  const Status s = actor.try_insert(1, kNow, key);
  CHECK(s == Status::kOk || s == Status::kTimeout);
}

void draw_one(Arena& arena) {
  Learner learner(arena);
  Batch batch(arena, 1);
  const Status s = learner.sample(arena.table(0), 1, batch).status;
  CHECK(s == Status::kOk || s == Status::kTimeout);
}

uint32_t fill(World& w) {
  Actor actor(w.arena, w.table());
  int64_t key = 0;
  uint32_t n = 0;
  while (actor.try_insert(1, kNow, key) == Status::kOk) ++n;
  return n;
}

uint32_t empty(World& w) {
  Learner learner(w.arena);
  uint32_t n = 0;
  for (;; ++n) {
    Batch batch(w.arena, 1);
    if (learner.sample(w.table(), 1, batch).status != Status::kOk) return n;
  }
}

// Where a fork costs milliseconds, only every stride-th point is run; in a plain build all are.
constexpr int64_t kStride = kSanitized ? 11 : 1;

}  // namespace

TEST(a_queue_admits_as_many_as_ever_after_deaths_of_consumers_at_every_point) {
  World w(small_queue());
  int64_t k = 1;
  for (bool died = true; died; k += kStride) {
    fill(w);
    CHECK_EQ(live_items(w.table()), kSize);
    died = die_at(w, k, draw_one);
    reap_the_dead(w);
    check_healthy(w.arena);
    const uint64_t left = live_items(w.table());
    CHECK(left == kSize || left == kSize - 1);
    CHECK_EQ(fill(w), kSize - left);
    CHECK_EQ(empty(w), kSize);  // and its consumers lack none either
  }
  CHECK(k > 20);
}

TEST(a_queue_admits_as_many_as_ever_after_deaths_of_actors_at_every_point) {
  World w(small_queue());
  int64_t k = 1;
  for (bool died = true; died; k += kStride) {
    died = die_at(w, k, insert_one);
    reap_the_dead(w);
    check_healthy(w.arena);
    const uint64_t there = live_items(w.table());
    CHECK(there <= 1);
    CHECK_EQ(fill(w), kSize - there);
    CHECK_EQ(empty(w), kSize);
    CHECK_EQ(w.arena.state().num_used.get(), 0u);  // no chunk is lost with its writer
  }
  CHECK(k > 20);
}

// The dead process owed a wake, or did not hand one on. The roll-back makes that good, or the sleeper's own look does.
TEST(a_blocked_consumer_gets_an_item_whatever_becomes_of_the_actors) {
  World w(small_queue());
  int64_t k = 1;
  for (bool died = true; died; k += kStride) {
    Child consumer([&] {
      const SessionInfo info = open_own_session(*w.segments.attach());
      const auto arena = w.segments.attach(info.index, info.generation);
      Learner learner(*arena);
      Batch batch(*arena, 1);
      CHECK_EQ(learner.sample(arena->table(0), 1, batch, kWhatever).status, Status::kOk);
      batch.check_rows();
      _exit(0);
    });
    until([&] { return sleepers(w.table(), kSamples) == 1; });
    died = die_at(w, k, insert_one);
    const uint64_t inserted = w.table().record->limiter.inserts.get();
    {
      Hold hold(w.arena);
      CHECK_EQ(hold.begin(kWhatever), Status::kOk);  // rolls back, if there is something to roll back
    }
    if (w.table().record->limiter.inserts.get() < inserted || live_items(w.table()) == 0) insert_one(w.arena);
    consumer.join();
    reap_the_dead(w);
    check_healthy(w.arena);
    empty(w);
  }
}

TEST(a_blocked_actor_gets_its_room_whatever_becomes_of_the_consumers) {
  World w(small_queue());
  int64_t k = 1;
  for (bool died = true; died; k += kStride) {
    fill(w);
    Child actor([&] {
      const SessionInfo info = open_own_session(*w.segments.attach());
      const auto arena = w.segments.attach(info.index, info.generation);
      Actor a(*arena, arena->table(0));
      int64_t key = 0;
      CHECK_EQ(a.try_insert(1, kWhatever, key), Status::kOk);
      _exit(0);
    });
    until([&] { return sleepers(w.table(), kInserts) == 1; });
    died = die_at(w, k, draw_one);
    {
      Hold hold(w.arena);
      CHECK_EQ(hold.begin(kWhatever), Status::kOk);
    }
    if (can_insert(*w.table().record, 1) || live_items(w.table()) == kSize) draw_one(w.arena);
    actor.join();
    reap_the_dead(w);
    check_healthy(w.arena);
    empty(w);
  }
}

// The same for news, which nobody hands on: all sleepers are woken, or look again.
TEST(a_wait_for_an_insert_ends_with_one_whatever_happens_to_the_actors) {
  World w(arena_of({open_table("weights", 1)}, 1, 12));
  int64_t k = 1;
  for (bool died = true; died; k += kStride) {
    const uint64_t seen = num_inserts(*w.table().record);
    Child reader([&] {
      const SessionInfo info = open_own_session(*w.segments.attach());
      const auto arena = w.segments.attach(info.index, info.generation);
      uint64_t found = 0;
      CHECK_EQ(wait_for_insert(*arena, arena->table(0), seen, kWhatever, found), Status::kOk);
      CHECK_EQ(found, seen + 1);
      _exit(0);
    });
    until([&] { return w.table().record->news.is_awaited.load() == 1; });
    died = die_at(w, k, insert_one);
    {
      Hold hold(w.arena);
      CHECK_EQ(hold.begin(kWhatever), Status::kOk);  // rolls back, if there is something to roll back
    }
    if (num_inserts(*w.table().record) == seen) insert_one(w.arena);
    reader.join();
    reap_the_dead(w);
    check_healthy(w.arena);
  }
  CHECK(k > 20);
}

TEST(a_sleeper_that_dies_is_counted_off_when_it_is_reaped) {
  World w(small_queue());
  Child consumer([&] {
    const SessionInfo info = open_own_session(*w.segments.attach());
    const auto arena = w.segments.attach(info.index, info.generation);
    Learner learner(*arena);
    Batch batch(*arena, 1);
    learner.sample(arena->table(0), 1, batch, kWhatever);
  });
  until([&] { return sleepers(w.table(), kSamples) == 1; });
  consumer.send(SIGKILL);
  CHECK(consumer.killed());
  CHECK_EQ(sleepers(w.table(), kSamples), 1u);
  reap_the_dead(w);
  CHECK_EQ(sleepers(w.table(), kSamples), 0u);
  check_healthy(w.arena);
}

// Leases of dead readers end with their sessions. Until then their chunks are withheld, and no others.
TEST(a_reader_that_dies_in_its_gather_gives_its_chunks_back) {
  World w(arena_of({open_table("a", 100)}, 2, 24));
  Actor actor(w.arena, w.table());
  for (int i = 0; i < 20; ++i) actor.insert();
  class Dies final : public BatchSink {
   public:
    bool prepare(const Pattern&, const uint32_t*, int64_t) noexcept override {
      raise(SIGKILL);
      return false;
    }
    std::vector<OutputBuffer>& outputs() noexcept override { return none_; }
    void describe(int64_t, const Pick*, uint32_t) noexcept override {}

   private:
    std::vector<OutputBuffer> none_;
  };
  CHECK(die_at(w, 0, [](Arena& arena) {
    Dies sink;
    SampleCall call(arena);
    const std::vector<double> uniforms(30, 0.0);
    call.sample(arena.table(0), {30, 30, true, uniforms.data()}, kNow, sink);
  }));
  CHECK_EQ(named_chunks(w.arena).size(), 1u);
  CHECK_EQ(w.table().record->limiter.samples.get(), 30u);  // samples that were drawn stay counted
  reap_the_dead(w);
  CHECK(named_chunks(w.arena).empty());
  check_healthy(w.arena);
}

}  // namespace shmreplay::test
