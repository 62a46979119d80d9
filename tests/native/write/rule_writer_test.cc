#include "write/rule_writer.h"

#include "chunks/streams_fixture.h"

namespace shmreplay::test {
namespace {

// One stream with its rules; each append() call writes one row.
class Single {
 public:
  Single(Arena& arena, std::vector<ItemRule> rules, WriterFacts facts)
      : writer(arena, arena.table(0), 8, facts, std::move(rules)), arena_(arena) {
    CHECK_EQ(writer.stream().open(kNow), Status::kOk);
  }
  void begin(uint64_t serial) {
    CHECK_EQ(writer.stream().ensure_row(kNow), Status::kOk);
    writer.begin(WriterCall::kAppend);
    write_row(writer.stream(), arena_, serial);
  }
  Status finish(const Wait& wait = kNow) {
    RuleWriter* const self = &writer;
    size_t at = 0;
    if (writer.unfinished() == WriterCall::kNothing) CHECK_EQ(writer.look_at_row(-1, missing), Status::kOk);
    const Status s = RuleWriter::insert({&self, 1}, wait, at);
    writer.conclude();
    return s;
  }
  RuleWriter writer;
  ItemRule::Missing missing{};

 private:
  Arena& arena_;
};

}  // namespace

TEST(a_row_and_its_items_are_there_together_or_neither_is) {
  World w(arena_of({queue_table("q", 2)}));
  Single one(w.arena, {newest(w.arena, 0, 1), newest(w.arena, 0, 1)}, facts_of(w.arena));
  one.begin(1);
  CHECK_EQ(one.finish(), Status::kOk);
  CHECK_EQ(one.writer.num_in(), 2u);
  CHECK_EQ(one.writer.rule_of(0), 0u);
  CHECK_EQ(one.writer.rule_of(1), 1u);
  one.begin(2);
  CHECK_EQ(one.finish(), Status::kTimeout);
  CHECK_EQ(one.writer.unfinished(), WriterCall::kNothing);
  CHECK_EQ(one.writer.num_in(), 0u);
  CHECK(!one.writer.stream().row().is_open());
  CHECK_EQ(one.writer.stream().history().episode_steps(), 1u);
}

TEST(a_call_of_which_some_items_are_in_is_unfinished_until_it_is_repeated) {
  World w(arena_of({queue_table("q", 1)}));
  Single one(w.arena, {newest(w.arena, 0, 1), newest(w.arena, 0, 1)}, facts_of(w.arena));
  one.begin(1);
  CHECK_EQ(one.finish(), Status::kTimeout);  // the two never fit together: they go in one by one
  CHECK_EQ(one.writer.unfinished(), WriterCall::kAppend);
  CHECK(one.writer.stream().row().is_open());
  Learner(w.arena).draw(w.table());
  CHECK_EQ(one.finish(), Status::kOk);
  CHECK_EQ(one.writer.unfinished(), WriterCall::kNothing);
  CHECK_EQ(one.writer.num_in(), 2u);
  CHECK_EQ(one.writer.stream().history().episode_steps(), 1u);
}

TEST(a_row_that_ends_its_episode_asks_for_its_end) {
  WriterFacts facts = facts_of(World(arena_of({open_table("a", 10)})).arena);
  facts.end_columns = {0};
  World w(arena_of({open_table("a", 10)}));
  Single one(w.arena, {newest(w.arena, 0, 1)}, facts);
  one.begin(1);  // its first byte is 1
  CHECK_EQ(one.finish(), Status::kOk);
  CHECK(one.writer.needs_end_episode());
  one.writer.begin(WriterCall::kEnd);
  CHECK_EQ(one.writer.look_at_end(true, -1, one.missing), Status::kOk);
  CHECK(one.writer.conclude());
  CHECK(!one.writer.needs_end_episode());
  facts.across_episodes = true;
  Single other(w.arena, {newest(w.arena, 0, 1)}, facts);
  other.begin(1);
  CHECK_EQ(other.finish(), Status::kOk);
  CHECK(!other.writer.needs_end_episode());
}

TEST(an_episode_that_did_not_terminate_says_what_its_final_step_lacks) {
  World w(arena_of({open_table("a", 10)}));
  WriterFacts facts = facts_of(w.arena);
  ItemRule rule = newest(w.arena, 0, 1);
  rule.hi = 2;
  rule.outputs[0].moves = rule.outputs[0].squeezed = true;
  const auto nothing = [](uint32_t) { return false; };
  const auto lacking_after_a_step = [&] {
    Single one(w.arena, {rule}, facts);
    CHECK_EQ(one.writer.lacks_of_final_step(true, false, nothing), -1);  // there is no step, so no next one
    one.begin(1);                                                        // its first byte is 1
    CHECK_EQ(one.finish(), Status::kOk);
    CHECK_EQ(one.writer.lacks_of_final_step(true, true, [](uint32_t c) { return c == 0; }), -1);
    CHECK_EQ(one.writer.lacks_of_final_step(true, true, nothing), one.writer.lacks_of_final_step(true, false, nothing));
    return one.writer.lacks_of_final_step(true, false, nothing);
  };
  CHECK_EQ(lacking_after_a_step(), -1);  // no column says where episodes end
  facts.end_columns = {0};
  CHECK_EQ(lacking_after_a_step(), -1);  // terminated
  facts.truncated = 0;
  CHECK_EQ(lacking_after_a_step(), 0);
}

TEST(a_span_goes_to_the_table_that_is_named) {
  World w(arena_of({open_table("a", 10), open_table("b", 10)}));
  Single one(w.arena, {}, facts_of(w.arena));
  one.begin(1);
  CHECK_EQ(one.finish(), Status::kOk);
  for (const uint32_t table : {kNone, 1u}) {
    one.writer.begin(WriterCall::kItem);
    CHECK_EQ(one.writer.look_at_span(1, 1, table), Status::kOk);
    RuleWriter* const writer = &one.writer;
    size_t at = 0;
    CHECK_EQ(RuleWriter::insert({&writer, 1}, kNow, at), Status::kOk);
    CHECK(one.writer.conclude());
  }
  for (const uint32_t table : {0u, 1u}) CHECK_EQ(w.arena.table(table).record->size.get(), 1u);
}

TEST(a_span_longer_than_the_history_is_refused) {
  World w(arena_of({open_table("a", 10)}));
  Single one(w.arena, {}, facts_of(w.arena));
  one.writer.begin(WriterCall::kItem);
  CHECK_EQ(one.writer.look_at_span(1, 1), Status::kHistory);
  for (uint64_t serial = 1; serial <= 10; ++serial) {
    one.begin(serial);
    CHECK_EQ(one.finish(), Status::kOk);
  }
  one.writer.begin(WriterCall::kItem);
  for (const uint32_t length : {0u, 9u}) CHECK_EQ(one.writer.look_at_span(length, 1), Status::kHistory);
  CHECK_EQ(one.writer.look_at_span(8, 1), Status::kOk);
  RuleWriter* const writer = &one.writer;
  size_t at = 0;
  CHECK_EQ(RuleWriter::insert({&writer, 1}, kNow, at), Status::kOk);
  CHECK(one.writer.conclude());
  CHECK_EQ(rows_of(w, one.writer.keys()[0]), (std::vector<uint64_t>{3, 4, 5, 6, 7, 8, 9, 10}));
}

TEST(what_is_handed_over_is_the_callers_to_put_in) {
  World w(arena_of({open_table("a", 10)}));
  Single one(w.arena, {newest(w.arena, 0, 2)}, facts_of(w.arena));
  std::vector<DueItem> due;
  for (uint64_t serial = 1; serial <= 3; ++serial) {
    one.begin(serial);
    CHECK_EQ(one.writer.look_at_row(-1, one.missing), Status::kOk);
    one.writer.hand_over(due);
    CHECK(one.writer.conclude());
  }
  CHECK_EQ(due.size(), 2u);
  int64_t keys[2];
  uint32_t done = 0;
  CHECK_EQ(insert_due(one.writer.stream(), due.data(), 2, kNow, keys, done), Status::kOk);
  CHECK_EQ(rows_of(w, keys[0]), (std::vector<uint64_t>{1, 2}));
  CHECK_EQ(rows_of(w, keys[1]), (std::vector<uint64_t>{2, 3}));
  check_healthy(w.arena);
}

}  // namespace shmreplay::test
