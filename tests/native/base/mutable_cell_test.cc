// Mutable columns: cells that change in place while others read them.
#include <atomic>
#include <unistd.h>

#include "base/mutable_cell.h"
#include "items/data_update.h"
#include "support/fixtures.h"

namespace shmreplay::test {
namespace {

constexpr uint32_t kColumn = 4;  // of with_values(): 13 bytes

ArenaSpec mutable_spec(uint32_t chunk_steps = 3) {
  return with_values(arena_of({open_table("a", 100)}, chunk_steps, 64), 4000);
}

// New cells of `num_steps` steps for each key; each shows `serial` + its number.
std::vector<char> cells_of(uint32_t num_keys, uint32_t num_steps, uint64_t serial) {
  std::vector<char> cells(size_t{num_keys} * num_steps * 13);
  for (uint64_t i = 0; i < uint64_t{num_keys} * num_steps; ++i) fill_cell(cells.data() + i * 13, 13, serial + i);
  return cells;
}

uint32_t update(World& w, const std::vector<int64_t>& keys, uint32_t at, uint32_t num_steps, uint64_t serial) {
  const std::vector<char> cells = cells_of(static_cast<uint32_t>(keys.size()), num_steps, serial);
  uint32_t updated = 0;
  CHECK_EQ(update_data(w.arena, w.table(), keys.data(), static_cast<uint32_t>(keys.size()), {{kColumn, cells.data()}},
                       at, num_steps, kNow, updated),
           Status::kOk);
  return updated;
}

// What the item's real rows show in the mutable column, as serials.
std::vector<uint64_t> shown(World& w, int64_t key) {
  SampleCall call(w.arena);
  Batch batch(w.arena, 1);
  uint32_t found = 0;
  CHECK_EQ(call.get(w.table(), &key, 1, kNow, batch, &found).done, 1u);
  std::vector<uint64_t> serials;
  for (uint32_t row = 0; row < batch.rows(kColumn); ++row) {
    if (!batch.real(kColumn, 0, row)) continue;
    uint64_t serial = 0;
    std::memcpy(&serial, batch.cell(kColumn, 0, row), 8);
    CHECK(cell_shows(batch.cell(kColumn, 0, row), 13, serial));
    serials.push_back(serial);
  }
  return serials;
}

using Serials = std::vector<uint64_t>;

}  // namespace

TEST(cells_change_in_the_items_named_and_in_the_steps_given) {
  World w(mutable_spec());
  Actor actor(w.arena, w.table(), 8);
  for (int i = 0; i < 8; ++i) actor.append();
  const int64_t one = actor.create(6), two = actor.create(2);  // steps 3 to 8, and 7 to 8
  CHECK(shown(w, one) == (Serials{3, 4, 5, 6, 7, 8}));
  CHECK_EQ(update(w, {one}, 1, 3, 100), 1u);
  CHECK(shown(w, one) == (Serials{3, 100, 101, 102, 7, 8}));
  CHECK_EQ(update(w, {two, one}, 0, 2, 200), 2u);  // both show step 7 and 8
  CHECK(shown(w, two) == (Serials{200, 201}));
  CHECK(shown(w, one) == (Serials{202, 203, 101, 102, 200, 201}));
  for (uint64_t i = 0; i < 9; ++i) update(w, {one}, 5, 1, 300 + i);
  CHECK(shown(w, two) == (Serials{200, 308}));
}

TEST(stale_keys_padding_and_steps_behind_the_span_are_skipped) {
  World w(mutable_spec());
  Actor actor(w.arena, w.table(), 8);
  for (int i = 0; i < 6; ++i) actor.append();
  DueItem due{0, &actor.span, 2, 3, {2, 4}, 1};  // positions 2 to 4 of 0 to 8 are real
  int64_t padded = 0;
  uint32_t done = 0;
  CHECK_EQ(insert_due(actor.writer, &due, 1, kNow, &padded, done), Status::kOk);
  const int64_t gone = actor.create(1);
  CHECK_EQ(delete_items(w.arena, w.table(), &gone, 1, kNow, done), Status::kOk);
  CHECK_EQ(update(w, {gone, padded, 12345}, 1, 2, 100), 1u);  // positions 1 and 2
  CHECK(shown(w, padded) == (Serials{103, 4, 5}));
  CHECK_EQ(update(w, {padded}, 4, 50, 200), 1u);
  CHECK(shown(w, padded) == (Serials{103, 4, 200}));
  CHECK_EQ(update(w, {padded}, 1'000'000, 1, 300), 1u);
  const int64_t whole = actor.create(6);
  CHECK(shown(w, whole) == (Serials{1, 2, 103, 4, 200, 6}));
}

TEST(a_step_that_its_writer_has_not_finished_is_left_alone) {
  World w(mutable_spec());
  Actor actor(w.arena, w.table(), 8);
  actor.append();
  CHECK_EQ(actor.writer.ensure_row(kNow), Status::kOk);
  CHECK_EQ(secure_row(actor.writer, w.arena, 2, kNow), Status::kOk);
  write_row(actor.writer, w.arena, 2);
  int64_t key = 0;
  CHECK_EQ(create_item(actor.writer, w.table(), actor.span, 2, 1, kNow, key), Status::kOk);
  update(w, {key}, 0, 2, 100);
  CHECK(shown(w, key) == (Serials{100, 2}));
  actor.writer.finish_row();
  update(w, {key}, 0, 2, 200);
  CHECK(shown(w, key) == (Serials{200, 201}));
}

// There are more bytes than one hold writes, so items are cut.
TEST(updates_of_any_size_go_hold_by_hold) {
  ArenaSpec s = arena_of({open_table("a", 100)}, 16, 64);
  s.columns.push_back({20'000, kMutableColumn});
  World w(s);
  Actor actor(w.arena, w.table(), 12);
  for (int i = 0; i < 12; ++i) actor.append();
  std::vector<int64_t> keys{actor.create(12), actor.create(5)};
  const uint64_t holds = w.arena.lock().hold_seq.load();
  std::vector<char> cells(size_t{2} * 10 * 20'000);
  for (uint64_t i = 0; i < 20; ++i) fill_cell(cells.data() + i * 20'000, 20'000, 100 + i);
  uint32_t updated = 0;
  CHECK_EQ(update_data(w.arena, w.table(), keys.data(), 2, {{3, cells.data()}}, 1, 10, kNow, updated), Status::kOk);
  CHECK_EQ(updated, 2u);
  CHECK((w.arena.lock().hold_seq.load() - holds) / 2 >= 20 / 3);
  Batch batch(w.arena, 2);
  SampleCall call(w.arena);
  uint32_t found[2];
  CHECK_EQ(call.get(w.table(), keys.data(), 2, kNow, batch, found).done, 2u);
  for (uint32_t row = 0; row < 12; ++row) {  // the second item's positions 1 to 4 are steps 8 to 11, the last writer's
    const uint64_t want = row == 0 || row == 11 ? (row == 0 ? 1 : 113) : row < 8 ? 99 + row : 110 + row - 8;
    CHECK(cell_shows(batch.cell(3, 0, row), 20'000, want));
  }
}

TEST(no_reader_sees_a_torn_cell_while_others_update_it) {
  World w(mutable_spec(2));
  Actor actor(w.arena, w.table(), 4);
  for (int i = 0; i < 4; ++i) actor.append();
  const std::vector<int64_t> keys{actor.create(4), actor.create(2)};
  const uint32_t rounds = kThreadSanitized ? 2'000 : 40'000;
  std::atomic<int> busy{2};
  std::vector<std::function<void()>> bodies;
  for (uint64_t u = 0; u < 2; ++u) {
    bodies.push_back([&, u] {
      for (uint64_t i = 0; i < rounds; ++i) update(w, keys, 0, 4, (u + 1) * 0x0101010101010101 * (1 + i % 100));
      --busy;
    });
  }
  for (int r = 0; r < 2; ++r) {
    bodies.push_back([&] {
      while (busy > 0) shown(w, keys[0]), shown(w, keys[1]);
    });
  }
  run_threads(bodies);
}

TEST(a_process_killed_anywhere_in_an_update_leaves_old_cells_and_new_ones_and_no_mix) {
  World w(mutable_spec(2));
  Actor actor(w.arena, w.table(), 4);
  for (int i = 0; i < 4; ++i) actor.append();
  const std::vector<int64_t> keys{actor.create(4)};
  int64_t k = 1;
  for (bool died = true; died; k += kSanitized ? 5 : 1) {
    update(w, keys, 0, 4, 100);
    Child child([&] {
      const SessionInfo info = open_own_session(*w.segments.attach());
      const auto arena = w.segments.attach(info.index, info.generation);
      const std::vector<char> cells = cells_of(1, 4, 200);
      uint32_t updated = 0;
      fault::arm(k);
      CHECK_EQ(update_data(*arena, arena->table(0), keys.data(), 1, {{kColumn, cells.data()}}, 0, 4, kNow, updated),
               Status::kOk);
      fault::arm(0);
      _exit(0);
    });
    died = child.killed();
    size_t changed = 0;
    const Serials have = shown(w, keys[0]);
    while (changed < 4 && have[changed] == 200 + changed) ++changed;
    for (size_t i = changed; i < 4; ++i) CHECK_EQ(have[i], 100 + i);
    if (!died) CHECK_EQ(changed, 4u);
    uint32_t reaped = 0;
    CHECK_EQ(reap_dead_sessions(*w.daemon, kWhatever, reaped), Status::kOk);
    check_healthy(w.arena);
  }
  CHECK(k > 8);
}

}  // namespace shmreplay::test
