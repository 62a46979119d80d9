#include "chunks/chunk_pool.h"
#include "chunks/pool_fixture.h"

#include <set>

namespace shmreplay::test {

TEST(each_chunk_is_given_once_and_then_there_is_none) {
  World w(pool_of(5));
  Taker taker(w.arena);
  const std::vector<uint32_t> chunks = taker.take_all();
  CHECK_EQ(std::set<uint32_t>(chunks.begin(), chunks.end()).size(), 5u);
  CHECK_EQ(w.arena.state().num_free.get(), 0u);
  CHECK_EQ(w.arena.state().num_used.get(), 5u);
  check_healthy(w.arena);
}

TEST(a_chunk_goes_from_used_to_retired_to_free_and_its_generation_grows) {
  World w(pool_of(3));
  Taker taker(w.arena);
  const uint32_t c = taker.take();
  CHECK_EQ(static_cast<uint32_t>(life(w.arena, c).state), kChunkUsed);
  const uint32_t generation = life(w.arena, c).generation;
  taker.close();
  CHECK_EQ(static_cast<uint32_t>(life(w.arena, c).state), kChunkRetired);
  CHECK_EQ(life(w.arena, c).generation, generation);
  CHECK_EQ(reclaimed(w.arena), 1u);
  CHECK_EQ(static_cast<uint32_t>(life(w.arena, c).state), kChunkFree);
  CHECK_EQ(life(w.arena, c).generation, generation + 1);
  check_healthy(w.arena);
}

TEST(a_session_gets_the_chunks_back_that_it_wrote_before) {
  World w(pool_of(20));
  const auto other = w.client();
  Taker first(w.arena);
  const std::set<uint32_t> mine{first.take(), first.take(), first.take()};
  first.close();
  CHECK_EQ(reclaimed(*other), 3u);  // another session may free them
  Taker elsewhere(*other);
  for (int i = 0; i < 17; ++i) CHECK_EQ(mine.count(elsewhere.take()), 0u);
  CHECK_EQ(elsewhere.take(), kNone);
  Taker again(w.arena);
  for (int i = 0; i < 3; ++i) CHECK_EQ(mine.count(again.take()), 1u);
  check_healthy(w.arena);
}

TEST(a_run_is_taken_from_wherever_it_is_in_the_list_of_free_chunks) {
  World w(pool_of(12));
  std::vector<std::unique_ptr<Taker>> takers;
  for (uint32_t c = 0; c < 8; ++c) {
    takers.push_back(std::make_unique<Taker>(w.arena));
    CHECK_EQ(takers.back()->take(), c);
  }
  for (const uint32_t c : {6, 0, 3, 1, 5, 2}) takers[c]->close();
  CHECK_EQ(reclaimed(w.arena), 6u);  // the list is 2 5 1 3 0 6
  const uint32_t session = w.arena.session_index();
  const auto take = [&](uint32_t count, uint32_t wanted, uint32_t near) {
    Hold hold(w.arena);
    CHECK_EQ(hold.begin(kNow), Status::kOk);
    const uint32_t first = take_run(hold, session, count, wanted, near);
    for (uint32_t i = 0; first != kNone && i < count; ++i) {
      start_chunk(hold, first + i, session, w.arena.stream(7).serial.get(), w.arena.stream(7).window.get().last);
      extend_window(hold, 7, first + i);
    }
    return first;
  };
  CHECK_EQ(take(2, 6, kNone), kNone);  // 0 to 3 are only four, and so are 8 to 11, which belong to no session
  CHECK_EQ(take(2, 4, kNone), 0u);
  check_healthy(w.arena);
  CHECK_EQ(take(2, 2, 5), 5u);
  CHECK_EQ(take(2, 2, 7), 2u);
  CHECK_EQ(w.arena.session(session).free_chunks.get().count, 0u);
  check_healthy(w.arena);
  CHECK_EQ(take(4, 4, kNone), 8u);
  CHECK_EQ(take(1, 1, kNone), kNone);
  check_healthy(w.arena);
}

TEST(chunks_of_another_session_are_taken_only_by_stealing) {
  World w(pool_of(2));
  Taker first(w.arena);
  first.take_all();
  first.close();
  reclaimed(w.arena);
  const auto other = w.client();
  Taker thief(*other);
  CHECK_EQ(thief.take(), kNone);
  CHECK(thief.take(true) != kNone);
  CHECK(thief.take(true) != kNone);
  CHECK_EQ(thief.take(true), kNone);
  check_healthy(w.arena);
}

// Between a writer's two looks, another session may have freed chunks to no session.
TEST(stealing_takes_chunks_of_nobody_too) {
  World w(pool_of(2));
  Taker taker(w.arena);
  CHECK(taker.take(true) != kNone);
  CHECK(taker.take(true) != kNone);
  check_healthy(w.arena);
}

TEST(chunks_of_a_dead_session_belong_to_nobody) {
  World w(pool_of(4));
  const auto other = w.client();
  Taker gone(*other);
  gone.take_all();
  gone.close();
  CHECK_EQ(reclaimed(w.arena), 4u);
  Taker next(w.arena);
  CHECK_EQ(next.take(), kNone);
  bool reaped = false;
  CHECK_EQ(close_session(*w.daemon, other->session_index(), other->session_generation(), kNow, reaped), Status::kOk);
  CHECK(reaped);
  CHECK_EQ(next.take_all().size(), 4u);
  check_healthy(w.arena);
}

TEST(chunks_that_a_dead_session_wrote_are_freed_to_nobody) {
  World w(pool_of(4));
  const auto other = w.client();
  Taker gone(*other);
  gone.take_all();
  gone.close();
  bool reaped = false;
  CHECK_EQ(close_session(*w.daemon, other->session_index(), other->session_generation(), kNow, reaped), Status::kOk);
  CHECK_EQ(reclaimed(w.arena), 4u);
  CHECK_EQ(w.arena.state().free_chunks.get().count, 4u);
  check_healthy(w.arena);
}

TEST(reclaiming_spares_what_a_lease_names_and_frees_it_when_the_lease_is_dropped) {
  World w(pool_of(6));
  Taker taker(w.arena);
  const std::vector<uint32_t> chunks = taker.take_all();
  Lease lease(w.arena);
  {
    Hold hold(w.arena);
    CHECK_EQ(hold.begin(kNow), Status::kOk);
    CHECK_EQ(lease.take(hold), Status::kOk);
    lease.name(hold, chunks[1]);
    lease.name(hold, chunks[4]);
  }
  taker.close();
  CHECK_EQ(reclaimed(w.arena), 4u);
  CHECK_EQ(static_cast<uint32_t>(life(w.arena, chunks[1]).state), kChunkRetired);
  CHECK_EQ(static_cast<uint32_t>(life(w.arena, chunks[4]).state), kChunkRetired);
  CHECK_EQ(reclaimed(w.arena), 0u);
  check_healthy(w.arena);
  lease.drop();
  CHECK_EQ(reclaimed(w.arena), 2u);
  check_healthy(w.arena);
}

TEST(reclaiming_more_chunks_than_one_slice_holds_frees_all_of_them) {
  World w(pool_of(300));
  Taker taker(w.arena, 300);
  CHECK_EQ(taker.take_all().size(), 300u);
  taker.close();
  CHECK_EQ(reclaimed(w.arena), 300u);
  CHECK_EQ(w.arena.state().num_free.get(), 300u);
  check_healthy(w.arena);
}

TEST(a_chunk_is_retired_with_its_last_reference_and_not_before) {
  World w(pool_of(8));
  const TableFacts& t = w.table();
  Actor actor(w.arena, t, 4);
  for (int i = 0; i < 4; ++i) actor.append();
  const int64_t one = actor.create(4), two = actor.create(2);
  const uint32_t c = w.arena.item(find_item(w.arena, t, one)).place.get().chunk;
  CHECK_EQ(w.arena.chunk(c).refs.get().items, 2u);
  CHECK_EQ(w.arena.chunk(c).refs.get().windows, 1u);
  CHECK_EQ(actor.writer.close(kNow), Status::kOk);
  uint32_t deleted = 0;
  CHECK_EQ(delete_items(w.arena, t, &one, 1, kNow, deleted), Status::kOk);
  CHECK_EQ(static_cast<uint32_t>(life(w.arena, c).state), kChunkUsed);
  CHECK_EQ(delete_items(w.arena, t, &two, 1, kNow, deleted), Status::kOk);
  CHECK_EQ(static_cast<uint32_t>(life(w.arena, c).state), kChunkRetired);
  check_healthy(w.arena);
}

TEST(a_retired_chunk_is_forgotten_by_its_neighbours_in_the_stream) {
  World w(pool_of(4));
  Taker taker(w.arena, 2);
  const uint32_t a = taker.take(), b = taker.take(), c = taker.take();  // a leaves the window of two
  CHECK_EQ(static_cast<uint32_t>(life(w.arena, a).state), kChunkRetired);
  CHECK_EQ(w.arena.chunk(a).stream.get().next, kNone);
  CHECK_EQ(w.arena.chunk(b).stream.get().prev, kNone);
  CHECK_EQ(w.arena.chunk(b).stream.get().next, c);
  CHECK_EQ(w.arena.chunk(c).stream.get().prev, b);
}

TEST(losing_a_reference_that_was_not_there_is_corruption) {
  World w(pool_of(4));
  const auto drop = [&](auto what) {
    Hold hold(w.arena);
    CHECK_EQ(hold.begin(kNow), Status::kOk);
    what(hold);
  };
  CHECK_THROWS(CorruptIndex, "more item references than it had", drop([](Hold& h) { drop_item_refs(h, 0, 1, false); }));
}

TEST(only_chunks_without_windows_and_without_kept_items_can_be_evicted_and_the_oldest_comes_first) {
  World w(pool_of(16, {open_table("a", 100), queue_table("q", 100)}));
  Actor kept(w.arena, w.table(1)), old(w.arena, w.table(0)), young(w.arena, w.table(0));
  for (int i = 0; i < 4; ++i) kept.insert();
  for (int i = 0; i < 4; ++i) old.insert();
  for (int i = 0; i < 4; ++i) young.insert();
  const auto find = [&](uint32_t limit) {
    std::vector<uint32_t> found;
    uint32_t cursor = kNone;
    for (int n = 0; n < 50; ++n) {
      Hold hold(w.arena);
      CHECK_EQ(hold.begin(kNow), Status::kOk);
      const uint32_t c = find_evictable(hold, cursor, limit);
      if (c != kNone) found.push_back(c);
      if (c == kNone && cursor == kNone) break;
    }
    return found;
  };
  CHECK_EQ(find(100).size(), 0u);  // all in open windows
  for (Actor* a : {&kept, &old, &young}) CHECK_EQ(a->writer.close(kNow), Status::kOk);
  const std::vector<uint32_t> found = find(100);
  CHECK_EQ(found.size(), 2u);
  CHECK(w.arena.chunk(found[0]).stamp.get() < w.arena.chunk(found[1]).stamp.get());
  CHECK_EQ(find(1), found);
}

}  // namespace shmreplay::test
