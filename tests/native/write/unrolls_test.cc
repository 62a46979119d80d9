// Items that each lie in a chunk of their own, and chunks of several streams side by side.
#include <algorithm>
#include <set>

#include "arena/span.h"
#include "chunks/streams_fixture.h"
#include "read/item_view.h"

namespace shmreplay::test {
namespace {

constexpr uint32_t kSteps = 4;  // of one unroll; a chunk has one more

ArenaSpec spec_of(std::vector<TableSpec> tables, uint32_t num_chunks = 200) {
  ArenaSpec s = arena_of(std::move(tables), kSteps + 1, num_chunks);
  s.max_streams = 80;
  return s;
}

// One stream with rules, whose row k has the serial 1 + k.
class Stream {
 public:
  Stream(Arena& arena, std::vector<ItemRule> rules, uint32_t history = 2 * kSteps + 2)
      : writer(arena, arena.table(0), history, facts_of(arena), std::move(rules)), arena_(arena) {
    CHECK_EQ(writer.stream().open(kNow), Status::kOk);
  }

  // Answers the keys of the items that it made.
  std::vector<int64_t> append() {
    write(WriterCall::kAppend);
    CHECK_EQ(writer.look_at_row(-1, missing_), Status::kOk);
    return put_in();
  }
  std::vector<int64_t> end(bool has_final, bool clears = true) {
    if (has_final) write(WriterCall::kEnd);
    else writer.begin(WriterCall::kEnd);
    CHECK_EQ(writer.look_at_end(clears, -1, missing_), Status::kOk);
    return put_in();
  }
  int64_t create(uint32_t length) {
    writer.begin(WriterCall::kItem);
    CHECK_EQ(writer.look_at_span(length, 1), Status::kOk);
    return put_in().front();
  }

  RuleWriter writer;
  uint64_t serial = 0;  // of the newest row

 private:
  void write(WriterCall call) {
    CHECK_EQ(writer.stream().ensure_row(kNow), Status::kOk);
    writer.begin(call);
    write_row(writer.stream(), arena_, ++serial);
  }
  std::vector<int64_t> put_in() {
    size_t at = 0;
    RuleWriter* const self = &writer;
    CHECK_EQ(RuleWriter::insert({&self, 1}, kNow, at), Status::kOk);
    const std::vector<int64_t> keys = writer.keys();
    CHECK(writer.conclude());
    return keys;
  }

  Arena& arena_;
  ItemRule::Missing missing_{};
};

// The chunks that the item's steps are in, and then its place.
std::vector<uint32_t> chunks_of(World& w, int64_t key, uint32_t table = 0) {
  Hold hold(w.arena);
  CHECK_EQ(hold.begin(kNow), Status::kOk);
  const ItemRecord& item = w.arena.item(find_item(hold, w.table(table), key));
  std::vector<uint32_t> chunks;
  each_run(w.arena, item.place.get(), item.extent.get().num_steps,
           [&](uint32_t c, uint32_t, uint32_t) { chunks.push_back(c); });
  CHECK_EQ(chunks.front(), item.place.get().chunk);
  return chunks;
}
Place place_of(World& w, int64_t key) {
  Hold hold(w.arena);
  CHECK_EQ(hold.begin(kNow), Status::kOk);
  return w.arena.item(find_item(hold, w.table(), key)).place.get();
}

void append(std::vector<int64_t>& to, const std::vector<int64_t>& keys) {
  to.insert(to.end(), keys.begin(), keys.end());
}

// Draws the n oldest items of a queue and answers how they lie.
bool lie_at_one_stride(World& w, SampleCall& call, uint32_t n, ItemStride& stride) {
  struct Looker final : ViewSink {
    bool take(const DrawnItems& part, bool stays) noexcept override {
      CHECK(stays);
      lie = find_stride(part.picks, part.n, part.runs, stride);
      return true;
    }
    bool lie = false;
    ItemStride stride{};
  } looker;
  const std::vector<double> uniforms(n, 0.5);
  CHECK_EQ(call.view(w.table(), {n, n, true, uniforms.data()}, kNow, looker).status, Status::kOk);
  stride = looker.stride;
  return looker.lie;
}

}  // namespace

TEST(each_unroll_lies_in_a_chunk_of_its_own_from_its_first_row_on) {
  World w(spec_of({open_table("a", 100)}));
  Stream s(w.arena, {unroll(w.arena, 0, kSteps)});
  std::vector<int64_t> keys;
  for (uint32_t k = 0; k < 5 * kSteps + 1; ++k) append(keys, s.append());
  CHECK_EQ(keys.size(), 5u);
  std::set<uint32_t> chunks;
  for (uint64_t i = 0; i < keys.size(); ++i) {
    CHECK_EQ(rows_of(w, keys[i]), serials(1 + i * kSteps, 1 + (i + 1) * kSteps));
    CHECK_EQ(chunks_of(w, keys[i]).size(), 1u);
    CHECK_EQ(place_of(w, keys[i]).row, 0u);
    chunks.insert(place_of(w, keys[i]).chunk);
  }
  CHECK_EQ(chunks.size(), 5u);
  check_healthy(w.arena);
}

TEST(an_episode_begins_a_chunk_and_no_row_of_it_repeats_the_last_ones) {
  World w(spec_of({open_table("a", 100)}));
  Stream s(w.arena, {unroll(w.arena, 0, kSteps)});
  for (uint32_t length = 1; length <= 3 * kSteps; ++length) {
    for (const bool has_final : {true, false}) {
      const uint64_t first = s.serial + 1;
      std::vector<int64_t> keys;
      for (uint32_t k = 0; k < length; ++k) append(keys, s.append());
      append(keys, s.end(has_final));
      CHECK_EQ(keys.size(), (length + kSteps - 1) / kSteps);
      for (uint64_t i = 0; i < keys.size(); ++i) {
        CHECK_EQ(rows_of(w, keys[i]), serials(first + i * kSteps, std::min(first + (i + 1) * kSteps, s.serial)));
        CHECK_EQ(chunks_of(w, keys[i]).size(), 1u);
      }
      CHECK_EQ(place_of(w, keys[0]).row, 0u);
      check_healthy(w.arena);
    }
  }
}

TEST(items_that_run_over_a_repeated_row_show_it_once) {
  World w(spec_of({open_table("a", 100), open_table("b", 100)}));
  Stream s(w.arena, {unroll(w.arena, 0, kSteps), newest(w.arena, 1, 3)});
  for (uint32_t k = 0; k < 6 * kSteps; ++k) {
    const std::vector<int64_t> keys = s.append();
    if (s.serial < 3) continue;
    CHECK_EQ(rows_of(w, keys.back(), 1), serials(s.serial - 2, s.serial));
    const auto most = static_cast<uint32_t>(std::min<uint64_t>(s.serial, 2 * kSteps + 2));
    for (uint32_t length = 1; length <= most; ++length) {
      CHECK_EQ(rows_of(w, s.create(length)), serials(s.serial - length + 1, s.serial));
    }
  }
  check_healthy(w.arena);
}

TEST(a_stretch_over_ends_of_episodes_is_unrolled_as_one_and_ends_when_its_history_is_cleared) {
  World w(spec_of({open_table("a", 100)}));
  Stream s(w.arena, {unroll(w.arena, 0, kSteps, Reach::kStretch)});
  std::vector<int64_t> keys;
  for (uint32_t k = 0; k < 2 * kSteps + 1; ++k) {
    append(keys, s.append());
    if (k % 3 == 2) append(keys, s.end(false, false));
  }
  CHECK_EQ(keys.size(), 2u);
  append(keys, s.end(false, true));
  const uint64_t first = s.serial + 1;
  for (uint32_t k = 0; k <= kSteps; ++k) append(keys, s.append());
  CHECK_EQ(rows_of(w, keys[0]), serials(1, kSteps + 1));
  CHECK_EQ(rows_of(w, keys[1]), serials(kSteps + 1, 2 * kSteps + 1));
  CHECK_EQ(rows_of(w, keys.back()), serials(first, first + kSteps));
  for (const int64_t key : {keys[0], keys[1], keys.back()}) CHECK_EQ(chunks_of(w, key).size(), 1u);
  check_healthy(w.arena);
}

TEST(whatever_an_arena_stores_twice_its_items_are_those_of_one_that_does_not) {
  Random random(seed());
  for (int round = 0; round < 20; ++round) {
    const Reach reach = random.chance(0.5) ? Reach::kStretch : Reach::kEpisode;
    const std::vector<TableSpec> tables{open_table("a", 15), open_table("b", 15)};
    World filled(spec_of(tables, 60)), plain(arena_of(tables, 3, 80));
    Stream one(filled.arena, {unroll(filled.arena, 0, kSteps, reach), newest(filled.arena, 1, 3)});
    Stream other(plain.arena, {unroll(plain.arena, 0, kSteps, reach), newest(plain.arena, 1, 3)});
    CHECK(one.writer.stream().steps().unrolls() && !other.writer.stream().steps().unrolls());
    const auto check_same = [&](const std::vector<int64_t>& have, const std::vector<int64_t>& want, uint32_t from = 0) {
      CHECK_EQ(have.size(), want.size());
      for (size_t i = from; i < have.size(); ++i) {
        const uint32_t table = one.writer.num_due() > 0 && one.writer.rule_of(static_cast<uint32_t>(i)) == 1 ? 1 : 0;
        CHECK_EQ(rows_of(filled, have[i], table), rows_of(plain, want[i], table));
      }
    };
    for (int k = 0; k < 300; ++k) {
      check_same(one.append(), other.append());
      if (random.chance(0.15)) {
        const bool has_final = random.chance(0.5), clears = random.chance(0.5);
        const std::vector<int64_t> have = one.end(has_final, clears);
        check_same(have, other.end(has_final, clears));
      }
      if (one.writer.stream().history().num_steps() == 0 || random.chance(0.5)) continue;
      const auto length = static_cast<uint32_t>(1 + random.below(one.writer.stream().history().num_steps()));
      CHECK_EQ(rows_of(filled, one.create(length)), rows_of(plain, other.create(length)));
    }
    check_healthy(filled.arena);
  }
}

TEST(chunks_of_another_size_and_columns_that_are_not_plain_are_filled_as_ever) {
  World larger(arena_of({open_table("a", 100)}, kSteps + 2, 50));
  CHECK(!Stream(larger.arena, {unroll(larger.arena, 0, kSteps)}).writer.stream().steps().unrolls());
  World valued(with_values(spec_of({open_table("a", 100)}), 100));
  CHECK(!Stream(valued.arena, {unroll(valued.arena, 0, kSteps)}).writer.stream().steps().unrolls());
  World w(spec_of({open_table("a", 100)}));
  CHECK(!Stream(w.arena, {newest(w.arena, 0, kSteps + 1)}).writer.stream().steps().unrolls());
}

TEST(unrolls_without_a_step_behind_them_repeat_nothing) {
  World w(arena_of({open_table("a", 100)}, kSteps, 50));
  ItemRule rule = newest(w.arena, 0, kSteps, AtEnd::kPad);
  rule.period = kSteps;
  rule.is_unroll = true;
  Stream s(w.arena, {rule});
  for (uint32_t length = 1; length <= 2 * kSteps; ++length) {
    const uint64_t first = s.serial + 1;
    std::vector<int64_t> keys;
    for (uint32_t k = 0; k < length; ++k) append(keys, s.append());
    append(keys, s.end(false));
    for (uint64_t i = 0; i < keys.size(); ++i) {
      CHECK_EQ(rows_of(w, keys[i]), serials(first + i * kSteps, std::min(first + (i + 1) * kSteps - 1, s.serial)));
      CHECK_EQ(chunks_of(w, keys[i]).size(), 1u);
      CHECK_EQ(place_of(w, keys[i]).row, 0u);
    }
  }
  check_healthy(w.arena);
}

TEST(unrolls_of_streams_that_step_together_lie_at_one_stride_round_after_round) {
  for (const uint32_t n : {2u, 7u, 33u, 70u}) {
    World w(spec_of({queue_table("q", 4 * n)}, 9 * n + 3));
    Fleet fleet(w.arena, {unroll(w.arena, 0, kSteps, Reach::kStretch)}, n, kSteps + 1);
    CHECK_EQ(fleet.append(kNow), Status::kOk);
    for (int round = 0; round < 40; ++round) {
      for (uint32_t k = 0; k < kSteps; ++k) CHECK_EQ(fleet.append(kNow), Status::kOk);
      SampleCall call(w.arena);
      ItemStride stride{};
      CHECK(lie_at_one_stride(w, call, n, stride));
      CHECK(stride.chunks == 1 && stride.rows == 0);
      call.drop();
    }
    check_healthy(w.arena);
  }
}

TEST(runs_survive_readers_that_hold_some_of_them_back) {
  constexpr uint32_t n = 8;
  World w(spec_of({queue_table("q", 4 * n)}, 12 * n));
  Fleet fleet(w.arena, {unroll(w.arena, 0, kSteps, Reach::kStretch)}, n, kSteps + 1);
  CHECK_EQ(fleet.append(kNow), Status::kOk);
  std::vector<std::unique_ptr<SampleCall>> held;
  Random random(seed());
  uint32_t num_at_one_stride = 0;
  for (int round = 0; round < 60; ++round) {
    for (uint32_t k = 0; k < kSteps; ++k) CHECK_EQ(fleet.append(kNow), Status::kOk);
    for (const uint32_t part : {3u, 5u}) {
      ItemStride stride{};
      held.push_back(std::make_unique<SampleCall>(w.arena));
      num_at_one_stride += lie_at_one_stride(w, *held.back(), part, stride) && stride.chunks == 1 ? 1 : 0;
    }
    while (held.size() > 4) held.erase(held.begin() + static_cast<ptrdiff_t>(random.below(held.size())));
  }
  CHECK_EQ(num_at_one_stride, 120u);
  check_healthy(w.arena);
}

TEST(streams_find_chunks_where_there_is_no_run_of_them) {
  World w(spec_of({queue_table("q", 100)}, 18));
  const auto other = w.client();
  {
    Fleet hoarder(*other, {newest(*other, 0, 1)}, 1);
    for (uint32_t k = 0; k < 16 * (kSteps + 1); ++k) CHECK_EQ(hoarder.append(kNow), Status::kOk);
  }
  // Every other of its chunks is withheld.
  std::vector<std::unique_ptr<SampleCall>> held;
  ItemStride stride{};
  for (int chunk = 0; chunk < 16; ++chunk) {
    held.push_back(std::make_unique<SampleCall>(w.arena));
    CHECK(lie_at_one_stride(w, *held.back(), kSteps + 1, stride));
    if (chunk % 2 == 1) held.pop_back();
  }
  Fleet fleet(w.arena, {unroll(w.arena, 0, kSteps, Reach::kStretch)}, 4, kSteps + 1);
  for (uint32_t k = 0; k <= kSteps; ++k) CHECK_EQ(fleet.append(kNow), Status::kOk);
  SampleCall call(w.arena);
  CHECK(!lie_at_one_stride(w, call, 4, stride));
  check_healthy(w.arena);
}

TEST(items_at_one_stride_go_forwards_and_are_alike) {
  World w(arena_of({queue_table("q", 100)}, 4, 50));
  Actor actor(w.arena, w.table());
  for (int i = 0; i < 12; ++i) actor.insert();
  SampleCall call(w.arena);
  ItemStride stride{};
  CHECK(lie_at_one_stride(w, call, 1, stride));
  CHECK(lie_at_one_stride(w, call, 3, stride));  // the rest of the first chunk
  CHECK(stride.chunks == 0 && stride.rows == 1);
  CHECK(!lie_at_one_stride(w, call, 5, stride));  // into the third one
  World lifo(arena_of({open_table("a", 100, kLifo)}, 4, 50));
  Actor newest_first(lifo.arena, lifo.table());
  newest_first.insert();
  SampleCall again(lifo.arena);
  CHECK(lie_at_one_stride(lifo, again, 4, stride));  // the same row
  CHECK(stride.chunks == 0 && stride.rows == 0);
}

}  // namespace shmreplay::test
