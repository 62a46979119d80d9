// Rows picked from arrays and laid side by side, the next ones fetched ahead.
#include <cstdint>
#include <cstring>

namespace {

constexpr uint64_t kAhead = 8, kLine = 64;

void gather_column(char* to, const char* from, uint64_t bytes, const int64_t* rows, uint64_t n) {
  const auto source = [&](uint64_t i) { return from + static_cast<uint64_t>(rows[i]) * bytes; };
  for (uint64_t i = 0; i < n + kAhead; ++i) {
    if (i < n) {
      for (uint64_t at = 0; at < bytes; at += kLine) __builtin_prefetch(source(i) + at);
      __builtin_prefetch(source(i) + bytes - 1);
    }
    if (i >= kAhead) std::memcpy(to + (i - kAhead) * bytes, source(i - kAhead), bytes);
  }
}

}  // namespace

// Sets of `batch` rows, from set `first` on and round; each set into the same targets, an array a column.
extern "C" void gather_rows(char* const* to, const char* const* from, const uint64_t* bytes, uint64_t num_columns,
                            const int64_t* rows, uint64_t num_sets, uint64_t batch, uint64_t first, uint64_t n) {
  for (uint64_t i = 0; i < n; ++i) {
    const int64_t* set = rows + (first + i) % num_sets * batch;
    for (uint64_t c = 0; c < num_columns; ++c) gather_column(to[c], from[c], bytes[c], set, batch);
  }
}
