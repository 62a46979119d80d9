// Kinds of damage that would hang a call or lead it out of bounds if the word were trusted, one by one. flips_test.cc
// searches for more.
#include "checkpoint/checkpoint_fixture.h"
#include "chunks/chunk_pool.h"
#include "chunks/leases.h"
#include "support/fixtures.h"

namespace shmreplay::test {
namespace {

// Two tables that share steps: one sampled by a heap, one by a tree; chunks of two steps.
ArenaSpec two_tables(uint32_t num_chunks = 24) {
  return arena_of({open_table("heap", 8, kMaxHeap, kMaxHeap), open_table("tree", 8, kPrioritized, kMinHeap)}, 2,
                  num_chunks);
}

void fill(World& w, Actor& actor) {
  for (int i = 0; i < 6; ++i) {
    actor.append();
    actor.create(1, i);
    actor.create_in(w.table(1), 1, i);
  }
}

// Checks that the call ends: with an answer, or with the exception that reports damage.
template <class Body>
bool is_reported(Body body) {
  try {
    body();
    return false;
  } catch (const CorruptIndex&) {
    return true;
  }
}

void look(World& w, uint32_t table) {
  Learner learner(w.arena);
  Batch batch(w.arena, 16);
  learner.sample(w.table(table), 16, batch, kNow, false);
}

}  // namespace

TEST(damaged_padding_does_not_make_a_batch_of_billions_of_rows) {
  World w(two_tables());
  Actor actor(w.arena, w.table(0), 4);
  fill(w, actor);
  for (uint32_t slot = 0; slot < 6; ++slot) poke(w.arena.item(slot).padding, {0x0fff'0000, 0x0fff'0000});
  look(w, 0);
  for (uint32_t slot = 0; slot < 6; ++slot) poke(w.arena.item(slot).padding, {0x4000'0000, 0});
  CHECK(is_reported([&] { look(w, 0); }));
}

TEST(a_damaged_number_of_chunks_does_not_keep_an_insert_waiting_for_a_longer_log) {
  World w(two_tables());
  Actor actor(w.arena, w.table(0), 4);
  poke(w.table(0).record->most_chunks, 0x00ff'0000u);
  fill(w, actor);
  CHECK_EQ(live_items(w.table(0)), 6u);
}

TEST(references_of_items_that_are_nowhere_do_not_keep_an_eviction_for_room_going) {
  World w(two_tables());
  Actor actor(w.arena, w.table(0), 1);
  fill(w, actor);
  ChunkRecord& oldest = w.arena.chunk(w.arena.state().used_chunks.get().head);
  poke(oldest.refs, {oldest.refs.get().items + 1, 0});
  Actor other(w.arena, w.table(0), 60, 100);
  CHECK(is_reported([&] {
    for (int i = 0; i < 60; ++i) other.append();
  }));
  CHECK(w.arena.failed());
}

TEST(a_list_of_used_chunks_that_leads_back_into_itself_does_not_keep_a_writer_looking) {
  World w(two_tables());
  Actor hoarder(w.arena, w.table(0), 60);
  while (w.arena.state().num_free.get() > 0) hoarder.append();
  const Queue used = w.arena.state().used_chunks.get();
  poke(w.arena.chunk(used.tail).age, {w.arena.chunk(used.tail).age.get().prev, used.head});
  StreamWriter writer(w.arena, w.table(0), 1);
  CHECK_EQ(writer.open(kNow), Status::kOk);
  CHECK_EQ(writer.ensure_row(kNow), Status::kTimeout);
}

TEST(a_chunk_that_is_listed_as_used_and_is_not_does_not_keep_a_writer_evicting) {
  World w(two_tables());
  Actor actor(w.arena, w.table(0), 1);
  fill(w, actor);
  ChunkRecord& oldest = w.arena.chunk(w.arena.state().used_chunks.get().head);
  poke(oldest.life, {kChunkFree, 0, oldest.life.get().rows, oldest.life.get().generation});
  Actor hoarder(w.arena, w.table(0), 60, 100);
  while (w.arena.state().num_free.get() > 0) hoarder.append();
  StreamWriter writer(w.arena, w.table(0), 1);
  CHECK_EQ(writer.open(kNow), Status::kOk);
  is_reported([&] {
    for (int i = 0; i < 20 && writer.ensure_row(kNow) == Status::kOk; ++i)
      write_row(writer, w.arena, 1), writer.finish_row();
  });
}

TEST(a_damaged_number_of_retired_chunks_does_not_keep_a_sweep_going_round) {
  World w(two_tables());
  Lease lease(w.arena);
  {
    Actor actor(w.arena, w.table(0), 4);
    fill(w, actor);
    Hold hold(w.arena);
    CHECK_EQ(hold.begin(kNow), Status::kOk);
    CHECK_EQ(lease.take(hold), Status::kOk);
    lease.name(hold, w.arena.state().used_chunks.get().head);
  }
  CHECK_EQ(reset_table(w.arena, w.table(0), kNow), Status::kOk);
  CHECK_EQ(reset_table(w.arena, w.table(1), kNow), Status::kOk);
  poke(w.arena.state().num_retired, uint64_t{1} << 60);
  uint32_t freed = 0;
  CHECK_EQ(reclaim(w.arena, kNow, freed), Status::kOk);
  CHECK_EQ(freed, 2u);
}

TEST(a_pattern_of_a_column_that_there_is_not_is_reported) {
  World w(two_tables());
  Actor actor(w.arena, w.table(0), 4);
  fill(w, actor);
  PatternRecord& r = w.arena.pattern(actor.span.record);
  poke(r.blob[0], r.blob[0].get() | 0x7fff);  // the first output's column
  Learner fresh(w.arena);
  CHECK(is_reported([&] { look(w, 0); }));
}

TEST(a_length_that_no_item_can_have_is_reported) {
  World w(two_tables());
  Actor actor(w.arena, w.table(0), 4);
  fill(w, actor);
  poke(w.table(0).record->longest[0], 0x8000'0000u);
  CHECK(is_reported([&] { look(w, 0); }));
}

TEST(a_heap_that_names_an_item_of_another_table_is_reported_before_that_tables_trees_are_touched) {
  World w(two_tables());
  Actor actor(w.arena, w.table(0), 4);
  fill(w, actor);
  poke(w.arena.at<HeapNode>(w.table(1).roles[kRemover].heap)[0].item, w.table(0).item_base);
  CHECK(is_reported([&] {
    for (int i = 0; i < 6; ++i) actor.append(), actor.create_in(w.table(1), 1, 9);
  }));
}

TEST(an_order_list_that_names_an_item_of_another_table_is_reported) {
  World w(two_tables());
  Actor actor(w.arena, w.table(0), 4);
  fill(w, actor);
  poke(w.table(1).record->order, {0, 0});
  CHECK(is_reported([&] { CHECK_EQ(reset_table(w.arena, w.table(1), kNow), Status::kOk); }));
}

TEST(a_list_that_leads_back_into_itself_does_not_keep_a_checkpoint_growing) {
  for (const bool is_of_chunks : {false, true}) {
    World w(two_tables());
    Actor actor(w.arena, w.table(0), 4);
    fill(w, actor);
    const uint32_t free = w.table(1).record->free_item.get();
    const auto [head, tail] = w.arena.state().used_chunks.get();
    if (is_of_chunks) poke(w.arena.chunk(tail).age, {w.arena.chunk(tail).age.get().prev, head});
    else poke(w.arena.links(free).order, {kNone, free});
    CHECK(is_reported([&] { save_arena(w.arena, CheckpointSave::kMinRoom); }));
  }
}

TEST(a_checkpoint_reports_a_chunk_that_there_is_not) {
  World w(two_tables());
  Actor actor(w.arena, w.table(0), 4);
  fill(w, actor);
  ChunkRecord& oldest = w.arena.chunk(w.arena.state().used_chunks.get().head);
  const Link age = oldest.age.get(), stream = oldest.stream.get();
  poke(oldest.age, {age.prev, age.next + 8192});
  CHECK(is_reported([&] { save_arena(w.arena); }));
  poke(oldest.age, age);
  poke(oldest.stream, {stream.prev + 8192, stream.next});
  CHECK(is_reported([&] { save_arena(w.arena); }));
}

TEST(a_checkpoint_reports_a_pattern_that_is_larger_than_its_record) {
  World w(two_tables());
  Actor actor(w.arena, w.table(0), 4);
  fill(w, actor);
  poke(w.arena.pattern(actor.span.record).blob_bytes, 1u << 30);
  CHECK(is_reported([&] { save_arena(w.arena); }));
}

}  // namespace shmreplay::test
