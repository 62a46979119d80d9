#include "arena/hold.h"
#include "arena/chunk_wait.h"

#include <csignal>

#include "support/fixtures.h"

namespace shmreplay::test {
namespace {

ArenaSpec small() { return arena_of({open_table("a", 10)}); }

// Everything that a hold can write, byte for byte.
std::string index_words(const Arena& arena) {
  return std::string(arena.index() + arena.offsets().state, arena.index() + arena.offsets().end);
}

// Runs `body` in a child's hold. The child dies before it can commit.
template <class Body>
void die_in_hold(World& world, Body body) {
  Child child([&] {
    const auto arena = world.segments.attach();
    Hold hold(*arena);
    CHECK_EQ(hold.begin(kWhatever), Status::kOk);
    body(hold, *arena);
    raise(SIGKILL);
  });
  CHECK(child.killed());
}

Status begin_and_end(Arena& arena, const Wait& wait = kNow) {
  Hold hold(arena);
  return hold.begin(wait);
}

// Leaves a log that a dead holder could leave only in a damaged index.
void leave_log_entry(World& world, uint64_t where, uint64_t length = 1) {
  die_in_hold(world, [&](Hold&, Arena& arena) {
    arena.log().entries[0] = {where, 0};
    arena.log().length.store(length);
  });
}

}  // namespace

TEST(what_a_hold_set_stands_when_it_ends) {
  World w(small());
  {
    Hold hold(w.arena);
    CHECK_EQ(hold.begin(kNow), Status::kOk);
    hold.set(w.arena.state().next_take, 77);
    hold.add(w.arena.state().next_take, 5);
  }
  CHECK_EQ(w.arena.state().next_take.get(), 82u);
  CHECK_EQ(w.arena.log().length.load(), 0u);
}

TEST(a_word_that_keeps_its_value_needs_no_log_entry) {
  World w(small());
  Hold hold(w.arena);
  CHECK_EQ(hold.begin(kNow), Status::kOk);
  hold.set(w.arena.state().next_take, w.arena.state().next_take.get());
  CHECK_EQ(hold.room(), kLogCapacity);
  hold.set(w.arena.priority(0), -0.0);  // 0.0 before: equal, but not the same bytes
  CHECK_EQ(hold.room(), kLogCapacity - 1);
}

TEST(a_dead_holders_words_of_every_size_come_back_byte_for_byte) {
  World w(small());
  struct Two { uint16_t value; };
  auto* two = w.arena.at<Word<Two>>(w.arena.offsets().selectors);  // a Uniform's dense array, used as plain words
  poke(*two, Two{0x1234});
  const std::string before = index_words(w.arena);
  die_in_hold(w, [&](Hold& hold, Arena& arena) {
    hold.set(*arena.at<Word<Two>>(arena.offsets().selectors), Two{0x9999});
    hold.set(arena.state().free_streams, 5);
    hold.set(arena.state().next_take, ~uint64_t{0});
    hold.set(arena.priority(3), 1.5);
    hold.set(arena.chunk(1).life, {kChunkRetired, 0, 3, 9});
  });
  CHECK(index_words(w.arena) != before);
  CHECK_EQ(begin_and_end(w.arena), Status::kOk);
  // wake_everybody() has bumped the futex words of the table and of the chunks, and nothing else.
  for (WaitSide& side : w.table().record->sides) CHECK_EQ(side.futex.exchange(0), 1u);
  CHECK_EQ(w.table().record->news.futex.exchange(0), 1u);
  CHECK_EQ(w.arena.state().chunk_futex.exchange(0), 1u);
  CHECK(index_words(w.arena) == before);
  CHECK_EQ(w.arena.lock().num_recoveries.load(), 1u);
}

TEST(a_word_written_twice_in_a_dead_hold_gets_its_first_value_back) {
  World w(small());
  die_in_hold(w, [](Hold& hold, Arena& arena) {
    hold.set(arena.state().next_take, 50);
    hold.set(arena.state().next_take, 60);
    hold.set(arena.state().next_take, 70);
  });
  CHECK_EQ(begin_and_end(w.arena), Status::kOk);
  CHECK_EQ(w.arena.state().next_take.get(), 1u);
}

TEST(a_committed_hold_is_not_rolled_back_when_its_process_dies_later) {
  World w(small());
  Child child([&] {
    const auto arena = w.segments.attach();
    Hold hold(*arena);
    CHECK_EQ(hold.begin(kWhatever), Status::kOk);
    hold.set(arena->state().next_take, 50);
    hold.end();
    Hold next(*arena);
    CHECK_EQ(next.begin(kWhatever), Status::kOk);
    raise(SIGKILL);
  });
  CHECK(child.killed());
  CHECK_EQ(begin_and_end(w.arena), Status::kOk);
  CHECK_EQ(w.arena.state().next_take.get(), 50u);
}

TEST(a_hold_can_log_as_many_words_as_the_log_has_entries) {
  World w(small());
  Hold hold(w.arena);
  CHECK_EQ(hold.begin(kNow), Status::kOk);
  for (uint32_t i = 1; i <= kLogCapacity; ++i) hold.add(w.arena.state().next_take, 1);
  CHECK_EQ(hold.room(), 0u);
  hold.end();
  CHECK_EQ(w.arena.state().next_take.get(), 1u + kLogCapacity);
}

TEST(a_hold_that_outgrows_its_log_is_rolled_back_and_fails_the_segment) {
  World w(small());
  const std::string before = index_words(w.arena);
  const auto overflow = [&] {
    Hold hold(w.arena);
    CHECK_EQ(hold.begin(kNow), Status::kOk);
    for (uint32_t i = 0; i <= kLogCapacity; ++i) hold.add(w.arena.state().next_take, 1);
  };
  CHECK_THROWS(CorruptIndex, "outgrew its undo log", overflow());
  for (WaitSide& side : w.table().record->sides) side.futex.store(0);
  w.table().record->news.futex.store(0);
  w.arena.state().chunk_futex.store(0);
  CHECK(index_words(w.arena) == before);
  CHECK(w.arena.failed());
  CHECK_EQ(begin_and_end(w.arena), Status::kFailed);
}

TEST(an_index_out_of_range_inside_a_hold_fails_the_segment) {
  World w(small());
  const auto stray = [&] {
    Hold hold(w.arena);
    CHECK_EQ(hold.begin(kNow), Status::kOk);
    hold.set(w.arena.state().next_take, 99);
    w.arena.chunk(w.arena.geometry().num_chunks);
  };
  CHECK_THROWS(CorruptIndex, "index out of range", stray());
  CHECK_EQ(w.arena.state().next_take.get(), 1u);
  CHECK(w.arena.failed());
}

TEST(a_hold_that_ends_while_another_exception_passes_outside_it_commits) {
  World w(small());
  struct Destroyed {  // a hold in a destructor that runs because of an exception, as Blocked's does
    Arena& arena;
    ~Destroyed() {
      Hold hold(arena);
      if (hold.begin(kNow) == Status::kOk) hold.set(arena.state().next_take, 5);
    }
  };
  const auto run = [&] {
    Destroyed d{w.arena};
    throw std::runtime_error("elsewhere");
  };
  CHECK_THROWS(std::runtime_error, "elsewhere", run());
  CHECK_EQ(w.arena.state().next_take.get(), 5u);
  CHECK(!w.arena.failed());
}

TEST(a_log_entry_outside_the_index_fails_the_segment_instead_of_being_written) {
  const uint64_t eight = 3;
  const auto fails = [&](auto where, uint64_t length = 1) {
    World w(small());
    leave_log_entry(w, where(w.arena.offsets()), length);
    CHECK_EQ(begin_and_end(w.arena), Status::kFailed);
    CHECK(w.arena.failed());
    CHECK_EQ(begin_and_end(w.arena), Status::kFailed);  // the lock can still be taken, to say so
  };
  fails([&](const Offsets& o) { return (o.state - 8) << 2 | eight; });
  fails([&](const Offsets& o) { return o.end << 2 | eight; });
  fails([&](const Offsets& o) { return (o.end - 4) << 2 | eight; });
  fails([&](const Offsets& o) { return (o.state + 4) << 2 | eight; });  // not aligned
  fails([&](const Offsets& o) { return o.state << 2; });                // one byte: no word is that small
  fails([&](const Offsets& o) { return o.state << 2 | eight; }, kLogCapacity + 1);
}

TEST(a_lost_session_is_refused_and_leaves_the_lock_free) {
  World w(small());
  const auto stale = w.segments.attach(w.arena.session_index(), w.arena.session_generation() + 1);
  CHECK_EQ(begin_and_end(*stale), Status::kSessionLost);
  CHECK_EQ(begin_and_end(w.arena), Status::kOk);
  bool reaped = false;
  CHECK_EQ(close_session(*w.daemon, w.arena.session_index(), w.arena.session_generation(), kNow, reaped), Status::kOk);
  CHECK_EQ(begin_and_end(w.arena), Status::kSessionLost);
}

TEST(a_forked_child_can_not_use_its_parents_handle) {
  World w(small());
  Child child([&] { CHECK_EQ(begin_and_end(w.arena), Status::kForked); });
  child.join();
  CHECK_EQ(begin_and_end(w.arena), Status::kOk);
}

TEST(a_try_answers_timeout_while_another_holds_the_lock) {
  World w(small());
  Hold hold(*w.daemon);
  CHECK_EQ(hold.begin(kNow), Status::kOk);
  run_threads({[&] { CHECK_EQ(begin_and_end(w.arena, {kForever, nullptr, true}), Status::kTimeout); }});
  hold.end();
  CHECK_EQ(begin_and_end(w.arena, {kForever, nullptr, true}), Status::kOk);
}

TEST(a_hold_that_moved_a_limiter_bumps_the_word_of_a_side_that_has_sleepers_and_can_go_on) {
  World w(small());
  TableRecord& r = *w.table().record;
  const auto touch = [&] {
    Hold hold(w.arena);
    CHECK_EQ(hold.begin(kNow), Status::kOk);
    hold.touch(0);
  };
  touch();
  CHECK_EQ(r.sides[kInserts].futex.load(), 0u);  // nobody sleeps
  poke(r.sides[kInserts].sleepers, 1);
  poke(r.sides[kSamples].sleepers, 1);
  touch();
  CHECK_EQ(r.sides[kInserts].futex.load(), 1u);
  CHECK_EQ(r.sides[kSamples].futex.load(), 0u);  // an empty table lets no sampler go on
}

TEST(waking_all_bumps_both_sides_whatever_the_limiter_says) {
  World w(small());
  {
    Hold hold(w.arena);
    CHECK_EQ(hold.begin(kNow), Status::kOk);
    hold.wake_all(0);
  }
  CHECK_EQ(w.table().record->sides[kInserts].futex.load(), 1u);
  CHECK_EQ(w.table().record->sides[kSamples].futex.load(), 1u);
}

TEST(chunk_waiters_are_woken_once_and_only_if_there_are_any) {
  World w(small());
  ArenaState& s = w.arena.state();
  wake_chunk_waiters(w.arena);
  CHECK_EQ(s.chunk_futex.load(), 0u);
  s.chunk_waiters.store(1);
  wake_chunk_waiters(w.arena);
  wake_chunk_waiters(w.arena);
  CHECK_EQ(s.chunk_futex.load(), 1u);
  CHECK_EQ(s.chunk_waiters.load(), 0u);
}

}  // namespace shmreplay::test
