#include "read/item_view.h"

#include <algorithm>
#include <csignal>
#include <set>
#include <unistd.h>

#include "chunks/leases.h"
#include "support/fixtures.h"

namespace shmreplay::test {
namespace {

ArenaSpec small(uint32_t num_chunks = 16) { return arena_of({open_table("a", 100)}, 4, num_chunks); }

// Keeps what may be looked at later, and copies the serial numbers of what may not.
class Looker final : public ViewSink {
 public:
  explicit Looker(const Arena& arena) : arena_(arena) {}
  bool take(const DrawnItems& part, bool stays) noexcept override {
    for (uint32_t i = 0; i < part.n; ++i) {
      const Pick& pick = part.picks[i];
      const Pattern& pattern = part.patterns.at(pick.pattern);
      std::vector<RowsInPlace> found(pattern.outputs.size());
      std::vector<bool> is;
      for (size_t o = 0; o < found.size(); ++o)
        is.push_back(find_in_place(arena_, pattern, o, pick, part.runs, found[o]));
      keys.push_back(pick.key);
      rows.push_back(found);
      in_place.push_back(is);
      stayed.push_back(stays);
      chunks.push_back(part.runs[pick.first_run].chunk);
    }
    return !refuses;
  }

  uint64_t serial(size_t item, uint32_t row = 0, size_t output = 0) const {
    uint64_t s;
    std::memcpy(&s, rows[item][output].first + rows[item][output].stride_bytes * row, 8);
    return s;
  }

  std::vector<int64_t> keys;
  std::vector<std::vector<RowsInPlace>> rows;
  std::vector<std::vector<bool>> in_place;
  std::vector<bool> stayed;
  std::vector<uint32_t> chunks;
  bool refuses = false;

 private:
  const Arena& arena_;
};

SampleResult view(Arena& arena, SampleCall& call, Looker& looker, uint32_t n, const Wait& wait = kNow) {
  const std::vector<double> uniforms(n, 0.5);
  return call.view(arena.table(0), {n, n, true, uniforms.data()}, wait, looker);
}

// Inserts while the oldest items are evicted for room. Answers the chunks that the items went to.
std::set<uint32_t> churn(World& w, Actor& actor, int n) {
  std::set<uint32_t> chunks;
  for (int i = 0; i < n; ++i) {
    const int64_t key = actor.insert();
    Hold hold(w.arena);
    CHECK_EQ(hold.begin(kWhatever), Status::kOk);
    chunks.insert(w.arena.item(shmreplay::find_item(hold, w.table(), key)).place.get().chunk);
  }
  return chunks;
}

bool share_any(const std::set<uint32_t>& a, const std::vector<uint32_t>& b) {
  return std::any_of(b.begin(), b.end(), [&](uint32_t chunk) { return a.count(chunk) > 0; });
}

}  // namespace

TEST(a_view_shows_the_rows_themselves_and_names_their_chunks_until_it_is_dropped) {
  World w(small());
  Actor actor(w.arena, w.table());
  const int64_t key = actor.insert();
  SampleCall call(w.arena);
  Looker looker(w.arena);
  const SampleResult result = view(w.arena, call, looker, 3);
  CHECK_EQ(result.status, Status::kOk);
  CHECK_EQ(result.done, 3u);
  CHECK_EQ(looker.keys, std::vector<int64_t>(3, key));
  CHECK_EQ(looker.rows[0][0].first, w.arena.row(looker.chunks[0], 0, 0));
  CHECK_EQ(looker.serial(0), 1u);
  CHECK_EQ(named_chunks(w.arena), std::vector<uint32_t>{looker.chunks[0]});
  CHECK(session_names_chunks(w.arena, w.arena.session_index(), w.arena.session_generation()));
  check_healthy(w.arena);
  call.drop();
  CHECK(named_chunks(w.arena).empty());
  call.drop();
  CHECK(named_chunks(w.arena).empty());
}

TEST(rows_stay_under_a_view_however_much_is_written) {
  World w(small());
  Actor actor(w.arena, w.table());
  for (int i = 0; i < 8; ++i) actor.insert();
  SampleCall call(w.arena);
  Looker looker(w.arena);
  CHECK_EQ(view(w.arena, call, looker, 5).status, Status::kOk);
  std::vector<uint64_t> before;
  for (size_t i = 0; i < 5; ++i) before.push_back(looker.serial(i));
  churn(w, actor, 1000);
  for (size_t i = 0; i < 5; ++i) CHECK_EQ(looker.serial(i), before[i]);
  check_healthy(w.arena);
  call.drop();
  churn(w, actor, 1000);
  for (size_t i = 0; i < 5; ++i) CHECK(looker.serial(i) != before[i]);
}

TEST(a_view_withholds_its_own_chunks_and_no_others) {
  World w(arena_of({open_table("a", 100)}, 4, 6));
  const auto reader = w.client();
  Actor actor(w.arena, w.table());
  for (int i = 0; i < 20; ++i) actor.insert();  // fills five chunks
  SampleCall call(*reader);
  Looker looker(*reader);
  CHECK_EQ(view(*reader, call, looker, 1).status, Status::kOk);
  const uint64_t before = looker.serial(0);
  CHECK_EQ(churn(w, actor, 200).size(), 5u);
  CHECK_EQ(looker.serial(0), before);
  call.drop();
  CHECK_EQ(churn(w, actor, 200).size(), 6u);
}

TEST(what_a_sleep_came_between_does_not_stay) {
  TableSpec t = open_table("a", 100);
  t.min_diff = 0;
  t.max_diff = 100;
  World w(arena_of({t}));
  Actor actor(w.arena, w.table());
  actor.insert();
  actor.insert();
  SampleCall call(w.arena);
  Looker looker(w.arena);
  run_threads({[&] { CHECK_EQ(view(w.arena, call, looker, 3, kWhatever).status, Status::kOk); },
               [&] {
                 until([&] { return sleepers(w.table(), kSamples) == 1; });
                 CHECK(named_chunks(w.arena).empty());
                 actor.insert();
               }});
  CHECK_EQ(looker.stayed, (std::vector<bool>{false, false, true}));
  CHECK_EQ(named_chunks(w.arena).size(), 1u);
}

TEST(a_view_that_fails_names_nothing) {
  TableSpec t = open_table("a", 100);
  t.min_diff = 0;
  t.max_diff = 100;
  World w(arena_of({t}));
  Actor actor(w.arena, w.table());
  actor.insert();
  SampleCall call(w.arena);
  Looker looker(w.arena);
  const SampleResult result = view(w.arena, call, looker, 2);
  CHECK_EQ(result.status, Status::kTimeout);
  CHECK_EQ(result.done, 1u);
  CHECK_EQ(looker.stayed, std::vector<bool>{false});
  CHECK(named_chunks(w.arena).empty());
  actor.insert();
  looker.refuses = true;
  CHECK_EQ(view(w.arena, call, looker, 1).status, Status::kInterrupted);
  CHECK(named_chunks(w.arena).empty());
}

TEST(a_view_of_as_many_items_as_a_lease_has_names_stays_whole) {
  World w(arena_of({open_table("a", 2000, kFifo)}, 1, 2100));
  Actor actor(w.arena, w.table());
  for (uint32_t i = 0; i < 1200; ++i) actor.insert();
  SampleCall call(w.arena);
  Looker looker(w.arena);
  CHECK_EQ(view(w.arena, call, looker, SampleCall::kViewChunks).status, Status::kOk);
  CHECK_EQ(looker.stayed, std::vector<bool>(SampleCall::kViewChunks, true));
}

TEST(slices_lie_in_place_where_their_rows_have_one_stride) {
  World w(small());
  Actor actor(w.arena, w.table(), 6);
  for (int i = 0; i < 6; ++i) actor.append();  // serials 1 to 6: four in one chunk, two in the next
  PreparedPattern p(Pattern{});
  const auto output = [&](std::vector<Slice> slices, uint16_t flags = 0) {
    Pattern& q = p.pattern;
    q.outputs.push_back({0, flags, static_cast<uint32_t>(slices.size()), static_cast<uint32_t>(q.slices.size()), 0});
    q.slices.insert(q.slices.end(), slices.begin(), slices.end());
  };
  output({from_to(0, 4)});
  output({from_to(0, 4, 2)});
  output({from_to(3, -1, -1)});
  output({from_to(1, 2)}, kSqueezed);
  output({from_to(2, 6)});
  output({from_to(1, 2), from_to(1, 2)});
  output({from_to(0, 2), from_to(3, 4)});
  output({from_to(0, 3, 3), from_to(3, 4)});
  p = PreparedPattern(p.pattern);
  int64_t key = 0;
  CHECK_EQ(create_item(actor.writer, w.table(), p, 6, 1, kNow, key), Status::kOk);
  SampleCall call(w.arena);
  Looker looker(w.arena);
  CHECK_EQ(view(w.arena, call, looker, 1).status, Status::kOk);
  CHECK_EQ(looker.in_place[0], (std::vector<bool>{true, true, true, true, false, true, false, true}));
  const std::vector<std::vector<uint64_t>> expected{{1, 2, 3, 4}, {1, 3}, {4, 3, 2, 1}, {2}, {}, {2, 2}, {}, {1, 4}};
  for (size_t o = 0; o < expected.size(); ++o) {
    for (uint32_t j = 0; j < expected[o].size(); ++j) {
      CHECK_EQ(looker.serial(0, j, o), expected[o][j]);
      CHECK_EQ(looker.rows[0][o].rows, expected[o].size());
    }
  }
}

TEST(a_forked_child_leaves_its_parents_view_alone) {
  World w(small());
  Actor actor(w.arena, w.table());
  actor.insert();
  SampleCall call(w.arena);
  Looker looker(w.arena);
  CHECK_EQ(view(w.arena, call, looker, 1).status, Status::kOk);
  Child([&] { call.drop(); }).join();
  CHECK_EQ(named_chunks(w.arena).size(), 1u);
  call.drop();
  CHECK(named_chunks(w.arena).empty());
}

TEST(a_viewer_that_is_stopped_withholds_its_chunks_and_one_that_is_killed_gives_them_back) {
  World w(arena_of({open_table("a", 100)}, 1, 8));
  Actor actor(w.arena, w.table());
  for (int i = 0; i < 6; ++i) actor.insert();
  int told[2];
  CHECK_EQ(pipe(told), 0);
  Child child([&] {
    const SessionInfo info = open_own_session(*w.segments.attach());
    const auto arena = w.segments.attach(info.index, info.generation);
    SampleCall call(*arena);
    Looker looker(*arena);
    const std::vector<double> uniforms{0.0, 0.2, 0.4, 0.6, 0.8, 0.99};
    CHECK_EQ(call.view(arena->table(0), {6, 6, true, uniforms.data()}, kNow, looker).status, Status::kOk);
    CHECK_EQ(write(told[1], "", 1), 1);  // out of its hold: if it stopped inside, everybody would stop
    for (;;) pause();
  });
  close(told[1]);
  char byte = 0;
  CHECK_EQ(read(told[0], &byte, 1), 1);
  close(told[0]);
  CHECK_EQ(named_chunks(w.arena).size(), 6u);
  child.stop();
  const std::vector<uint32_t> withheld = named_chunks(w.arena);
  CHECK(!share_any(churn(w, actor, 50), withheld));
  child.send(SIGKILL);
  CHECK(child.killed());
  uint32_t reaped = 0;
  CHECK_EQ(reap_dead_sessions(*w.daemon, kWhatever, reaped), Status::kOk);
  CHECK(named_chunks(w.arena).empty());
  CHECK(share_any(churn(w, actor, 50), withheld));
  check_healthy(w.arena);
}

}  // namespace shmreplay::test
