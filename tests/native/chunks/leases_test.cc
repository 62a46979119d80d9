#include "chunks/leases.h"

#include <csignal>

#include "support/fixtures.h"

namespace shmreplay::test {
namespace {

ArenaSpec small() { return arena_of({open_table("a", 10)}); }

// Takes the lease and names the chunks in one hold.
void take(Arena& arena, Lease& lease, std::initializer_list<uint32_t> chunks) {
  Hold hold(arena);
  CHECK_EQ(hold.begin(kNow), Status::kOk);
  CHECK_EQ(lease.take(hold), Status::kOk);
  for (const uint32_t c : chunks) lease.name(hold, c);
}

using Names = std::vector<uint32_t>;

}  // namespace

TEST(names_of_all_leases_are_found_sorted_and_once) {
  World w(small());
  Lease a(w.arena), b(w.arena);
  take(w.arena, a, {7, 3});
  take(w.arena, b, {3, 9});
  CHECK_EQ(named_chunks(w.arena), (Names{3, 7, 9}));
  CHECK_EQ(named_chunks(*w.daemon), (Names{3, 7, 9}));
  a.drop();
  CHECK_EQ(named_chunks(w.arena), (Names{3, 9}));
  b.drop();
  CHECK(named_chunks(w.arena).empty());
}

TEST(a_chunk_named_twice_in_a_row_takes_one_place) {
  World w(small());
  Lease lease(w.arena);
  Hold hold(w.arena);
  CHECK_EQ(hold.begin(kNow), Status::kOk);
  CHECK_EQ(lease.take(hold), Status::kOk);
  for (const uint32_t chunk : {4u, 4u, 5u}) lease.name(hold, chunk);
  CHECK_EQ(lease.room(), kMaxNames - 2);
  CHECK(named_chunks(w.arena) == (std::vector<uint32_t>{4, 5}));
}

TEST(dropping_twice_or_without_a_slot_does_nothing) {
  World w(small());
  Lease lease(w.arena);
  lease.drop();
  take(w.arena, lease, {1});
  lease.drop();
  CHECK(!lease.taken());
  lease.drop();
  CHECK(named_chunks(w.arena).empty());
}

TEST(when_every_call_slot_is_taken_another_call_is_refused_until_one_ends) {
  World w(small());
  std::vector<std::unique_ptr<Lease>> leases;
  for (uint32_t i = 0; i < w.arena.geometry().num_call_slots; ++i) {
    leases.push_back(std::make_unique<Lease>(w.arena));
    take(w.arena, *leases.back(), {i % 3});
  }
  Lease late(w.arena);
  {
    Hold hold(w.arena);
    CHECK_EQ(hold.begin(kNow), Status::kOk);
    CHECK_EQ(late.take(hold), Status::kNoCallSlots);
  }
  leases[5]->drop();
  take(w.arena, late, {1});
}

TEST(dropping_a_lease_wakes_a_writer_that_waits_for_a_chunk) {
  World w(small());
  Lease lease(w.arena);
  take(w.arena, lease, {1});
  w.arena.state().chunk_waiters.store(1);
  lease.drop();
  CHECK_EQ(w.arena.state().chunk_waiters.load(), 0u);
  CHECK_EQ(w.arena.state().chunk_futex.load(), 1u);
}

TEST(a_lease_goes_with_its_scope) {
  World w(small());
  {
    Lease lease(w.arena);
    take(w.arena, lease, {2});
    CHECK_EQ(named_chunks(w.arena), Names{2});
  }
  CHECK(named_chunks(w.arena).empty());
}

TEST(a_session_that_names_chunks_is_told_apart_from_the_others) {
  World w(small());
  const auto other = w.client();
  Lease lease(*other);
  take(*other, lease, {2});
  CHECK(session_names_chunks(w.arena, other->session_index(), other->session_generation()));
  CHECK(!session_names_chunks(w.arena, other->session_index(), other->session_generation() + 1));
  CHECK(!session_names_chunks(w.arena, w.arena.session_index(), w.arena.session_generation()));
}

TEST(the_leases_of_a_dead_session_are_dropped_in_slices_and_no_others) {
  World w(small());
  const auto other = w.client();
  std::vector<std::unique_ptr<Lease>> leases;
  for (uint32_t i = 0; i < 10; ++i) {
    Arena& owner = i % 2 == 0 ? w.arena : *other;
    leases.push_back(std::make_unique<Lease>(owner));
    take(owner, *leases.back(), {i});
  }
  uint32_t cursor = 0, slices = 1;
  while (!drop_leases_of(w.arena, other->session_index(), other->session_generation(), cursor, 7)) ++slices;
  CHECK_EQ(slices, (w.arena.geometry().num_call_slots + 6) / 7);
  CHECK_EQ(named_chunks(w.arena), (Names{0, 2, 4, 6, 8}));
}

TEST(names_outlive_their_process_until_its_session_is_reaped) {
  World w(small());
  const auto other = w.client();
  Child child([&] {
    const auto arena = w.segments.attach(other->session_index(), other->session_generation());
    Lease lease(*arena);
    take(*arena, lease, {5, 6});
    raise(SIGKILL);
  });
  CHECK(child.killed());
  CHECK_EQ(named_chunks(w.arena), (Names{5, 6}));
  bool reaped = false;
  CHECK_EQ(close_session(*w.daemon, other->session_index(), other->session_generation(), kNow, reaped), Status::kOk);
  CHECK(named_chunks(w.arena).empty());
}

TEST(a_lease_of_a_session_that_was_taken_back_does_not_drop_another_calls) {
  World w(small());
  const auto other = w.client();
  Lease stale(*other);
  take(*other, stale, {5});
  bool reaped = false;
  CHECK_EQ(close_session(*w.daemon, other->session_index(), other->session_generation(), kNow, reaped), Status::kOk);
  std::vector<std::unique_ptr<Lease>> leases;  // by now every slot belongs to another lease
  for (uint32_t i = 0; i < w.arena.geometry().num_call_slots; ++i) {
    leases.push_back(std::make_unique<Lease>(w.arena));
    take(w.arena, *leases.back(), {7});
  }
  stale.drop();
  Lease late(w.arena);
  Hold hold(w.arena);
  CHECK_EQ(hold.begin(kNow), Status::kOk);
  CHECK_EQ(late.take(hold), Status::kNoCallSlots);
}

}  // namespace shmreplay::test
