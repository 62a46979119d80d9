#include "items/patterns.h"

#include <stdexcept>

#include "support/fixtures.h"

namespace shmreplay::test {
namespace {

ArenaSpec small() { return arena_of({open_table("a", 10)}); }

// A pattern that differs from others only by its number.
Pattern numbered(int32_t n) {
  Pattern p;
  p.outputs.push_back({0, 0, 1, 0, 0});
  p.slices.push_back(from_to(n, n + 1));
  return p;
}

Pattern random_pattern(Random& random) {
  Pattern p;
  p.names = std::string(random.below(30), 'n');
  for (uint64_t o = random.below(20); o > 0; --o) {
    const auto num_slices = static_cast<uint32_t>(random.below(4));
    p.outputs.push_back({static_cast<uint16_t>(random.below(100)), static_cast<uint16_t>(random.below(4)), num_slices,
                         static_cast<uint32_t>(p.slices.size()), static_cast<uint32_t>(random.below(3))});
    for (uint32_t i = 0; i < num_slices; ++i) {
      const auto step = static_cast<int32_t>(random.below(7)) - 3;
      p.slices.push_back({static_cast<int32_t>(random.below(20)) - 10, static_cast<int32_t>(random.below(20)) - 10,
                          step == 0 ? 1 : step, static_cast<uint32_t>(random.below(4))});
    }
  }
  return p;
}

bool same(const Pattern& a, const Pattern& b) { return a.encode() == b.encode() && a.names == b.names; }

Status intern(Arena& arena, PreparedPattern& p, int refs = 0) {
  Hold hold(arena);
  CHECK_EQ(hold.begin(kNow), Status::kOk);
  const Status s = intern_pattern(hold, p);
  for (; refs > 0; --refs) add_pattern_ref(hold, p.record);
  return s;
}

void release(Arena& arena, const PreparedPattern& p) {
  Hold hold(arena);
  CHECK_EQ(hold.begin(kNow), Status::kOk);
  drop_pattern_ref(hold, p.record);
}

bool note(Arena& arena, PatternCache& cache, uint32_t record) {
  Hold hold(arena);
  CHECK_EQ(hold.begin(kNow), Status::kOk);
  return cache.note(hold, record);
}

// Puts every record into use by other patterns.
std::vector<PreparedPattern> fill(Arena& arena) {
  std::vector<PreparedPattern> all;
  for (uint32_t i = 0; i < arena.geometry().max_patterns; ++i) {
    all.emplace_back(numbered(static_cast<int32_t>(i)));
    CHECK_EQ(intern(arena, all.back(), 1), Status::kOk);
  }
  return all;
}

std::vector<int64_t> rows_of(const Slice& slice, uint64_t positions) {
  Pattern p;
  p.outputs.push_back({0, 0, 1, 0, 0});
  p.slices.push_back(slice);
  std::vector<int64_t> rows;
  p.each_row(0, positions, [&](int64_t row) { rows.push_back(row); });
  CHECK_EQ(p.rows(0, positions), rows.size());
  return rows;
}

using Rows = std::vector<int64_t>;

}  // namespace

TEST(a_pattern_comes_back_from_its_words_as_it_was) {
  Random random(seed());
  for (int round = 0; round < 500; ++round) {
    const Pattern p = random_pattern(random);
    const std::vector<uint64_t> words = p.encode();
    const Pattern back =
        Pattern::decode(words.data(), static_cast<uint32_t>(p.outputs.size()), static_cast<uint32_t>(p.slices.size()),
                        static_cast<uint32_t>(words.size() * 8));
    CHECK(same(p, back));
    CHECK_EQ(back.structure_hash(), p.structure_hash());
    CHECK_EQ(back.names, p.names);
  }
}

TEST(damaged_words_are_corruption_or_a_pattern_within_bounds) {
  Random random(seed());
  int refused = 0;
  for (int round = 0; round < 2000; ++round) {
    std::vector<uint64_t> words = random_pattern(random).encode();
    words[random.below(words.size())] = random.word();
    try {
      const Pattern p =
          Pattern::decode(words.data(), static_cast<uint32_t>(random.below(8)), static_cast<uint32_t>(random.below(8)),
                          static_cast<uint32_t>(words.size() * 8));
      for (const PatternOutput& o : p.outputs) CHECK(o.first_slice + uint64_t{o.num_slices} <= p.slices.size());
    } catch (const CorruptIndex&) {
      ++refused;
    }
  }
  CHECK(refused > 100);
}

TEST(a_pattern_too_large_for_a_record_says_how_large_and_what_to_do) {
  Pattern p;
  p.outputs.push_back({0, 0, 300, 0, 0});
  for (int32_t i = 0; i < 300; ++i) p.slices.push_back(from_to(i, i + 1));
  CHECK_THROWS(std::length_error, "at most 4032 bytes and 256 outputs fit; select with slices", p.encode());
  Pattern wide;
  for (uint16_t c = 0; c < 257; ++c) wide.outputs.push_back({c, 0, 0, 0, 0});
  CHECK_THROWS(std::length_error, "257 outputs", wide.encode());
}

TEST(the_structure_is_names_columns_and_squeezing_and_not_which_rows) {
  const auto structure = [](const char* names, uint16_t column, uint16_t flags, int32_t begin) {
    Pattern p;
    p.names = names;
    p.outputs.push_back({column, flags, 1, 0, 0});
    p.slices.push_back(from_to(begin, begin + 1));
    return p.structure_hash();
  };
  const uint64_t base = structure("x", 1, 0, 0);
  CHECK_EQ(structure("x", 1, 0, 5), base);
  CHECK_EQ(structure("x", 1, kRepeatStart, 0), base);
  CHECK(structure("y", 1, 0, 0) != base);
  CHECK(structure("x", 2, 0, 0) != base);
  CHECK(structure("x", 1, kSqueezed, 0) != base);
}

TEST(slices_select_rows_from_either_end_with_any_step) {
  CHECK_EQ(rows_of({0, 0, 1, kEndAtEnd}, 4), (Rows{0, 1, 2, 3}));
  CHECK_EQ(rows_of({-2, 0, 1, kBeginAtEnd | kEndAtEnd}, 5), (Rows{3, 4}));
  CHECK_EQ(rows_of({1, -1, 1, kEndAtEnd}, 5), (Rows{1, 2, 3}));
  CHECK_EQ(rows_of({0, 0, 2, kEndAtEnd}, 5), (Rows{0, 2, 4}));
  CHECK_EQ(rows_of({3, -1, -1, 0}, 5), (Rows{3, 2, 1, 0}));
  CHECK_EQ(rows_of({-1, -1, -2, kBeginAtEnd}, 5), (Rows{4, 2, 0}));
  CHECK_EQ(rows_of({2, 2, 1, 0}, 5), Rows{});
  CHECK_EQ(rows_of({2, 5, -1, 0}, 5), Rows{});
  CHECK_EQ(rows_of({-3, 2, 1, 0}, 5), (Rows{-3, -2, -1, 0, 1}));  // before the span: padding
}

TEST(several_slices_of_an_output_follow_one_another) {
  Pattern p;
  p.outputs.push_back({0, 0, 1, 2, 0});
  p.outputs.push_back({0, 0, 2, 0, 0});
  p.slices = {from_to(3, 5), from_to(1, -1, -1), from_to(0, 1)};
  Rows rows;
  p.each_row(1, 5, [&](int64_t row) { rows.push_back(row); });
  CHECK_EQ(rows, (Rows{3, 4, 1, 0}));
  CHECK_EQ(p.rows(0, 5), 1u);
}

TEST(equal_rules_share_a_record_and_different_ones_do_not) {
  World w(small());
  PreparedPattern a(numbered(1)), b(numbered(1)), c(numbered(2));
  CHECK_EQ(intern(w.arena, a), Status::kOk);
  CHECK_EQ(intern(w.arena, b), Status::kOk);
  CHECK_EQ(intern(w.arena, c), Status::kOk);
  CHECK_EQ(a.record, b.record);
  CHECK(a.record != c.record);
}

TEST(when_every_record_is_in_use_a_new_rule_is_refused_until_one_is_given_up) {
  World w(small());
  std::vector<PreparedPattern> all = fill(w.arena);
  PreparedPattern late(numbered(1000));
  CHECK_EQ(intern(w.arena, late), Status::kNoPatterns);
  CHECK_EQ(intern(w.arena, all[9]), Status::kOk);  // known rules still go in
  const uint32_t generation = w.arena.pattern(all[7].record).usage.get().generation;
  release(w.arena, all[7]);
  CHECK_EQ(intern(w.arena, late), Status::kOk);
  CHECK_EQ(late.record, all[7].record);
  CHECK_EQ(w.arena.pattern(late.record).usage.get().generation, generation + 1);
}

TEST(a_rule_nobody_uses_keeps_its_record_while_there_are_unused_ones) {
  World w(small());
  PreparedPattern a(numbered(1)), b(numbered(2));
  CHECK_EQ(intern(w.arena, a), Status::kOk);
  CHECK_EQ(intern(w.arena, b), Status::kOk);
  CHECK(a.record != b.record);
  PreparedPattern again(numbered(1));
  CHECK_EQ(intern(w.arena, again), Status::kOk);
  CHECK_EQ(again.record, a.record);
}

TEST(a_rule_whose_record_was_given_away_is_interned_anew) {
  World w(small());
  std::vector<PreparedPattern> all = fill(w.arena);
  release(w.arena, all[0]);
  PreparedPattern other(numbered(5000));
  CHECK_EQ(intern(w.arena, other, 1), Status::kOk);
  release(w.arena, all[1]);
  const uint32_t place = all[1].record;
  CHECK_EQ(intern(w.arena, all[0]), Status::kOk);  // it remembers its old record, which another pattern has now
  CHECK_EQ(all[0].record, place);
}

TEST(giving_up_a_reference_that_was_not_there_is_corruption) {
  World w(small());
  PreparedPattern a(numbered(1));
  CHECK_EQ(intern(w.arena, a), Status::kOk);
  CHECK_THROWS(CorruptIndex, "more references than it had", release(w.arena, a));
}

TEST(a_cache_decodes_what_it_noted_and_notes_a_record_only_once) {
  World w(small());
  PatternCache cache(w.arena);
  PreparedPattern p(whole_pattern(w.arena));
  CHECK_EQ(intern(w.arena, p, 1), Status::kOk);
  for (int i = 0; i < 20; ++i) CHECK(note(w.arena, cache, p.record));
  cache.settle();
  CHECK(same(cache.at(p.record), p.pattern));
}

TEST(a_cache_asks_to_settle_when_too_many_rules_are_new_at_once) {
  World w(small());
  std::vector<PreparedPattern> all = fill(w.arena);
  PatternCache cache(w.arena);
  size_t noted = 0;
  while (note(w.arena, cache, all[noted].record)) ++noted;
  CHECK(noted > 0);
  cache.settle();
  CHECK(note(w.arena, cache, all[noted].record));
  cache.settle();
  for (size_t i = 0; i <= noted; ++i) CHECK(same(cache.at(all[i].record), all[i].pattern));
}

TEST(a_cache_notices_that_a_record_was_given_to_another_rule) {
  World w(small());
  std::vector<PreparedPattern> all = fill(w.arena);
  PatternCache cache(w.arena);
  CHECK(note(w.arena, cache, all[3].record));
  cache.settle();
  release(w.arena, all[3]);
  PreparedPattern late(numbered(1000));
  CHECK_EQ(intern(w.arena, late, 1), Status::kOk);
  CHECK_EQ(late.record, all[3].record);
  cache.begin_part();
  CHECK(note(w.arena, cache, late.record));
  cache.settle();
  CHECK(same(cache.at(late.record), late.pattern));
}

// Items picked before keep their rule until their part is gathered. The pattern that now has the record waits for the
// next part.
TEST(a_cache_keeps_a_rule_that_its_part_still_needs) {
  World w(small());
  std::vector<PreparedPattern> all = fill(w.arena);
  PatternCache cache(w.arena);
  cache.begin_part();
  CHECK(note(w.arena, cache, all[3].record));
  release(w.arena, all[3]);
  PreparedPattern late(numbered(1000));
  CHECK_EQ(intern(w.arena, late, 1), Status::kOk);
  CHECK(!note(w.arena, cache, late.record));
  cache.settle();
  CHECK(same(cache.at(late.record), all[3].pattern));
  cache.begin_part();
  CHECK(note(w.arena, cache, late.record));
  cache.settle();
  CHECK(same(cache.at(late.record), late.pattern));
}

}  // namespace shmreplay::test
