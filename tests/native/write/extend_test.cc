#include "write/extend.h"

#include "arena/admission.h"
#include "chunks/streams_fixture.h"

namespace shmreplay::test {
namespace {

// Arrays of rows; each column of row k shows first + k.
struct Columns {
  Columns(const Arena& arena, uint64_t first, uint32_t n) {
    for (uint32_t c = 0; c < arena.geometry().num_columns; ++c) {
      const uint32_t bytes = arena.columns()[c].row_bytes;
      data.emplace_back(size_t{bytes} * n);
      for (uint32_t k = 0; k < n; ++k) fill_cell(data.back().data() + size_t{bytes} * k, bytes, first + k);
    }
    for (const auto& column : data) rows.columns.push_back(column.data());
    rows.ends = nullptr;
    rows.num_rows = n;
  }
  std::vector<std::vector<char>> data;
  ExtendRows rows;
};

}  // namespace

TEST(rows_of_arrays_make_the_items_that_appends_make) {
  for (const uint32_t chunk_steps : {1u, 3u, 16u}) {
    World w(arena_of({open_table("a", 1000)}, chunk_steps, 300));
    RuleWriter writer(w.arena, w.table(), 40, facts_of(w.arena), {newest(w.arena, 0, 3, AtEnd::kShorten)});
    Columns columns(w.arena, 1, 100);
    std::vector<uint8_t> ends(100, 0);
    ends[9] = ends[10] = ends[99] = 1;
    columns.rows.ends = ends.data();
    Extend extend(writer, columns.rows, true, true);
    CHECK_EQ(extend.run(kNow), Status::kOk);
    CHECK_EQ(extend.num_rows(), 100u);
    CHECK_EQ(extend.keys().size(), 100u);
    for (uint64_t k = 0; k < 100; ++k) {
      std::vector<uint64_t> expected;
      for (uint64_t row = k; row < k + 3 && row < 100; ++row) {
        expected.push_back(row + 1);
        if (ends[row] != 0) break;
      }
      CHECK_EQ(rows_of(w, extend.keys()[k]), expected);
    }
    check_healthy(w.arena);
  }
}

TEST(final_steps_lie_behind_the_last_rows_of_their_episodes) {
  for (const uint32_t chunk_steps : {1u, 3u, 16u}) {
    World w(arena_of({open_table("a", 1000)}, chunk_steps, 300));
    ItemRule with_next = newest(w.arena, 0, 2);
    for (RuleOutput& output : with_next.outputs) output.moves = true;
    RuleWriter writer(w.arena, w.table(), 40, facts_of(w.arena), {with_next});
    Columns columns(w.arena, 1, 50), last(w.arena, 1001, 3);
    std::vector<uint8_t> ends(50, 0);
    ends[9] = ends[10] = ends[49] = 1;
    columns.rows.ends = ends.data();
    FinalRows finals;
    finals.columns = last.rows.columns;
    for (uint32_t c = 0; c < finals.columns.size(); ++c) finals.given.push_back(c);
    columns.rows.finals = &finals;
    Extend extend(writer, columns.rows, true, true);
    CHECK_EQ(extend.run(kNow), Status::kOk);
    CHECK_EQ(extend.num_rows(), 50u);
    const auto rows_behind = [&](uint64_t row) { return ends[row] == 0 ? row + 2 : 1001 + (row > 9) + (row > 10); };
    uint64_t number = 0;
    for (const int64_t key : extend.keys()) {
      const std::vector<uint64_t> shown = rows_of(w, key);
      CHECK_EQ(shown[0], ++number);
      CHECK_EQ(shown.size(), 2u);
      CHECK_EQ(shown[1], rows_behind(number - 1));
    }
    CHECK_EQ(number, 50u);
    check_healthy(w.arena);
  }
}

TEST(without_rules_every_row_is_an_item_of_its_episode) {
  World w(arena_of({open_table("a", 1000)}, 3, 300));
  RuleWriter writer(w.arena, w.table(), 0, facts_of(w.arena), {});
  Columns columns(w.arena, 1, 50);
  std::vector<uint8_t> ends(50, 0);
  ends[0] = ends[19] = ends[21] = 1;
  columns.rows.ends = ends.data();
  Extend extend(writer, columns.rows, true, false);
  CHECK_EQ(extend.run(kNow), Status::kOk);
  CHECK_EQ(extend.num_rows(), 50u);
  uint64_t episode = 0;
  int64_t step = 0;
  for (uint64_t k = 0; k < 50; ++k) {
    CHECK_EQ(rows_of(w, extend.keys()[k]), std::vector<uint64_t>{k + 1});
    const ItemRecord& item = w.arena.item(find_item(w.arena, w.table(), extend.keys()[k]));
    const bool begins = k == 0 || ends[k - 1] != 0;
    CHECK_EQ(item.episode.get() != episode, begins);
    step = begins ? 0 : step + 1;
    CHECK_EQ(item.step.get(), step);
    episode = item.episode.get();
  }
  CHECK_EQ(w.table().record->num_episodes.get(), 4u);
  CHECK_EQ(report(*w.table().record).difference(), 0.0);
  check_healthy(w.arena);
}

TEST(items_of_many_rows_share_holds) {
  World w(arena_of({open_table("a", 10'000)}, 64, 100));
  RuleWriter writer(w.arena, w.table(), 33, facts_of(w.arena), {newest(w.arena, 0, 1)});
  Columns columns(w.arena, 1, 3200);
  Extend extend(writer, columns.rows, true, true);
  const uint64_t before = num_holds(w.arena);
  CHECK_EQ(extend.run(kNow), Status::kOk);
  CHECK(num_holds(w.arena) - before <= 100 + 3200 / 64 + 10);
  CHECK_EQ(live_items(w.table()), 3200u);
  check_healthy(w.arena);
}

TEST(what_a_limiter_keeps_out_ends_it_behind_a_whole_row) {
  World w(arena_of({queue_table("q", 7)}));
  RuleWriter writer(w.arena, w.table(), 40, facts_of(w.arena), {newest(w.arena, 0, 1), newest(w.arena, 0, 1)});
  Columns columns(w.arena, 1, 20);
  Extend extend(writer, columns.rows, true, true);
  CHECK_EQ(extend.run(kNow), Status::kTimeout);
  CHECK_EQ(extend.num_rows(), 3u);
  CHECK_EQ(extend.keys().size(), 6u);
  CHECK_EQ(live_items(w.table()), 6u);
  check_healthy(w.arena);
}

TEST(items_go_in_before_it_waits_for_a_chunk_that_they_may_free) {
  World w(arena_of({queue_table("q", 100)}, 2, 6));
  const auto writes = [&] {
    RuleWriter writer(w.arena, w.table(), 4, facts_of(w.arena), {newest(w.arena, 0, 1)});
    Columns columns(w.arena, 1, 300);
    Extend extend(writer, columns.rows, true, true);
    CHECK_EQ(extend.run(kWhatever), Status::kOk);
    CHECK_EQ(extend.keys().size(), 300u);
  };
  const auto consumes = [&] {
    Learner learner(w.arena);
    for (uint64_t k = 1; k <= 300; ++k) {
      Batch batch(w.arena, 1);
      CHECK_EQ(learner.sample(w.table(), 1, batch, kWhatever).status, Status::kOk);
      CHECK_EQ(batch.serial(0), k);
    }
  };
  run_threads({writes, consumes});
  check_healthy(w.arena);
}

TEST(rows_of_arrays_have_their_values_whether_rules_make_the_items_or_not) {
  for (const bool by_rule : {true, false}) {
    ArenaSpec spec = with_values(arena_of({open_table("a", 1000)}, 3, 300), 400);
    spec.columns.pop_back();  // items made by rules bring nothing
    World w(spec);
    std::vector<ItemRule> rules;
    if (by_rule) rules.push_back(newest(w.arena, 0, 2, AtEnd::kSkip));
    RuleWriter writer(w.arena, w.table(), by_rule ? 34 : 0, facts_of(w.arena), std::move(rules));
    Columns columns(w.arena, 1, 100);
    RowValues values;
    values.blocks = [&w](StreamWriter&, uint32_t row) { return blocks_of_row(w.arena, row + 1); };
    values.write = [&w](StreamWriter& stream, uint32_t row) {
      for (const uint32_t c : {3u, 5u}) {
        const std::string value = value_of(row + 1, c);
        if (is_none(row + 1, c)) stream.row().write_no_value(c);
        else stream.row().write_value(c, value.data(), static_cast<uint32_t>(value.size()));
      }
    };
    for (const uint32_t c : {3u, 5u}) columns.rows.columns[c] = nullptr;
    columns.rows.values = &values;
    Extend extend(writer, columns.rows, true, true);
    CHECK_EQ(extend.run(kWhatever), Status::kOk);
    CHECK_EQ(extend.num_rows(), 100u);
    const std::vector<int64_t> live = live_keys(w.arena, w.table());
    CHECK(live.size() > 20 && live.size() < 100);  // the oldest were evicted for their blocks
    for (const int64_t key : live) CHECK_EQ(rows_of(w, key).size(), by_rule ? 2u : 1u);
    check_healthy(w.arena);
  }
}

}  // namespace shmreplay::test
