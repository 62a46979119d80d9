// Rows picked from one array and laid side by side, the next ones fetched ahead.
#include <algorithm>
#include <cstdint>
#include <cstring>

namespace {
constexpr uint64_t kAhead = 8, kLine = 64;
}

// Sets of `batch` rows, from set `first` on and round; each set into the same `to`.
extern "C" void gather_rows(char* to, const char* from, uint64_t bytes, const int64_t* rows, uint64_t num_sets, uint64_t batch,
                            uint64_t first, uint64_t n) {
  for (uint64_t i = 0; i < n; ++i) {
    const int64_t* set = rows + (first + i) % num_sets * batch;
    for (uint64_t j = 0; j < batch + kAhead; ++j) {
      if (j < batch) {
        const char* next = from + static_cast<uint64_t>(set[j]) * bytes;
        for (uint64_t line = 0; line < bytes + kLine; line += kLine) __builtin_prefetch(next + std::min(line, bytes - 1));
      }
      if (j >= kAhead) std::memcpy(to + (j - kAhead) * bytes, from + static_cast<uint64_t>(set[j - kAhead]) * bytes, bytes);
    }
  }
}
