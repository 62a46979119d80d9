// Values in the block heap: those of rows and of items, and the blocks that their writers take.
#include <algorithm>

#include "base/fault.h"
#include "chunks/block_heap.h"
#include "chunks/block_pool.h"
#include "chunks/chunk_pool.h"
#include "items/check.h"
#include "items/rebuild.h"
#include "support/fixtures.h"

namespace shmreplay::test {
namespace {

ArenaSpec heap_of(TableSpec table, uint32_t num_blocks, uint32_t chunk_steps = 4, uint32_t num_chunks = 64) {
  return with_values(arena_of({std::move(table)}, chunk_steps, num_chunks), num_blocks);
}

uint64_t free_blocks(World& w) { return w.arena.state().num_free_blocks.get(); }

Batch& get(World& w, const std::vector<int64_t>& keys, std::unique_ptr<Batch>& batch) {
  batch = std::make_unique<Batch>(w.arena, static_cast<int64_t>(keys.size()));
  SampleCall call(w.arena);
  std::vector<uint32_t> found(keys.size());
  CHECK_EQ(call.get(w.table(), keys.data(), static_cast<uint32_t>(keys.size()), kNow, *batch, found.data()).done,
           keys.size());
  return *batch;
}

void check_items(World& w, const std::vector<int64_t>& keys) {
  std::unique_ptr<Batch> batch;
  get(w, keys, batch).check_rows();
}

// Removes everything; then no block may be missing.
void check_no_block_is_lost(World& w) {
  for (uint32_t t = 0; t < w.arena.num_tables(); ++t) CHECK_EQ(reset_table(w.arena, w.table(t), kNow), Status::kOk);
  uint32_t freed = 0;
  CHECK_EQ(reclaim(w.arena, kNow, freed), Status::kOk);
  CHECK_EQ(w.arena.state().num_used.get(), 0u);
  CHECK_EQ(free_blocks(w), w.arena.geometry().num_blocks);
  check_healthy(w.arena);
}

}  // namespace

TEST(values_of_any_size_come_back_and_none_differs_from_an_empty_one) {
  World w(heap_of(open_table("a", 100), 4000));
  std::vector<int64_t> keys;
  {
    Actor actor(w.arena, w.table());
    StreamWriter& writer = actor.writer;
    for (uint32_t size = 0; size < 300; size += size < 130 ? 1 : 37) {
      CHECK_EQ(writer.ensure_row(kNow), Status::kOk);
      writer.row().give_up_values();
      std::string value(size, 0);
      for (uint32_t i = 0; i < size; ++i) value[i] = static_cast<char>(i * 3 + size);
      CHECK_EQ(writer.secure_blocks(blocks_of(w.arena, size), kNow), Status::kOk);
      writer.row().write_value(3, value.data(), size);
      writer.row().write_no_value(5);
      double priority = 1;
      int64_t key = 0;
      uint32_t done = 0;
      CHECK_EQ(writer.items().insert_rows(w.table(), actor.step, &priority, 1, kNow, &key, done), Status::kOk);
      std::unique_ptr<Batch> batch;
      get(w, {key}, batch);
      CHECK(batch->values(3)[0].has_value());
      CHECK(*batch->values(3)[0] == value);
      CHECK(!batch->values(5)[0].has_value());
      CHECK(!batch->items_values()[0].has_value());
    }
    check_healthy(w.arena);
  }
  check_no_block_is_lost(w);
}

TEST(rows_of_sequences_and_what_their_items_brought_come_back_across_chunks) {
  for (const uint32_t chunk_steps : {1u, 3u, 8u}) {
    World w(heap_of(open_table("a", 1000), 8000, chunk_steps, 300));
    std::vector<int64_t> keys;
    {
      Actor actor(w.arena, w.table(), 9);
      for (int t = 0; t < 30; ++t) {
        actor.append();
        for (uint32_t length = 1; length <= std::min(actor.writer.history().num_steps(), 9u); length += 2)
          keys.push_back(actor.create(length));
      }
      check_items(w, keys);
      check_healthy(w.arena);
    }
    check_items(w, keys);  // the stream is gone, its items are not
    check_no_block_is_lost(w);
  }
}

TEST(a_writer_reads_the_values_of_its_history) {
  World w(heap_of(open_table("a", 100), 800));
  Actor actor(w.arena, w.table(), 6);
  for (int t = 1; t <= 12; ++t) actor.append();
  for (uint64_t step = actor.writer.history().oldest_held(); step < 12; ++step) {
    const BlockRef ref = actor.writer.history().value(step, 3);
    CHECK_EQ(ref == kNoValue, is_none(step + 1, 3));
    if (ref == kNoValue) continue;
    std::string value(ref.num_bytes, 0);
    actor.writer.history().read_value(step, ref, value.data());
    CHECK(value == value_of(step + 1, 3));
    char cell[13];
    actor.writer.history().read_mutable(step, 4, cell);
    CHECK(cell_shows(cell, 13, step + 1));
  }
}

// A full queue. If no blocks were taken back, each repetition would take the row's blocks and the item's blocks again.
TEST(a_call_repeated_for_ever_takes_no_more_blocks_than_one) {
  World w(heap_of(queue_table("q", 3), 400));
  Actor actor(w.arena, w.table());
  for (int i = 0; i < 3; ++i) actor.insert();
  int64_t key = 0;
  CHECK_EQ(actor.try_insert(1, kNow, key), Status::kTimeout);
  const uint64_t before = free_blocks(w);
  for (int i = 0; i < 100; ++i) CHECK_EQ(actor.try_insert(1, kNow, key), Status::kTimeout);
  CHECK_EQ(free_blocks(w), before);
  Learner learner(w.arena);
  learner.draw(w.table());
  actor.insert();  // uses the blocks that are there
  CHECK_EQ(free_blocks(w), before);
  check_items(w, live_keys(w.arena, w.table()));
}

TEST(an_item_that_does_not_go_in_gives_back_what_it_brought_and_keeps_that_of_others) {
  TableSpec one = open_table("a", 100);
  one.max_diff = 3;
  one.min_diff = -1e9;
  World w(heap_of(one, 400, 2));
  Actor actor(w.arena, w.table(), 8);
  for (int i = 0; i < 7; ++i) actor.append();
  int64_t key = 0;
  const std::vector<int64_t> keys{actor.create(1), actor.create(5), actor.create(2)};  // the last two chunks
  for (const uint32_t length : {1u, 5u}) {
    CHECK_EQ(actor.try_create(w.table(), length, 1, kNow, key), Status::kTimeout);
    const uint64_t before = free_blocks(w);
    for (int i = 0; i < 50; ++i) CHECK_EQ(actor.try_create(w.table(), length, 1, kNow, key), Status::kTimeout);
    CHECK_EQ(free_blocks(w), before);
  }
  check_items(w, keys);
  check_healthy(w.arena);
}

TEST(a_row_that_is_restored_gives_back_the_values_that_it_lost) {
  World w(heap_of(open_table("a", 100), 400));
  Actor actor(w.arena, w.table(), 4);
  StreamWriter& writer = actor.writer;
  CHECK_EQ(writer.ensure_row(kNow), Status::kOk);
  CHECK_EQ(writer.secure_blocks(9, kNow), Status::kOk);
  const std::string kept(100, 'k'), lost(300, 'l');
  writer.row().write_value(3, kept.data(), 100);
  writer.row().mark(3);
  const std::vector<uint64_t> before = writer.row().present();
  for (int i = 0; i < 20; ++i) {
    CHECK_EQ(writer.secure_blocks(5, kNow), Status::kOk);
    writer.row().write_value(5, lost.data(), 300);
    writer.row().mark(5);
    writer.row().restore(before);
    CHECK(writer.row().has(3) && !writer.row().has(5) && writer.row().is_open());
  }
  CHECK_EQ(free_blocks(w), 400u - 9);
  const BlockRef ref = writer.history().value(0, 3);
  std::string shown(ref.num_bytes, 0);
  writer.history().read_value(0, ref, shown.data());
  CHECK(shown == kept);
  writer.row().restore(std::vector<uint64_t>(before.size(), 0));
  CHECK(!writer.row().is_open());
  CHECK(writer.row().has(6) && writer.row().lacks_any());  // no row lacks a per-item column
}

TEST(the_oldest_items_go_when_blocks_run_out_and_the_heap_is_used_again_and_again) {
  constexpr uint32_t kBlocks = 150;
  World w(heap_of(open_table("a", 10'000), kBlocks, 2, 400));
  uint64_t taken = 0;
  {
    Actor actor(w.arena, w.table());
    for (int i = 0; i < 400; ++i) {
      int64_t key = 0;
      CHECK_EQ(actor.try_insert(1, kWhatever, key), Status::kOk);
      for (const uint32_t c : {3u, 5u})
        taken += is_none(actor.next_serial(), c) ? 0 : value_of(actor.next_serial(), c).size() / 64;
      if (i % 20 == 0) check_healthy(w.arena), check_items(w, live_keys(w.arena, w.table()));
    }
  }
  CHECK(taken > 3 * kBlocks);
  CHECK(w.arena.state().num_free.get() > 300u);  // chunks there were plenty of
  CHECK(w.table().record->evicted_for_room.get() > 300);
  CHECK_EQ(live_keys(w.arena, w.table()).back(), key_of(w.table(), w.table().record->order.get().tail,
                                                        w.arena.item(w.table().record->order.get().tail).seq.get()));
  check_no_block_is_lost(w);
}

TEST(a_table_that_keeps_its_items_waits_for_blocks_or_says_that_the_arena_is_full) {
  for (const uint32_t on_full : {kOnFullWait, kOnFullError}) {
    TableSpec t = open_table("a", 1000);
    t.on_full = on_full;
    World w(heap_of(t, 60));
    Actor actor(w.arena, w.table());
    int64_t key = 0;
    Status s = Status::kOk;
    for (int i = 0; i < 100 && s == Status::kOk; ++i) s = actor.try_insert(1, kNow, key);
    CHECK_EQ(s, on_full == kOnFullWait ? Status::kTimeout : Status::kArenaFull);
    CHECK(w.arena.state().num_free.get() > 0);
    const std::vector<int64_t> keys = live_keys(w.arena, w.table());
    CHECK(keys.size() > 3);
    check_items(w, keys);
    uint32_t deleted = 0;
    CHECK_EQ(delete_items(w.arena, w.table(), keys.data(), static_cast<uint32_t>(keys.size()), kNow, deleted),
             Status::kOk);
    CHECK_EQ(actor.try_insert(1, kNow, key), Status::kOk);
    check_healthy(w.arena);
  }
}

TEST(a_writer_that_waits_for_blocks_gets_those_that_a_consumer_frees) {
  World w(heap_of(queue_table("q", 1000), 60, 2));
  consume_what_a_full_queue_holds_up(w, 300);
}

TEST(more_values_than_the_whole_heap_holds_are_refused_and_take_nothing) {
  World w(heap_of(open_table("a", 10), 20));
  Actor actor(w.arena, w.table(), 2);
  CHECK_EQ(actor.writer.ensure_row(kNow), Status::kOk);
  CHECK_EQ(actor.writer.secure_blocks(21, kWhatever), Status::kValueTooLarge);
  CHECK_EQ(free_blocks(w), 20u);
  CHECK_EQ(actor.writer.secure_blocks(20, kWhatever), Status::kOk);
  BlockRef ref;
  CHECK_EQ(actor.writer.items().bring_values(0, nullptr, 20 * 64 + 1, kWhatever, ref), Status::kValueTooLarge);
  CHECK(!fits_heap(w.arena, uint64_t{1} << 32) && !fits_heap(w.arena, kNone) && fits_heap(w.arena, 20 * 64));
}

TEST(a_value_of_more_blocks_than_one_hold_takes_is_written_and_freed_whole) {
  World w(heap_of(open_table("a", 10), 3 * kTakeBlocks));
  std::string value(64 * (2 * kTakeBlocks + 7) - 5, 0);
  for (size_t i = 0; i < value.size(); ++i) value[i] = static_cast<char>(i * 7 + i / 251);
  {
    Actor actor(w.arena, w.table(), 2);
    actor.append();
    BlockRef ref;
    CHECK_EQ(actor.writer.items().bring_values(0, value.data(), value.size(), kNow, ref), Status::kOk);
    int64_t key = 0;
    CHECK_EQ(create_item(actor.writer, w.table(), actor.span, 1, 1, kNow, key, ref), Status::kOk);
    actor.writer.items().end_values(true);
    std::unique_ptr<Batch> batch;
    CHECK(*get(w, {key}, batch).items_values()[0] == value);
    check_healthy(w.arena);
  }
  check_no_block_is_lost(w);
}

// ---- writers of values that one hold cannot take whole
// --------------------------------------------------------------------

namespace {

TableSpec keeping_table() {
  TableSpec t = open_table("a", 100);
  t.on_full = kOnFullWait;
  return t;
}

Actor& with_row(Actor& actor) {
  CHECK_EQ(actor.writer.ensure_row(kNow), Status::kOk);
  return actor;
}

}  // namespace

// Two of them, and a third with a small value between two slices: were the first's other blocks not its own, neither
// large value could ever be written.
TEST(a_writer_that_has_a_part_of_its_blocks_gets_the_others_whatever_is_taken_meanwhile) {
  World w(heap_of(keeping_table(), 1000));
  const std::unique_ptr<Arena> b = w.client(), c = w.client();
  Actor first(w.arena, w.table(), 2), second(*b, b->table(0), 2), small(*c, c->table(0), 2);
  for (Actor* actor : {&first, &second, &small}) with_row(*actor);
  static Actor* others[2];
  static int slices;
  others[0] = &second, others[1] = &small, slices = 0;
  fault::listen([](const char* name) {
    if (std::strcmp(name, "heap.slice_taken") != 0 || slices++ > 0) return;
    fault::listen(nullptr);
    CHECK_EQ(others[0]->writer.secure_blocks(700, kNow), Status::kTimeout);
    CHECK_EQ(others[0]->writer.secure_blocks(101, kNow), Status::kTimeout);
    CHECK_EQ(others[1]->writer.secure_blocks(50, kNow), Status::kOk);
  });
  CHECK_EQ(first.writer.secure_blocks(900, kNow), Status::kOk);
  CHECK_EQ(slices, 1);
  CHECK_EQ(free_blocks(w), 50u);
  CHECK_EQ(w.arena.state().num_reserved_blocks.get(), 0u);
  check_healthy(w.arena);
  bool is_second_done = false;
  const auto waits = [&] {
    CHECK_EQ(second.writer.secure_blocks(700, kWhatever), Status::kOk);
    is_second_done = true;
  };
  run_threads({waits, [&] {
                 until([&] { return w.arena.state().chunk_waiters.load() != 0; });
                 CHECK_EQ(first.writer.close(kNow), Status::kOk);
               }});
  CHECK(is_second_done);
  check_healthy(w.arena);
}

TEST(a_writer_that_waits_for_blocks_gives_back_its_own_so_one_of_two_goes_on) {
  World w(heap_of(keeping_table(), 700));
  const std::unique_ptr<Arena> b = w.client();
  Actor first(w.arena, w.table(), 2), second(*b, b->table(0), 2);
  for (Actor* actor : {&first, &second}) CHECK_EQ(with_row(*actor).writer.secure_blocks(300, kNow), Status::kOk);
  CHECK_EQ(free_blocks(w), 100u);
  CHECK_EQ(first.writer.secure_blocks(500, kNow), Status::kTimeout);
  CHECK_EQ(free_blocks(w), 400u);
  check_healthy(w.arena);
  CHECK_EQ(second.writer.secure_blocks(500, kNow), Status::kOk);
  CHECK_EQ(free_blocks(w), 200u);
  CHECK_EQ(first.writer.secure_blocks(200, kNow), Status::kOk);
  check_healthy(w.arena);
}

// A value that was written keeps its blocks, and reads as before.
TEST(blocks_of_written_values_are_not_given_back) {
  World w(heap_of(keeping_table(), 40));
  Actor actor(w.arena, w.table(), 2);
  StreamWriter& writer = with_row(actor).writer;
  CHECK_EQ(writer.secure_blocks(20, kNow), Status::kOk);
  const std::string value(64 * 7, 'v');
  writer.row().write_value(3, value.data(), static_cast<uint32_t>(value.size()));
  writer.row().mark(3);
  CHECK_EQ(writer.secure_blocks(35, kNow), Status::kTimeout);
  CHECK_EQ(free_blocks(w), 33u);
  std::string shown(value.size(), 0);
  writer.history().read_value(0, writer.history().value(0, 3), shown.data());
  CHECK(shown == value);
  check_healthy(w.arena);
}

// A call that ends between two slices (here because another process has the lock) leaves a reservation. The next call
// uses it or ends it.
TEST(a_reservation_ends_with_the_next_call_or_with_its_stream) {
  for (const uint32_t next : {900u, 700u, 200u, 1u}) {
    World w(heap_of(keeping_table(), 1000));
    Actor actor(w.arena, w.table(), 2);
    with_row(actor);
    const auto reserve = [&](uint64_t count) {
      Hold hold(w.arena);
      CHECK_EQ(hold.begin(kNow), Status::kOk);
      reserve_blocks(hold, 0, count);
    };
    CHECK_EQ(actor.writer.secure_blocks(300, kNow), Status::kOk);
    reserve(600);
    check_healthy(w.arena);
    CHECK_EQ(actor.writer.secure_blocks(next, kNow), Status::kOk);
    CHECK_EQ(w.arena.state().num_reserved_blocks.get(), 0u);
    CHECK_EQ(free_blocks(w), 1000u - std::max(next, 300u));
    reserve(free_blocks(w));
    CHECK_EQ(rebuild(w.arena, kNow), Status::kOk);
    CHECK_EQ(w.arena.state().num_reserved_blocks.get(), free_blocks(w));
    check_healthy(w.arena);
    CHECK_EQ(actor.writer.close(kNow), Status::kOk);
    CHECK_EQ(w.arena.state().num_reserved_blocks.get(), 0u);
    check_no_block_is_lost(w);
  }
}

TEST(damaged_reservations_are_found_before_anybody_waits_for_them) {
  for (const int which : {0, 1}) {
    World w(heap_of(keeping_table(), 100));
    Actor actor(w.arena, w.table(), 2);
    with_row(actor);
    if (which == 0) poke(w.arena.state().num_reserved_blocks, 101);
    else poke(w.arena.stream(0).reserved_blocks, 1);
    CHECK_THROWS(CorruptIndex, "more blocks are reserved than are free", actor.writer.secure_blocks(1, kWhatever));
  }
}

// Two writers write large values and a third small ones, on a heap that holds one large value and little more.
TEST(writers_of_values_of_many_holds_all_get_on) {
  World w(heap_of(queue_table("q", 1000), 1000, 1));
  const std::unique_ptr<Arena> b = w.client(), c = w.client();
  constexpr int kLarge = 60, kSmall = 600;
  const auto writes = [](Arena& arena, uint32_t blocks, int times) {
    Actor actor(arena, arena.table(0));
    StreamWriter& writer = actor.writer;
    std::string value(size_t{64} * blocks, static_cast<char>(blocks));
    for (int i = 0; i < times; ++i) {
      CHECK_EQ(writer.ensure_row(kWhatever), Status::kOk);
      writer.row().give_up_values();
      CHECK_EQ(writer.secure_blocks(blocks, kWhatever), Status::kOk);
      writer.row().write_value(3, value.data(), static_cast<uint32_t>(value.size()));
      writer.row().write_no_value(5);
      const double priority = 1;
      int64_t key = 0;
      uint32_t done = 0;
      CHECK_EQ(writer.items().insert_rows(arena.table(0), actor.step, &priority, 1, kWhatever, &key, done),
               Status::kOk);
    }
  };
  const auto consumes = [&] {
    Learner learner(*w.daemon);
    for (int left = 2 * kLarge + kSmall; left > 0;) {
      Batch batch(w.arena, 4);
      left -= static_cast<int>(learner.sample(w.table(), 4, batch, kWhatever, true, 1).done);
    }
  };
  run_threads({[&] { writes(w.arena, 900, kLarge); }, [&] { writes(*b, 700, kLarge); }, [&] { writes(*c, 30, kSmall); },
               consumes});
  check_healthy(w.arena);
}

// Padding before the span repeats its first step, its value too. Other padding has no value. Nor has the room that a
// batch got when a later part had a longer item.
TEST(padding_has_no_value_unless_it_repeats_the_first_step) {
  World w(heap_of(open_table("a", 100), 4000));
  Actor actor(w.arena, w.table(), 8);
  for (int i = 0; i < 4; ++i) actor.append();  // serials 1 to 4: column 3 has a value for all but 2
  for (const uint16_t flags : {uint16_t{0}, kRepeatStart}) {
    Pattern p = whole_pattern(w.arena);
    for (PatternOutput& o : p.outputs) o.flags |= flags;
    p.names = std::to_string(flags);
    PreparedPattern pattern(p);
    World other(heap_of(open_table("a", 100), 4000));
    Actor there(other.arena, other.table(), 8);
    for (int i = 0; i < 4; ++i) there.append();
    DueItem due{0, &pattern, 2, 2, {2, 1}, 1};
    int64_t key = 0;
    uint32_t done = 0;
    CHECK_EQ(insert_due(there.writer, &due, 1, kNow, &key, done), Status::kOk);
    std::unique_ptr<Batch> batch;
    const std::vector<std::optional<std::string>> have = get(other, {key}, batch).values(3);
    CHECK_EQ(have.size(), 5u);
    for (int i = 0; i < 2; ++i) {
      CHECK_EQ(have[static_cast<size_t>(i)].has_value(), flags != 0);
      if (flags != 0) CHECK(*have[static_cast<size_t>(i)] == value_of(3, 3));
    }
    CHECK(*have[2] == value_of(3, 3));
    CHECK(*have[3] == value_of(4, 3));
    CHECK(!have[4].has_value());
  }
}

TEST(a_batch_of_many_parts_has_every_value_in_its_order) {
  World w(heap_of(open_table("a", 3000), 60'000, 1, 4000));
  Actor actor(w.arena, w.table(), 5);
  std::vector<int64_t> keys;
  for (int i = 0; i < 1500; ++i) {
    actor.append();
    keys.push_back(actor.create(1 + static_cast<uint32_t>(i) % std::min(actor.writer.history().num_steps(), 5u)));
  }
  check_items(w, keys);
}

TEST(damage_to_what_an_item_brought_is_found) {
  World w(heap_of(open_table("a", 10), 200));
  Actor actor(w.arena, w.table());
  const int64_t key = actor.insert();
  for (int i = 0; i < 8; ++i) actor.insert();
  const uint32_t g = find_item(w.arena, w.table(), key);
  poke(w.arena.values(g), w.arena.values(w.table().record->order.get().tail).get());
  std::vector<std::string> faults;
  CHECK_EQ(check_invariants(w.arena, kNow, faults), Status::kOk);
  CHECK(!faults.empty());
  CHECK(faults[0].find("lie in a block that its chunk does not own") != std::string::npos);
  std::unique_ptr<Batch> batch;
  CHECK_THROWS(CorruptIndex, "a block of another chunk", get(w, {key}, batch));
}

TEST(values_outlast_a_rebuild) {
  World w(heap_of(open_table("a", 100), 300));
  Actor actor(w.arena, w.table(), 6);
  for (int i = 0; i < 60; ++i) {
    actor.append();
    actor.create(std::min(actor.writer.history().num_steps(), 3u));
    if (i % 7 == 0) CHECK_EQ(rebuild(w.arena, kNow), Status::kOk);
    check_items(w, live_keys(w.arena, w.table()));
  }
  check_healthy(w.arena);
}

}  // namespace shmreplay::test
