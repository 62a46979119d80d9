// Leases end without the lock. A reader clears its count, and a thread that wants the chunk scans the counts without
// the lock. A scan that misses a reader comes after that reader's last look at the rows. If the orders were weaker, a
// row would change under the reader.
#include <algorithm>
#include <cstdio>

#include "chunks/leases.h"
#include "support/fixtures.h"

namespace shmreplay::test {
namespace {

constexpr uint32_t kChunk = 3, kWords = 256;

// A chunk's rows, in plain memory as in the core: ThreadSanitizer sees accesses that no order separates.
struct Rows {
  uint64_t words[kWords] = {};
  bool is_retired = false;  // under the lock

  void fill(uint64_t round) noexcept {
    for (uint64_t& word : words) word = round;
  }
  bool is_of_one_round() const noexcept {
    return std::all_of(words, words + kWords, [this](uint64_t word) { return word == words[0]; });
  }
};

void locked(Arena& arena, const std::function<void(Hold&)>& body) {
  Hold hold(arena);
  CHECK_EQ(hold.begin(kWhatever), Status::kOk);
  body(hold);
}

bool is_named(Arena& arena) {
  const std::vector<uint32_t> names = named_chunks(arena);
  return std::find(names.begin(), names.end(), kChunk) != names.end();
}

}  // namespace

TEST(rows_of_a_chunk_that_a_scan_found_unnamed_are_read_by_nobody) {
  const uint64_t most_reads = kSanitized ? 3'000 : 20'000;
  World w(arena_of({open_table("a", 10)}));
  Rows rows;
  std::atomic<uint64_t> num_reads{0};
  uint64_t num_torn = 0, num_withheld = 0;
  const auto writer = [&] {
    for (uint64_t round = 1; num_reads.load() < most_reads; ++round) {
      locked(w.arena, [&](Hold&) { rows.is_retired = true; });  // nobody names it after this
      const bool withheld = is_named(w.arena);
      num_withheld += withheld ? 1 : 0;
      if (withheld) until([&] { return !is_named(w.arena); });
      rows.fill(round);
      locked(w.arena, [&](Hold&) { rows.is_retired = false; });
    }
  };
  const auto reader = [&] {
    Lease lease(w.arena);
    while (num_reads.load() < most_reads) {
      bool is_there = false;
      locked(w.arena, [&](Hold& hold) {
        is_there = !rows.is_retired;
        if (!is_there) return;
        CHECK_EQ(lease.take(hold), Status::kOk);
        lease.name(hold, kChunk);
      });
      if (!is_there) continue;
      num_torn += rows.is_of_one_round() ? 0 : 1;
      ++num_reads;
      lease.drop();
    }
  };
  run_threads({writer, reader});
  printf("    the writer had to wait %llu times\n", static_cast<unsigned long long>(num_withheld));
  CHECK_EQ(num_torn, 0u);
}

}  // namespace shmreplay::test
