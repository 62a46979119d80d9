#include "write/item_rules.h"

#include <cmath>

#include "support/harness.h"

namespace shmreplay::test {
namespace {

// A stream of one double column (0) and one that final rows lack (1): every cell of step t is t.
class FakeStream final : public StreamView {
 public:
  explicit FakeStream(uint64_t history) : history_(history) {}
  uint64_t newest() const noexcept override { return next_ - 1; }
  uint64_t oldest_held() const noexcept override {
    return std::max(held_from_, next_ > history_ + 1 ? next_ - history_ - 1 : 0);
  }
  uint64_t episode_start() const noexcept override { return episode_start_; }
  uint64_t stretch_start() const noexcept override { return held_from_; }
  uint64_t max_steps() const noexcept override { return history_; }
  bool has(uint64_t step, uint32_t column) const noexcept override { return !(column == 1 && step == lacking_); }
  bool has_all_since(uint64_t step) const noexcept override { return lacking_ < step || lacking_ >= next_; }
  const char* cell(uint64_t step, uint32_t) const override {
    value_ = step == bad_ ? NAN : static_cast<double>(step);
    return reinterpret_cast<const char*>(&value_);
  }

  void write() { ++next_; }
  void write_final() { lacking_ = next_++; }
  void end(bool clear) {
    episode_start_ = next_;
    if (clear) held_from_ = next_;
  }
  uint64_t bad_ = UINT64_MAX;

 private:
  uint64_t history_, next_ = 0, episode_start_ = 0, held_from_ = 0, lacking_ = UINT64_MAX;
  mutable double value_ = 0;
};

const std::vector<NumberFormat> kFormats = {{'f', 8}, {'f', 8}};

ItemRule window(int32_t lo, int32_t hi, AtStart at_start = AtStart::kSkip, AtEnd at_end = AtEnd::kSkip,
                uint32_t period = 1) {
  ItemRule rule;
  rule.lo = lo;
  rule.hi = hi;
  rule.period = period;
  rule.at_start = at_start;
  rule.at_end = at_end;
  rule.is_strict = true;
  rule.outputs.push_back({0, false, false, {{lo, hi, 1}}});
  return rule;
}

// (first step, steps, padding before, padding after) of every item that is due.
using Spans = std::vector<std::vector<int64_t>>;

class Run {
 public:
  Run(ItemRule& rule, uint64_t history) : stream(history), rule_(rule) {}

  void steps(int n) {
    for (int i = 0; i < n; ++i) {
      stream.write();
      CHECK_EQ(rule_.on_step(stream, kFormats, due, missing), Status::kOk);
      rule_.applied();
    }
  }
  Status end(bool has_final = false, bool clear = true) {
    if (has_final) stream.write_final();
    const Status s = rule_.on_end(stream, has_final, clear, kFormats, due, missing);
    if (s == Status::kOk) rule_.applied();
    stream.end(clear);
    return s;
  }
  Spans take() {
    Spans spans;
    for (const DueItem& d : due)
      spans.push_back({static_cast<int64_t>(d.first), d.num_steps, d.padding.before, d.padding.after});
    due.clear();
    return spans;
  }

  FakeStream stream;
  std::vector<DueItem> due;
  ItemRule::Missing missing{};

 private:
  ItemRule& rule_;
};

}  // namespace

TEST(numbers_are_read_as_their_column_has_them) {
  const int8_t i1 = -3;
  const int16_t i2 = -300;
  const int32_t i4 = -70000;
  const int64_t i8 = -5000000000;
  const uint8_t u1 = 250;
  const uint16_t u2 = 65000;
  const uint32_t u4 = 4000000000;
  const uint64_t u8 = 5000000000;
  const float f4 = 0.5f;
  const double f8 = -0.25;
  const auto read = [](const void* at, char kind, uint32_t bytes) {
    return read_number(static_cast<const char*>(at), {kind, bytes});
  };
  CHECK_EQ(read(&i1, 'i', 1), -3.0);
  CHECK_EQ(read(&i2, 'i', 2), -300.0);
  CHECK_EQ(read(&i4, 'i', 4), -70000.0);
  CHECK_EQ(read(&i8, 'i', 8), -5e9);
  CHECK_EQ(read(&u1, 'u', 1), 250.0);
  CHECK_EQ(read(&u1, 'b', 1), 250.0);
  CHECK_EQ(read(&u2, 'u', 2), 65000.0);
  CHECK_EQ(read(&u4, 'u', 4), 4e9);
  CHECK_EQ(read(&u8, 'u', 8), 5e9);
  CHECK_EQ(read(&f4, 'f', 4), 0.5);
  CHECK_EQ(read(&f8, 'f', 8), -0.25);
  CHECK(std::isnan(read(&f8, 'f', 2)));
  CHECK(std::isnan(read(&f8, 'c', 16)));
}

TEST(a_window_holds_back_until_its_end_is_there_and_skips_what_does_not_fit) {
  ItemRule rule = window(-1, 3);
  CHECK_EQ(rule.history(), 4u);
  Run run(rule, rule.history());
  run.steps(6);
  CHECK_EQ(run.end(), Status::kOk);
  CHECK_EQ(run.take(), (Spans{{0, 4, 0, 0}, {1, 4, 0, 0}, {2, 4, 0, 0}}));
  run.steps(3);
  CHECK_EQ(run.end(), Status::kOk);
  CHECK_EQ(run.take(), Spans{});
}

TEST(every_end_does_what_it_is_drawn_to_do) {
  const auto spans = [](AtEnd at_end, uint32_t period, int steps) {
    ItemRule rule = window(-1, 3, AtStart::kShort, at_end, period);
    Run run(rule, rule.history());
    run.steps(steps);
    CHECK_EQ(run.end(), Status::kOk);
    return run.take();
  };
  CHECK_EQ(spans(AtEnd::kSkip, 1, 4), (Spans{{0, 3, 1, 0}, {0, 4, 0, 0}}));
  CHECK_EQ(spans(AtEnd::kShorten, 1, 4), (Spans{{0, 3, 1, 0}, {0, 4, 0, 0}, {1, 3, 0, 0}, {2, 2, 0, 0}}));
  CHECK_EQ(spans(AtEnd::kPad, 1, 4), (Spans{{0, 3, 1, 0}, {0, 4, 0, 0}, {1, 3, 0, 1}, {2, 2, 0, 2}}));
  CHECK_EQ(spans(AtEnd::kShift, 1, 4), (Spans{{0, 3, 1, 0}, {0, 4, 0, 0}}));  // that window was made already
  CHECK_EQ(spans(AtEnd::kShift, 4, 6), (Spans{{0, 3, 1, 0}, {2, 4, 0, 0}}));  // reference 4 is shifted to 3
  CHECK_EQ(spans(AtEnd::kShift, 1, 2), (Spans{{0, 2, 1, 1}}));                // longer than the episode
}

TEST(the_final_row_completes_windows_and_is_no_reference_step) {
  ItemRule rule = window(0, 2, AtStart::kSkip, AtEnd::kPad);
  Run run(rule, rule.history());
  run.steps(2);
  CHECK_EQ(run.end(true), Status::kOk);
  CHECK_EQ(run.take(), (Spans{{0, 2, 0, 0}, {1, 2, 0, 0}}));
  CHECK_EQ(run.end(true), Status::kOk);  // the episode is only a final row
  CHECK_EQ(run.take(), Spans{});
}

TEST(a_next_step_that_was_not_given_is_one_that_lacks_every_column) {
  ItemRule rule = window(0, 2, AtStart::kSkip, AtEnd::kShorten);
  rule.outputs.push_back({0, true, true, {{1, 2, 1}}});
  CHECK(rule.wants_final());
  Run run(rule, rule.history());
  run.steps(2);
  CHECK_EQ(run.end(), Status::kOk);
  CHECK_EQ(run.take(), (Spans{{0, 2, 0, 0}, {1, 1, 0, 1}}));
}

TEST(an_episode_is_one_item_and_outgrows_the_history_while_it_can_still_end) {
  ItemRule rule = window(0, 1);
  rule.reach = Reach::kWholeEpisode;
  Run run(rule, 3);
  run.steps(3);
  CHECK_EQ(run.end(true), Status::kOk);
  CHECK_EQ(run.take(), (Spans{{0, 4, 0, 0}}));
  run.steps(3);
  run.stream.write();
  CHECK_EQ(rule.on_step(run.stream, kFormats, run.due, run.missing), Status::kHistory);
}

TEST(a_stretch_goes_on_over_ends_that_do_not_clear) {
  ItemRule rule = window(-1, 2, AtStart::kSkip, AtEnd::kShorten);
  rule.reach = Reach::kStretch;
  Run run(rule, rule.history());
  run.steps(2);
  CHECK_EQ(run.end(false, false), Status::kOk);
  run.steps(2);
  CHECK_EQ(run.take(), (Spans{{0, 3, 0, 0}, {1, 3, 0, 0}}));
  CHECK_EQ(run.end(false, true), Status::kOk);
  CHECK_EQ(run.take(), (Spans{{2, 2, 0, 0}}));
  run.steps(1);
  CHECK_EQ(run.take(), Spans{});
}

TEST(a_stretch_wants_a_final_row_that_is_whole) {
  ItemRule rule = window(0, 2);
  rule.reach = Reach::kStretch;
  rule.outputs.push_back({1, false, false, {{0, 1, 1}}});
  Run run(rule, rule.history());
  run.steps(2);
  CHECK_EQ(run.end(true, false), Status::kMissingCell);
  CHECK_EQ(run.missing.step, 2u);
  CHECK_EQ(run.missing.column, 1u);
}

TEST(conditions_look_at_the_newest_step) {
  ItemRule rule = window(0, 1);
  rule.reach = Reach::kHistory;
  rule.is_strict = false;
  rule.conditions = {{ConditionKind::kStepIndex, Compare::kEqual, 3, 1, 0},
                     {ConditionKind::kData, Compare::kLess, 0, 5, 0}};
  Run run(rule, 1);
  run.steps(9);
  CHECK_EQ(run.take(), (Spans{{1, 1, 0, 0}, {4, 1, 0, 0}}));
  rule.conditions = {{ConditionKind::kEndOfEpisode, Compare::kEqual, 0, 1, 0}};
  run.steps(2);
  CHECK_EQ(run.take(), Spans{});
  CHECK_EQ(run.end(), Status::kOk);
  CHECK_EQ(run.take(), (Spans{{10, 1, 0, 0}}));
}

TEST(a_look_that_was_forgotten_can_be_repeated) {
  ItemRule rule = window(0, 1);
  rule.reach = Reach::kHistory;
  rule.conditions = {{ConditionKind::kStepsSinceApplied, Compare::kGreaterEqual, 0, 2, 0}};
  Run run(rule, 1);
  run.steps(1);
  CHECK_EQ(run.take(), Spans{});
  run.stream.write();
  for (int i = 0; i < 3; ++i) {
    CHECK_EQ(rule.on_step(run.stream, kFormats, run.due, run.missing), Status::kOk);
    CHECK_EQ(run.take(), (Spans{{1, 1, 0, 0}}));
    rule.forget();
  }
}

TEST(priorities_come_from_the_data_and_bad_ones_are_refused) {
  ItemRule rule = window(0, 3);
  const auto priority = [&](PriorityRule how) {
    rule.priority = how;
    Run run(rule, rule.history());
    run.steps(3);
    return run.due.at(0).priority;
  };
  CHECK_EQ(priority({}), -1.0);
  CHECK_EQ(priority({PriorityKind::kConstant, 2.5, 0}), 2.5);
  CHECK_EQ(priority({PriorityKind::kColumn, 0, 0}), 0.0);
  CHECK_NEAR(priority({PriorityKind::kTd, 0.75, 0}), 0.75 * 2 + 0.25 * 1, 1e-12);
  ItemRule warmed = window(-2, 1);
  warmed.priority = {PriorityKind::kTd, 0.75, 0, true};
  Run training(warmed, warmed.history());
  training.steps(3);
  CHECK_NEAR(training.due.at(0).priority, 2.0, 1e-12);
  Run run(rule, rule.history());
  run.stream.bad_ = 1;
  rule.priority = {PriorityKind::kColumn, 0, 0};
  run.steps(3);
  run.stream.write();
  CHECK_EQ(rule.on_step(run.stream, kFormats, run.due, run.missing), Status::kBadPriority);
}

TEST(a_cell_that_is_missing_is_an_error_to_windows_and_no_item_to_patterns) {
  for (const bool is_strict : {true, false}) {
    ItemRule rule = window(-1, 1);
    rule.reach = Reach::kHistory;
    rule.is_strict = is_strict;
    rule.outputs[0].column = 1;
    Run run(rule, 3);
    run.steps(1);
    run.stream.write_final();
    run.stream.write();
    CHECK_EQ(rule.on_step(run.stream, kFormats, run.due, run.missing), is_strict ? Status::kMissingCell : Status::kOk);
    CHECK_EQ(run.take(), Spans{});
    if (is_strict) CHECK_EQ(run.missing.step, 1u);
  }
}

TEST(on_demand_an_item_reaches_as_far_as_the_history) {
  ItemRule rule = window(-2, 1);
  rule.reach = Reach::kHistory;
  Run run(rule, 2);
  run.stream.write();
  run.stream.write();
  CHECK_EQ(rule.on_demand(run.stream, kFormats, run.due, run.missing), Status::kHistory);
  run.stream.write();
  CHECK_EQ(rule.on_demand(run.stream, kFormats, run.due, run.missing), Status::kOk);
  CHECK_EQ(run.take(), (Spans{{0, 3, 0, 0}}));
}

TEST(a_rule_too_large_for_a_record_says_so_when_it_is_prepared) {
  ItemRule rule = window(0, 1);
  rule.names.assign(kPatternBytes, 'x');
  CHECK_THROWS(std::length_error, "outputs fit", rule.prepare());
}

}  // namespace shmreplay::test
