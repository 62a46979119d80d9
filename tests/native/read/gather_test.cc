#include "read/gather.h"
#include "arena/span.h"

#include <algorithm>
#include <utility>

#include "read/gather_threads.h"
#include "read/item_view.h"
#include "support/fixtures.h"

namespace shmreplay::test {
namespace {

// Items of one stream whose step t shows serial 1 + t, gathered by any pattern.
class Scene {
 public:
  explicit Scene(uint32_t chunk_steps = 4, uint32_t num_steps = 40)
      : world_(arena_of({open_table("a", 100)}, chunk_steps, 64)),
        actor_(world_.arena, world_.table(), num_steps),
        cache_(world_.arena) {
    for (uint32_t i = 0; i < num_steps; ++i) actor_.append();
  }

  // Picks steps [first, first + steps) with that padding for the next gather.
  void pick(const Pattern& pattern, uint32_t first, uint32_t steps, Padding padding = {0, 0}) {
    Pick p{};
    p.num_steps = steps;
    p.padding = padding;
    p.pattern = intern(pattern);
    p.first_run = static_cast<uint32_t>(runs_.size());
    each_run(world_.arena, place(first), steps,
             [&](uint32_t chunk, uint32_t row, uint32_t rows) { runs_.push_back({chunk, row, rows}); });
    p.num_runs = static_cast<uint32_t>(runs_.size()) - p.first_run;
    picks_.push_back(p);
    steps_.push_back(first);
  }

  // Gathers into buffers full of rubbish; item i of the batch is pick i.
  Batch& run(uint32_t rows, bool time_major = false, std::vector<uint32_t> shown = {}, uint32_t num_threads = 1) {
    batch_ = std::make_unique<Batch>(world_.arena, static_cast<int64_t>(picks_.size()));
    batch_->time_major = time_major;
    batch_->only = std::move(shown);
    const Pattern& structure = cache_.at(picks_[0].pattern);
    std::vector<uint32_t> wanted(structure.outputs.size(), rows);
    for (size_t o = 0; o < wanted.size(); ++o) {
      if (structure.outputs[o].flags & kSqueezed) wanted[o] = 1;
    }
    CHECK(batch_->prepare(structure, wanted.data(), 0));
    for (OutputBuffer& out : batch_->outputs()) {
      std::fill_n(out.data, picks_.size() * out.rows * out.row_bytes, '\x5a');
    }
    threads_.gather(num_threads, cache_, picks_.data(), static_cast<uint32_t>(picks_.size()), runs_.data(), 0,
                    batch_->outputs());
    return *batch_;
  }

  // Checks that the batch is what a plain loop over positions gives, whichever axis comes first, however many outputs
  // it shows, and however many threads gather it.
  void check(uint32_t rows) {
    std::vector<uint32_t> all, last;
    for (uint32_t o = 0; o < cache_.at(picks_[0].pattern).outputs.size(); ++o) all.push_back(o);
    last = {all.back()};
    for (const bool time_major : {false, true}) {
      for (const uint32_t num_threads : {1u, 3u}) {
        check_shown(run(rows, time_major, {}, num_threads), all);
        check_shown(run(rows, time_major, last, num_threads), last);
      }
    }
    check_numbers(run(rows));
  }

  // Checks that a row looked up by its number is the one that was gathered, and that the masks are the same.
  void check_numbers(const Batch& batch) {
    for (size_t i = 0; i < picks_.size(); ++i) {
      const Pattern& pattern = cache_.at(picks_[i].pattern);
      for (size_t o = 0; o < pattern.outputs.size(); ++o) {
        std::vector<int64_t> numbers(batch.rows(o), 77);
        const auto is_real = std::make_unique<bool[]>(batch.rows(o));
        number_rows(world_.arena, pattern, o, picks_[i], runs_.data(), batch.rows(o), numbers.data(), is_real.get());
        for (uint32_t j = 0; j < batch.rows(o); ++j)
          check_number(batch, static_cast<int64_t>(i), pattern, o, j, numbers[j], is_real[j]);
      }
    }
  }

  const Arena& arena() const { return world_.arena; }
  GatherThreads& threads() { return threads_; }
  std::vector<Run>& runs() { return runs_; }

 private:
  uint32_t intern(const Pattern& pattern) {
    PreparedPattern prepared(pattern);
    Hold hold(world_.arena);
    CHECK_EQ(hold.begin(kNow), Status::kOk);
    CHECK_EQ(intern_pattern(hold, prepared), Status::kOk);
    CHECK(cache_.note(hold, prepared.record));
    hold.end();
    cache_.settle();
    return prepared.record;
  }

  Place place(uint32_t step) const {
    uint32_t chunk = world_.arena.stream(0).window.get().first;
    const uint32_t rows = world_.arena.geometry().chunk_steps;
    for (; step >= rows; step -= rows) chunk = world_.arena.chunk(chunk).stream.get().next;
    return {chunk, step};
  }

  void check_shown(const Batch& batch, const std::vector<uint32_t>& shown) const {
    for (size_t i = 0; i < picks_.size(); ++i) {
      for (size_t o = 0; o < shown.size(); ++o) check_output(batch, i, cache_.at(picks_[i].pattern), o, shown[o]);
    }
  }

  void check_number(const Batch& batch, int64_t i, const Pattern& pattern, size_t o, uint32_t j, int64_t number,
                    bool is_real) const {
    const uint32_t column = pattern.outputs[o].column, row_bytes = world_.arena.columns()[column].row_bytes;
    const uint32_t chunk_steps = world_.arena.geometry().chunk_steps;
    CHECK_EQ(is_real, batch.real(o, i, j));
    const std::string gathered(batch.cell(o, i, j), row_bytes);
    if (number == kNoRow) return CHECK_EQ(gathered, std::string(row_bytes, '\0'));
    const char* row = world_.arena.row(static_cast<uint32_t>(number / chunk_steps), column,
                                       static_cast<uint32_t>(number % chunk_steps));
    CHECK_EQ(gathered, std::string(row, row_bytes));
  }

  // Checks output o of the batch, which is output `number` of the pattern.
  void check_output(const Batch& batch, size_t i, const Pattern& pattern, size_t o, size_t number) const {
    const Pick& p = picks_[i];
    const PatternOutput& rule = pattern.outputs[number];
    const auto steps = static_cast<int64_t>(p.num_steps), before = static_cast<int64_t>(p.padding.before);
    const int64_t positions = before + steps + p.padding.after;
    uint32_t row = 0, real = 0;
    const auto expect = [&](int64_t position) {
      if (row == batch.rows(o)) return;
      const int64_t step = position - before;
      const bool is_real = step >= 0 && step < steps - rule.trim_end;
      uint64_t serial = 0;  // padding shows zeros ...
      if (is_real) serial = 1 + steps_[i] + static_cast<uint64_t>(step);
      else if ((rule.flags & kRepeatStart) && step < 0 && steps > rule.trim_end) serial = 1 + steps_[i];
      CHECK(cell_shows(batch.cell(o, static_cast<int64_t>(i), row), world_.arena.columns()[rule.column].row_bytes,
                       serial));
      CHECK_EQ(batch.real(o, static_cast<int64_t>(i), row), is_real);
      real += is_real ? 1 : 0;
      ++row;
    };
    pattern.each_row(number, static_cast<uint64_t>(positions), expect);
    while (row < batch.rows(o)) expect(positions + 1'000'000);  // ... after the last row too
    CHECK_EQ(batch.length(o, static_cast<int64_t>(i)), static_cast<int32_t>(real));
  }

  World world_;
  Actor actor_;
  PatternCache cache_;
  std::vector<Pick> picks_;
  std::vector<Run> runs_;
  std::vector<uint64_t> steps_;
  std::unique_ptr<Batch> batch_;
  GatherThreads threads_{world_.arena, 0};
};

Pattern with(std::vector<Slice> slices, uint16_t flags = 0, uint32_t trim_end = 0) {
  Pattern p;
  const auto n = static_cast<uint32_t>(slices.size());
  for (uint16_t c = 0; c < 3; ++c) p.outputs.push_back({c, flags, n, 0, trim_end});
  p.slices = std::move(slices);
  return p;
}

}  // namespace

TEST(items_of_one_step_are_copied_squeezed) {
  Scene s;
  for (uint32_t i = 0; i < 40; ++i) s.pick(one_step_pattern(s.arena()), i, 1);
  s.check(1);
  CHECK_EQ(s.run(1).serial(17), 18u);
}

TEST(whole_items_within_a_chunk_are_copied_as_they_lie) {
  Scene s;
  for (uint32_t i = 0; i < 10; ++i) s.pick(whole_pattern(s.arena()), 4 * i, 4);
  s.check(4);
}

TEST(items_that_cross_chunk_borders_look_like_any_other) {
  for (const uint32_t chunk_steps : {1u, 3u, 4u, 64u}) {
    Scene s(chunk_steps);
    for (uint32_t i = 0; i < 20; ++i) s.pick(whole_pattern(s.arena()), i, 15);
    s.check(15);
  }
}

TEST(items_shorter_than_the_batch_are_padded_with_zeros_behind) {
  Scene s;
  for (uint32_t i = 1; i <= 8; ++i) s.pick(whole_pattern(s.arena()), i, i);
  s.check(8);
}

TEST(missing_steps_before_and_after_are_padding) {
  Scene s;
  s.pick(whole_pattern(s.arena()), 5, 3, {2, 0});
  s.pick(whole_pattern(s.arena()), 5, 3, {0, 2});
  s.pick(whole_pattern(s.arena()), 5, 1, {2, 2});
  s.check(5);
}

TEST(padding_before_a_span_can_repeat_its_first_step) {
  Scene s;
  const Pattern repeat = with({whole_span()}, kRepeatStart);
  s.pick(repeat, 5, 3, {2, 0});
  s.pick(repeat, 5, 3, {0, 2});
  s.pick(repeat, 5, 2);
  s.check(5);
  CHECK_EQ(s.run(5).serial(0, 0), 6u);
  CHECK_EQ(s.run(5).serial(1, 4), 0u);
}

TEST(an_output_may_lack_the_final_steps) {
  Scene s;
  for (const uint16_t flags : {uint16_t{0}, kRepeatStart}) {
    for (const uint32_t trim : {1u, 2u, 5u, 9u}) s.pick(with({whole_span()}, flags, trim), 3, 5);
  }
  s.check(6);
}

TEST(strided_reversed_and_repeated_slices_are_gathered_row_by_row) {
  Scene s;
  s.pick(with({{0, 0, 2, kEndAtEnd}}), 1, 9);
  s.pick(with({{-1, -1, -1, kBeginAtEnd}}), 1, 9);
  s.pick(with({from_to(2, 4), from_to(2, 4), from_to(0, 1)}), 1, 9);
  s.pick(with({{-3, 0, 1, kBeginAtEnd | kEndAtEnd}}), 1, 9);
  s.pick(with({from_to(-2, 3)}), 1, 9);
  s.check(9);
}

TEST(outputs_may_show_columns_in_another_order_and_more_than_once) {
  Scene s;
  Pattern p;
  p.outputs = {{2, 0, 1, 0, 0}, {0, kSqueezed, 1, 1, 0}, {0, 0, 1, 0, 1}, {1, 0, 1, 2, 0}};
  p.slices = {whole_span(), from_to(0, 1), {-2, 0, 1, kBeginAtEnd | kEndAtEnd}};
  for (uint32_t i = 0; i < 12; ++i) s.pick(p, 2 * i, 6);
  s.check(6);
}

TEST(any_mixture_of_items_and_patterns_is_what_a_plain_loop_gives) {
  Random random(seed());
  for (int round = 0; round < 60; ++round) {
    Scene s(1 + static_cast<uint32_t>(random.below(9)));
    const Slice slices[] = {
        whole_span(), from_to(0, 3), {-2, 0, 1, kBeginAtEnd | kEndAtEnd}, {-1, -1, -2, kBeginAtEnd}, from_to(-1, 4, 2)};
    std::vector<Pattern> patterns;
    for (int i = 0; i < 4; ++i) {
      patterns.push_back(with({slices[random.below(5)], slices[random.below(5)]}, random.chance(0.3) ? kRepeatStart : 0,
                              static_cast<uint32_t>(random.below(3))));
    }
    for (int i = 0; i < 30; ++i) {
      const auto steps = 1 + static_cast<uint32_t>(random.below(15));
      const Padding padding{static_cast<uint32_t>(random.below(3)), static_cast<uint32_t>(random.below(3))};
      s.pick(patterns[random.below(4)], static_cast<uint32_t>(random.below(40 - steps)), steps, padding);
    }
    s.check(1 + static_cast<uint32_t>(random.below(30)));
  }
}

TEST(an_item_of_another_structure_than_the_batch_is_corruption) {
  Scene s;
  s.pick(whole_pattern(s.arena()), 0, 2);
  Pattern narrow = whole_pattern(s.arena());
  narrow.outputs.pop_back();
  s.pick(narrow, 0, 2);
  CHECK_THROWS(CorruptIndex, "another structure than its table", s.run(2));
}

TEST(threads_start_with_the_first_batch_that_wants_them_and_serve_the_next) {
  Scene s;
  for (uint32_t i = 0; i < 40; ++i) s.pick(one_step_pattern(s.arena()), i, 1);
  s.run(1);
  CHECK_EQ(s.threads().num_started(), 0u);
  s.run(1, false, {}, 3);
  CHECK_EQ(s.threads().num_started(), 2u);
  for (int again = 0; again < 50; ++again) CHECK_EQ(s.run(1, false, {}, 2).serial(17), 18u);
  CHECK_EQ(s.threads().num_started(), 2u);
}

TEST(damage_that_a_thread_meets_ends_the_call_and_no_thread) {
  Scene s;
  for (uint32_t i = 0; i < 40; ++i) s.pick(one_step_pattern(s.arena()), i, 1);
  const Run run = std::exchange(s.runs()[30], Run{kNone, 0, 1});
  bool is_damage = false;
  try {
    s.run(1, false, {}, 3);
  } catch (const CorruptIndex&) {
    is_damage = true;
  }
  CHECK(is_damage);
  s.runs()[30] = run;
  s.check(1);
}

}  // namespace shmreplay::test
