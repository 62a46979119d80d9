#include "base/row_copy.h"

#include <algorithm>
#include <vector>

#include "support/harness.h"

namespace shmreplay::test {
namespace {

constexpr size_t kMargin = 128, kMost = 2 * kPastCaches;

std::vector<char> numbered(size_t n) {
  std::vector<char> bytes(n);
  for (size_t i = 0; i < n; ++i) bytes[i] = static_cast<char>(1 + i * 7 % 251);
  return bytes;
}

TEST(a_copy_past_the_caches_is_exact_wherever_both_lie_and_writes_nothing_beside) {
  const std::vector<char> source = numbered(kMost + kMargin);
  for (const size_t bytes :
       {size_t{0}, size_t{1}, size_t{63}, size_t{64}, size_t{65}, kPastCaches, kPastCaches + 1, kMost - 1, kMost}) {
    for (size_t at = 0; at < 64; ++at) {
      for (const size_t from : {size_t{0}, size_t{1}, size_t{4}, size_t{33}}) {
        std::vector<char> target(kMost + 2 * kMargin, '\x5a');
        copy_past_caches(target.data() + kMargin + at, source.data() + from, bytes);
        const char* begin = target.data() + kMargin + at;
        CHECK(std::equal(begin, begin + bytes, source.data() + from));
        const auto untouched = [](char c) { return c == '\x5a'; };
        CHECK(std::all_of(target.data(), target.data() + kMargin + at, untouched));
        CHECK(std::all_of(begin + bytes, static_cast<const char*>(target.data() + target.size()), untouched));
      }
    }
  }
}

TEST(a_row_is_the_same_in_a_ring_of_any_size) {
  const std::vector<char> source = numbered(kMost);
  for (const size_t bytes : {size_t{4}, size_t{400}, kPastCaches - 1, kPastCaches, kMost}) {
    for (const bool past_caches : {false, true}) {
      std::vector<char> target(kMost, 0);
      copy_row(target.data(), source.data(), bytes, past_caches);
      CHECK(std::equal(target.data(), target.data() + bytes, source.data()));
    }
  }
}

}  // namespace
}  // namespace shmreplay::test
