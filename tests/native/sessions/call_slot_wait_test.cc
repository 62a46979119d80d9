#include "sessions/call_slot_wait.h"

#include <csignal>

#include "chunks/leases.h"
#include "support/fixtures.h"

namespace shmreplay::test {
namespace {

ArenaSpec small() { return arena_of({open_table("a", 10)}); }

// Takes the lease and names the chunk in one hold.
void take(Arena& arena, Lease& lease, uint32_t chunk) {
  Hold hold(arena);
  CHECK_EQ(hold.begin(kNow), Status::kOk);
  CHECK_EQ(lease.take(hold), Status::kOk);
  lease.name(hold, chunk);
}

}  // namespace

TEST(a_call_without_a_slot_waits_until_another_call_ends) {
  World w(small());
  std::vector<std::unique_ptr<Lease>> leases;
  for (uint32_t i = 0; i < w.arena.geometry().num_call_slots; ++i) {
    leases.push_back(std::make_unique<Lease>(w.arena));
    take(w.arena, *leases.back(), 1);
  }
  CHECK_EQ(wait_for_call_slot(w.arena, kNow), Status::kNoCallSlots);
  run_threads({[&] { CHECK_EQ(wait_for_call_slot(w.arena, kWhatever), Status::kOk); },
               [&] {
                 until([&] { return w.arena.state().chunk_waiters.load() != 0; });
                 leases[9]->drop();
               }});
}

TEST(a_call_without_a_slot_reaps_the_dead_that_hold_them) {
  World w(small());
  Child child([&] {
    const SessionInfo info = open_own_session(*w.segments.attach());
    const auto arena = w.segments.attach(info.index, info.generation);
    std::vector<std::unique_ptr<Lease>> leases;
    for (uint32_t i = 0; i < arena->geometry().num_call_slots; ++i) {
      leases.push_back(std::make_unique<Lease>(*arena));
      take(*arena, *leases.back(), i);
    }
    raise(SIGKILL);
  });
  CHECK(child.killed());
  CHECK_EQ(wait_for_call_slot(w.arena, kWhatever), Status::kOk);
  CHECK(named_chunks(w.arena).empty());
}

}  // namespace shmreplay::test
