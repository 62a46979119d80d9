#include "chunks/block_pool.h"

#include "chunks/pool_fixture.h"

namespace shmreplay::test {

TEST(blocks_are_owned_by_their_chunk_until_it_leaves_the_retired_list) {
  World w(pool_of(4));
  Taker taker(w.arena);
  const uint32_t c = taker.take();
  uint32_t blocks[16];
  const auto take = [&](uint32_t n) {
    Hold hold(w.arena);
    CHECK_EQ(hold.begin(kNow), Status::kOk);
    return take_blocks(hold, c, n, blocks);
  };
  CHECK(take(10));
  CHECK_EQ(w.arena.block(blocks[3]).owner.get().chunk, c);
  CHECK_EQ(w.arena.block(blocks[3]).owner.get().generation, life(w.arena, c).generation);
  check_healthy(w.arena);
  const uint32_t first_free = w.arena.state().free_blocks.get();
  CHECK(!take(7));  // six are left: nothing changes
  CHECK_EQ(w.arena.state().free_blocks.get(), first_free);
  CHECK(take(6));
  taker.close();
  CHECK(!take(1));
  CHECK_EQ(reclaimed(w.arena), 1u);
  CHECK_EQ(w.arena.block(blocks[0]).owner.get().chunk, kNone);
  CHECK_EQ(w.arena.chunk(c).writer.get().first_block, kNone);
  CHECK(take(16));
}

// There are more blocks than one hold frees: meanwhile the chunk stays at the head of the retired list.
TEST(a_chunk_of_more_blocks_than_one_hold_frees_is_freed_whole) {
  ArenaSpec spec = pool_of(4);
  spec.num_blocks = 5000;
  World w(spec);
  Taker taker(w.arena);
  const uint32_t c = taker.take(), other = taker.take();
  std::vector<uint32_t> blocks(kTakeBlocks);
  for (const uint32_t chunk : {c, other, c, c}) {
    Hold hold(w.arena);
    CHECK_EQ(hold.begin(kNow), Status::kOk);
    CHECK(take_blocks(hold, chunk, kTakeBlocks, blocks.data()));
  }
  CHECK_EQ(w.arena.state().num_free_blocks.get(), 5000u - 4 * kTakeBlocks);
  check_healthy(w.arena);
  taker.close();
  CHECK_EQ(reclaimed(w.arena), 2u);
  CHECK_EQ(w.arena.state().num_free_blocks.get(), 5000u);
  check_healthy(w.arena);
}

TEST(blocks_of_a_chunk_that_a_lease_names_stay_as_they_are) {
  World w(pool_of(4));
  Taker taker(w.arena);
  const uint32_t c = taker.take();
  uint32_t blocks[5];
  Lease lease(w.arena);
  {
    Hold hold(w.arena);
    CHECK_EQ(hold.begin(kNow), Status::kOk);
    CHECK(take_blocks(hold, c, 5, blocks));
    CHECK_EQ(lease.take(hold), Status::kOk);
    lease.name(hold, c);
  }
  taker.close();
  CHECK_EQ(reclaimed(w.arena), 0u);
  for (int i = 4; i > 0; --i) CHECK_EQ(w.arena.block(blocks[i]).link.get().next_of_chunk, blocks[i - 1]);
  lease.drop();
  CHECK_EQ(reclaimed(w.arena), 1u);
  CHECK_EQ(w.arena.state().num_free_blocks.get(), 16u);
  check_healthy(w.arena);
}

}  // namespace shmreplay::test
