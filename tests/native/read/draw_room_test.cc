// Nothing that is taken out of a table is lost when memory runs out: memory is allocated before, or the item stays.
#include "read/draw_room.h"

#include <sys/resource.h>

#include <algorithm>
#include <cstdio>

#include "support/fixtures.h"

namespace shmreplay::test {
namespace {

constexpr uint32_t kBlockBytes = 4096;
constexpr size_t kLarge = size_t{80} << 20;  // more than malloc keeps in reserve for a thread

// A queue of rows; the test says how large column 3 is in each.
class Values {
 public:
  explicit Values(World& w) : writer_(w.arena, w.table(), 4), arena_(w.arena), span_(whole_pattern(w.arena)) {
    CHECK_EQ(writer_.open(kNow), Status::kOk);
  }

  void append(size_t bytes) {
    const std::string value(bytes, static_cast<char>(bytes % 251));
    CHECK_EQ(writer_.ensure_row(kNow), Status::kOk);
    CHECK_EQ(writer_.secure_blocks(blocks_of(arena_, bytes), kNow), Status::kOk);
    writer_.row().write_value(3, value.data(), static_cast<uint32_t>(bytes));
    writer_.row().write_no_value(5);
    writer_.row().mark_all();
    writer_.finish_row();
  }

  // Makes an item of the newest steps, by the span's pattern or another.
  void create(uint32_t length, PreparedPattern* pattern = nullptr) {
    int64_t key = 0;
    CHECK_EQ(create_item(writer_, writer_.table(), pattern == nullptr ? span_ : *pattern, length, 1, kNow, key),
             Status::kOk);
  }

  void put(size_t bytes) {
    append(bytes);
    create(1);
  }

 private:
  StreamWriter writer_;
  Arena& arena_;
  PreparedPattern span_;
};

ArenaSpec queue_of(uint32_t num_blocks) {
  return with_values(arena_of({queue_table("q", 200)}, 2), num_blocks, kBlockBytes);
}

// Limits this process's address space to `spare` bytes more than it has.
void limit_memory(rlim_t spare) {
  FILE* file = std::fopen("/proc/self/statm", "r");
  unsigned long pages = 0;
  CHECK(file != nullptr && std::fscanf(file, "%lu", &pages) == 1);
  std::fclose(file);
  rlimit limit{};
  CHECK_EQ(getrlimit(RLIMIT_AS, &limit), 0);
  limit.rlim_cur = spare == RLIM_INFINITY ? limit.rlim_max : pages * 4096 + spare;
  CHECK_EQ(setrlimit(RLIMIT_AS, &limit), 0);
}

// For a forked child.
std::unique_ptr<Arena> attach(World& w) {
  const SessionInfo info = open_own_session(*w.segments.attach());
  return w.segments.attach(info.index, info.generation);
}

std::vector<size_t> sizes_of(const Batch& batch, size_t n) {
  std::vector<size_t> sizes;
  const std::vector<std::optional<std::string>> values = batch.values(3);
  for (size_t i = 0; i < n; ++i) {
    const std::string& value = *values[i];
    CHECK(value == std::string(value.size(), static_cast<char>(value.size() % 251)));
    sizes.push_back(value.size());
  }
  return sizes;
}

// First asks another sink whether there may be more rows than a given number.
class Narrow final : public BatchSink {
 public:
  Narrow(Batch& batch, uint32_t most, std::function<void()> after_first)
      : batch_(batch), most_(most), after_first_(std::move(after_first)) {}
  bool prepare(const Pattern& structure, const uint32_t* rows, int64_t done) noexcept override {
    return rows[0] <= most_ && batch_.prepare(structure, rows, done);
  }
  std::vector<OutputBuffer>& outputs() noexcept override { return batch_.outputs(); }
  ItemValues* item_values() noexcept override { return batch_.item_values(); }
  void describe(int64_t first, const Pick* picks, uint32_t n) noexcept override {
    batch_.describe(first, picks, n);
    if (first == 0) after_first_();
  }

 private:
  Batch& batch_;
  uint32_t most_;
  std::function<void()> after_first_;
};

SampleResult sample(World& w, uint32_t n, BatchSink& sink) {
  SampleCall call(w.arena);
  const std::vector<double> uniforms(n, 0.5);
  return call.sample(w.table(), {n, n, true, uniforms.data()}, kNow, sink);
}

}  // namespace

TEST(an_item_that_there_is_no_memory_for_stays_in_its_queue) {
  if (kSanitized) return;  // the sanitizers' shadow memory ignores the limit
  World w(queue_of(2 * kLarge / kBlockBytes));
  Values values(w);
  for (const size_t bytes : {size_t{100}, kLarge, size_t{5000}}) values.put(bytes);
  Child consumer([&] {
    const std::unique_ptr<Arena> arena = attach(w);
    const TableFacts& table = arena->table(0);
    Learner learner(*arena);
    limit_memory(kLarge / 2);
    Batch first(*arena, 3);
    const SampleResult r = learner.sample(table, 3, first, kNow);
    CHECK_EQ(r.status, Status::kNoMemory);
    CHECK_EQ(r.done, 1u);
    CHECK(sizes_of(first, 1) == std::vector<size_t>{100});
    CHECK_EQ(live_items(table), 2u);
    CHECK_EQ(table.record->limiter.samples.get(), 1u);
    Batch again(*arena, 2);
    CHECK_EQ(learner.sample(table, 2, again, kNow).status, Status::kNoMemory);
    CHECK_EQ(live_items(table), 2u);
    limit_memory(RLIM_INFINITY);
    Batch rest(*arena, 2);
    CHECK_EQ(learner.sample(table, 2, rest, kNow).status, Status::kOk);
    CHECK(sizes_of(rest, 2) == (std::vector<size_t>{kLarge, 5000}));
    CHECK_EQ(live_items(table), 0u);
  });
  consumer.join();
  check_healthy(w.arena);
}

// The call may have been woken for the item; then it hands that wake on.
TEST(a_sampler_without_memory_for_an_item_leaves_it_to_the_next_one) {
  if (kSanitized) return;
  World w(queue_of(2 * kLarge / kBlockBytes));
  Values(w).put(kLarge);
  Child consumer([&] {
    const std::unique_ptr<Arena> arena = attach(w), other = attach(w);
    Blocked blocked(*other, other->table(0), kSamples, kNow);
    {
      Hold hold(*other);
      CHECK_EQ(hold.begin(kNow), Status::kOk);
      blocked.join(hold);
      hold.end();
    }
    std::atomic<uint32_t>& futex = arena->table(0).record->sides[kSamples].futex;
    const uint32_t before = futex.load();
    Learner learner(*arena);
    Batch batch(*arena, 1);
    limit_memory(kLarge / 2);
    CHECK_EQ(learner.sample(arena->table(0), 1, batch, kNow).status, Status::kNoMemory);
    CHECK(futex.load() != before);
  });
  consumer.join();
}

TEST(an_item_that_came_longer_than_the_batch_has_room_for_is_not_taken_before_there_is_more) {
  World w(queue_of(100));
  Values values(w);
  for (int i = 0; i < 3; ++i) values.put(10);
  Batch batch(w.arena, 40);
  Narrow sink(batch, 1, [&] { values.create(3); });
  SampleCall call(w.arena);
  const std::vector<double> uniforms(40, 0.5);
  const SampleResult r = call.sample(w.table(), {40, 40, true, uniforms.data()}, kNow, sink);
  CHECK_EQ(r.status, Status::kInterrupted);
  CHECK_EQ(r.done, 3u);
  CHECK_EQ(live_items(w.table()), 1u);
  Batch rest(w.arena, 1);
  CHECK_EQ(sample(w, 1, rest).status, Status::kOk);
  CHECK_EQ(rest.length(0, 0), 3);
}

TEST(items_of_patterns_that_the_call_does_not_know_yet_are_drawn_all_the_same) {
  World w(queue_of(1000));
  Values values(w);
  values.put(9);
  std::vector<PreparedPattern> patterns;
  for (int i = 1; i <= 12; ++i) {
    Pattern p = whole_pattern(w.arena);
    for (Slice& s : p.slices) s = from_to(-i, 1);  // i missing rows, then the first step
    for (PatternOutput& o : p.outputs) o.flags |= i % 2 == 0 ? kRepeatStart : uint16_t{0};
    patterns.emplace_back(p);
  }
  for (size_t i = 0; i < patterns.size(); ++i) {
    values.append(20 + i);
    values.create(1, &patterns[i]);
  }
  Batch batch(w.arena, 13);
  CHECK_EQ(sample(w, 13, batch).status, Status::kOk);
  CHECK_EQ(batch.length(0, 0), 1);
  const std::vector<std::optional<std::string>> shown = batch.values(3);
  for (int64_t i = 1; i <= 12; ++i) {
    CHECK_EQ(batch.length(0, i), 1);
    CHECK_EQ(shown[static_cast<size_t>(i * 13 + i)]->size(), static_cast<size_t>(19 + i));
  }
  check_healthy(w.arena);
}

// Some items are left again and again because there is no room. None is lost and none comes twice, whatever their
// sizes.
TEST(values_of_any_sizes_come_out_of_a_queue_once_and_in_order) {
  Random random(seed());
  World w(queue_of(20'000));
  Values values(w);
  std::vector<size_t> sizes, found;
  for (int i = 0; i < 120; ++i) {
    sizes.push_back(random.chance(0.1) ? random.below(400'000) : random.below(300));
    values.put(sizes.back());
  }
  while (found.size() < sizes.size()) {
    const auto n = static_cast<uint32_t>(std::min<size_t>(1 + random.below(50), sizes.size() - found.size()));
    Batch batch(w.arena, n);
    CHECK_EQ(sample(w, n, batch).status, Status::kOk);
    const std::vector<size_t> some = sizes_of(batch, n);
    found.insert(found.end(), some.begin(), some.end());
  }
  CHECK(found == sizes);
  check_healthy(w.arena);
}

}  // namespace shmreplay::test
