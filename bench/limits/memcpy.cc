// memcpy of blocks of one size, one behind the other, round and round.
#include <cstdint>
#include <cstring>

extern "C" void copy_blocks(char* to, uint64_t num_to, uint64_t first, const char* from, uint64_t num_from,
                            uint64_t bytes, uint64_t n) {
  uint64_t t = first % num_to, f = 0;
  for (uint64_t i = 0; i < n; ++i) {
    std::memcpy(to + t * bytes, from + f * bytes, bytes);
    if (++t == num_to) t = 0;
    if (++f == num_from) f = 0;
  }
}
